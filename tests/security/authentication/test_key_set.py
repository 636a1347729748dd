"""Keys of others: of a file or an address, each good for what is its kind."""

import asyncio

import orjson
import pytest

from sow.errors import ConfigError, IssuerAway
from sow.security.authentication.key_set import (
    FETCHED_EVERY_US,
    FRESH_US,
    STALE_US,
    FetchedKeys,
    FiledKeys,
    good_for,
    keys_of,
)
from tests.security.authentication.signing import key, key_set


class Issuer:
    """An address that answers with some keys, or with an error, and counts."""

    def __init__(self, *keys):
        self.answer = key_set(*keys)
        self.requested = 0
        self.now_us = 0
        self.reports = []

    async def fetch(self, address):
        assert address == "https://id.example/keys"
        self.requested += 1
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if isinstance(self.answer, bytes) else orjson.dumps(self.answer)

    def keys(self):
        keys = FetchedKeys("https://id.example/keys", lambda: self.now_us)
        keys.go_on(self.fetch, self.reports.append)
        return keys


def found(keys, kid="k1", algorithm="ES256"):
    one = asyncio.run(keys.find(kid, algorithm))
    return one and one.kid


def test_a_key_is_good_for_its_kind_alone():
    keys = keys_of(orjson.dumps(key_set(key("RSA"), key("EC", "k2"), key("OKP", "k3"))), False)
    assert keys.of("k1", "RS256").kid == keys.of("k1", "PS256").kid == "k1"
    assert keys.of("k2", "ES256").kid == "k2"
    for algorithm in ("HS256", "ES256", "none", "", "RS257"):
        assert keys.of("k1", algorithm) is None
    assert keys.of("k1' OR '1", "RS256") is None
    assert keys.of(None, "EdDSA").kid == "k3"


def test_a_key_that_says_its_algorithm_is_good_for_no_other():
    said = key_set(key("RSA"))
    said["keys"][0]["alg"] = "PS256"
    (one,) = keys_of(orjson.dumps(said), False)._keys
    assert good_for(one) == ("PS256",)
    said["keys"][0]["alg"] = "HS256"
    (one,) = keys_of(orjson.dumps(said), False)._keys
    assert good_for(one) == ()


def test_without_a_name_there_has_to_be_one_that_fits():
    keys = keys_of(orjson.dumps(key_set(key("EC", "k1"), key("EC", "k2"))), False)
    assert keys.of(None, "ES256") is None
    assert keys.of("k2", "ES256").kid == "k2"


def test_a_secret_that_was_published_is_none():
    both = orjson.dumps(key_set(key("oct", "s"), key("EC")))
    assert keys_of(both, secrets_too=False).of("s", "HS256") is None
    assert keys_of(both, secrets_too=True).of("s", "HS256").kid == "s"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("[]", "is no JSON Web Key Set"),
        ('{"keys": [1]}', "is no JSON Web Key Set"),
        ('{"keys": []}', "has no key for signatures"),
        ('{"keys": [{"kty": "EC", "use": "enc"}, {"kty": "PQ"}]}', "has no key for signatures"),
        ('{"keys": [{"kty": "EC", "crv": "P-256", "x": "é"}]}', "kind EC that cannot be read"),
        ('{"keys": [' + ",".join(["{}"] * 1001) + "]}", "has over 1000 keys"),
    ],
)
def test_a_file_that_holds_no_keys_is_named(tmp_path, text, said):
    file = tmp_path / "jwks.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        FiledKeys(str(file))


def test_keys_of_a_file_are_found(tmp_path):
    file = tmp_path / "jwks.json"
    file.write_bytes(orjson.dumps(key_set(key(), key("oct", "s"))))
    assert found(FiledKeys(str(file))) == "k1"
    assert found(FiledKeys(str(file)), "s", "HS256") == "s"


def test_keys_are_fetched_once_and_again_when_they_are_old():
    issuer = Issuer(key())
    keys = issuer.keys()
    for _ in range(3):
        assert found(keys) == "k1"
    assert issuer.requested == 1
    issuer.now_us = FRESH_US + 1
    assert found(keys) == "k1"
    assert issuer.requested == 2


def test_an_unknown_key_is_requested_for_at_a_bounded_rate():
    issuer = Issuer(key())
    keys = issuer.keys()
    assert found(keys, "k2") is None
    assert issuer.requested == 1
    issuer.answer = key_set(key(), key("EC", "k2"))
    for _ in range(100):
        assert found(keys, "k2") is None
    assert issuer.requested == 1
    issuer.now_us = FETCHED_EVERY_US
    assert found(keys, "k2") == "k2"
    assert issuer.requested == 2


def test_many_at_once_fetch_once():
    issuer = Issuer(key())
    keys = issuer.keys()

    async def all_of_them():
        return await asyncio.gather(*(keys.find("k1", "ES256") for _ in range(50)))

    assert len({one.kid for one in asyncio.run(all_of_them())}) == 1
    assert issuer.requested == 1


def test_who_goes_away_takes_the_keys_from_nobody():
    issuer = Issuer(key())
    keys = issuer.keys()

    async def one_leaves():
        first = asyncio.create_task(keys.find("k2", "ES256"))
        second = asyncio.create_task(keys.find("k1", "ES256"))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(one_leaves()).kid == "k1"
    assert issuer.requested == 1


@pytest.mark.parametrize("answer", [OSError("refused"), TimeoutError(), b"<html>", b'{"keys": []}'])
def test_keys_stay_good_for_a_day_while_nobody_answers(answer):
    issuer = Issuer(key())
    keys = issuer.keys()
    assert found(keys) == "k1"
    issuer.answer = answer
    issuer.now_us = FRESH_US + 1
    assert found(keys) == "k1"
    assert issuer.reports
    assert "https://id.example/keys cannot be had" in issuer.reports[0]
    issuer.now_us = STALE_US + 1
    with pytest.raises(IssuerAway, match="try again"):
        found(keys)


def test_whose_token_cannot_be_checked_since_nobody_answers_may_try_again():
    issuer = Issuer(key())
    keys, issuer.answer = issuer.keys(), OSError("refused")
    for _ in range(3):
        with pytest.raises(IssuerAway):
            found(keys)
    assert issuer.requested == 1
    issuer.answer, issuer.now_us = key_set(key()), FETCHED_EVERY_US
    assert found(keys) == "k1"


def test_after_a_reload_they_are_fetched_again_and_stay_good_if_nobody_answers():
    issuer = Issuer(key())
    keys = issuer.keys()
    assert found(keys) == "k1"
    for issuer.answer, requested in ((OSError("refused"), 2), (key_set(key("EC", "k2")), 3)):
        issuer.now_us += FETCHED_EVERY_US
        keys.go_on(issuer.fetch, issuer.reports.append)
        assert found(keys) == ("k1" if requested == 2 else None)
        assert issuer.requested == requested


def test_a_key_that_was_withdrawn_is_none():
    issuer = Issuer(key(), key("EC", "k2"))
    keys = issuer.keys()
    assert found(keys, "k2") == "k2"
    issuer.answer = key_set(key())
    issuer.now_us = FRESH_US + 1
    assert found(keys, "k2") is None
