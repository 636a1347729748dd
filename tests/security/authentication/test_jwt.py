"""Signed tokens: what is good, and every way in which one is not."""

import asyncio
import base64
import hmac
import random

import orjson
import pytest

from sow.core.security_definitions import Jwt
from sow.errors import ConfigError, IssuerAway, Unauthenticated
from sow.security.authentication.credentials import LONGEST
from sow.security.authentication.jwt import (
    FETCHED_EVERY_US,
    FRESH_US,
    STALE_US,
    FetchedKeys,
    FiledKeys,
    SignedTokens,
    good_for,
    is_signed,
    keys_of,
)
from tests.cases import all_cases
from tests.security.authentication.signing import JWT, NOW_S, NOW_US, claims, key, key_set, token


class Given:
    """Keys that are there already."""

    named = ""

    def __init__(self, *keys):
        self._keys = keys_of(orjson.dumps(key_set(*keys)), secrets_too=True)

    async def find(self, kid, algorithm):
        return self._keys.of(kid, algorithm)


ALL = Given(key(), key("RSA", "r"), key("OKP", "o"), key("oct", "s"))


def user(text, keys=ALL, jwt=JWT, now_us=NOW_US):
    return asyncio.run(SignedTokens(jwt, keys, lambda: now_us).user(text))


def encoded(document):
    return encoded_bytes(orjson.dumps(document))


def encoded_bytes(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "by", [key(), key("RSA", "r"), key("OKP", "o"), key("oct", "s")], ids=lambda by: by.key_type
)
def test_a_good_token_is_its_user(by):
    said = claims(groups=["desk", 7, "risk"], desk="fx", level=3, active=True, more={"a": 1})
    found = user(token(said, by))
    assert (found.name, found.groups) == ("ann", {"desk", "risk"})
    assert found.expires_us == (NOW_S + 60) * 1_000_000
    assert found.claims["desk"] == "fx"
    assert found.claims["level"] == "3"
    assert found.claims["active"] == "true"
    assert "more" not in found.claims


def test_claims_have_the_names_that_the_configuration_says():
    jwt = Jwt(JWT.issuer, "sow", "", user="email", groups="scope")
    found = user(token(claims(email="ann@desk", scope="read write")), jwt=jwt)
    assert (found.name, found.groups) == ("ann@desk", {"read", "write"})


@pytest.mark.parametrize("audience", ["sow", ["other", "sow"]])
def test_the_audience_is_one_or_several(audience):
    assert user(token(claims(aud=audience))).name == "ann"


@all_cases(
    "changed",
    [
        {"iss": None},
        {"iss": "https://id.example/"},
        {"iss": ["https://id.example"]},
        {"aud": None},
        {"aud": "sows"},
        {"aud": []},
        {"aud": {"sow": 1}},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"exp": None},
        {"exp": "2027"},
        {"exp": True},
        {"exp": 1e300},
        {"exp": NOW_S},
        {"exp": NOW_S - 1},
        {"nbf": NOW_S + 1},
        {"nbf": "now"},
    ],
)
def test_a_token_that_says_something_else_is_not_good(changed):
    with pytest.raises(Unauthenticated):
        user(token(claims(**changed)))


def test_no_clock_is_given_leeway():
    good = token(claims(exp=NOW_S + 1, nbf=NOW_S))
    assert user(good).name == "ann"
    with pytest.raises(Unauthenticated, match="has expired"):
        user(good, now_us=NOW_US + 1_000_000)
    with pytest.raises(Unauthenticated):
        user(good, now_us=NOW_US - 1)


def with_secret(secret, kid):
    """A token signed as if what everybody knows was a secret."""
    text = f"{encoded({'alg': 'HS256', 'kid': kid})}.{encoded(claims())}"
    signature = hmac.digest(secret, text.encode(), "sha256")
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def test_a_secret_of_ones_own_signs_so():
    assert user(with_secret(key("oct", "s").raw_value, "s")).name == "ann"


def forged():
    """Tokens by which servers were fooled: each with what it tries."""
    body = encoded(claims())
    for none in ("none", "None", "NONE", "", "nOnE"):
        for end in ("", "AAAA"):
            yield f"{encoded({'alg': none, 'kid': 'k1'})}.{body}.{end}"
    public = key("RSA", "r").as_pem(private=False)
    yield with_secret(public, "r")
    yield with_secret(public.strip(), "r")
    yield with_secret(b"", "k1")
    stranger = key("EC", "stranger")
    yield token(claims(), stranger)
    yield token(claims(), stranger, kid="k1")
    yield token(claims(), stranger, kid=None)
    yield token(claims(), stranger, kid="k1", jwk=stranger.as_dict(private=False))
    yield token(claims(), stranger, jku="https://evil.example/keys")
    yield token(claims(), stranger, x5u="https://evil.example/cert", kid="../../dev/null")
    yield token(claims(), key(), kid="' UNION SELECT 'k1")
    yield token(claims(), key(), crit=["kid"])
    yield token(claims(), key(), crit=["b64"], b64=False)
    yield token(claims(), key("RSA", "r"), kid="k1")
    yield token(claims(), key("OKP", "o"), kid="s")
    header, said, _ = token(claims()).split(".")
    yield f"{header}.{said}.{encoded_bytes(bytes(64))}"
    yield f"{header}.{said}.{encoded_bytes(b'0' * 10_000)}"
    header, said, signature = token(claims()).split(".")
    yield f"{header}.{encoded(claims(sub='admin'))}.{signature}"
    yield f"{header}.{said}.{signature[:-4]}"
    yield f"{header}.{said}.{'A' * len(signature)}"
    yield f"{encoded({'alg': ['ES256'], 'kid': 'k1'})}.{said}.{signature}"
    yield f"{encoded({'alg': 'ES256', 'kid': ['k1']})}.{said}.{signature}"
    yield f"{encoded(['ES256'])}.{said}.{signature}"
    yield f"{encoded('ES256')}.{said}.{signature}"
    yield token(b"[]")
    yield token(b"ann")
    yield token(b"[" * 5_000)
    yield "." * 2
    yield "a.b.c"
    yield "x" * (LONGEST + 1)


def test_forged_tokens_are_refused_alike():
    said = set()
    for text in forged():
        with pytest.raises(Unauthenticated) as refused:
            user(text)
        said.add(refused.value.detail)
    assert said == {"the token is not good", f"the token is longer than {LONGEST} characters"}


def test_mutations_of_a_good_token_are_refused():
    """A change of the last character's unused bits is the same signature: it is left out."""
    good = token(claims())
    draw = random.Random(7)
    tokens = SignedTokens(JWT, ALL, lambda: NOW_US)

    async def all_of_them():
        for _ in range(2_000):
            cut = draw.randrange(len(good) - 1)
            text = draw.choice(
                [
                    good[:cut] + draw.choice("Aa0_-.=é\0") + good[cut + 1 :],
                    good[:cut] + good[cut + 1 :],
                    good[:cut] + draw.choice("Aa0_-.") + good[cut:],
                    good[cut:] + good[:cut],
                ]
            )
            if text != good and text[:-1] != good[:-1]:
                with pytest.raises(Unauthenticated):
                    await tokens.user(text)

    asyncio.run(all_of_them())


def test_what_has_three_parts_may_be_signed():
    assert is_signed("a.b.c")
    for text in ("", "abc", "a.b", "a.b.c.d", "a..c", "a.b.c\n", "é.b.c"):
        assert not is_signed(text)


@pytest.mark.parametrize("header", [b'["alg"]', b'"alg"', b"[" * 11_000, b'{"alg":' * 1_500])
def test_a_header_that_is_no_object_is_refused_like_any(header):
    said = base64.urlsafe_b64encode(header).rstrip(b"=").decode()
    with pytest.raises(Unauthenticated):
        user(f"{said}.e30.AAAA")


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
