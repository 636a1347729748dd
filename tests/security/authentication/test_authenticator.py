"""The one door: credentials in, a user out."""

import asyncio
import threading

import bcrypt
import orjson
import pytest

from sow.core.security_definitions import Authentication, Jwt
from sow.errors import TooManyLogons, Unauthenticated
from sow.security.authentication import authenticator, session_cache
from sow.security.authentication.authenticator import SIGNED_KNOWN_US, Authenticator
from sow.security.authentication.credentials import Credentials
from sow.security.authentication.session_cache import Logons
from sow.security.authentication.tokens import sum_of
from tests.security.authentication.signing import JWT, NOW_S, NOW_US, claims, key, key_set, token

CERTIFICATE = {"subject": ((("commonName", "cert"),),)}


class Door:
    """An authenticator over files in a directory, that counts what is slow."""

    def __init__(self, directory, **changed):
        self.directory = directory
        self.now_us = NOW_US
        self.hashed = 0
        self.reports = []
        self.write("users.htpasswd", f"ann:{self.hash('s3cret')}\n")
        self.write("users.groups", "desk: ann\n")
        self.write("tokens", f"feed {sum_of('t0ken')} feeds\n")
        self.write("keys.json", orjson.dumps(key_set(key())).decode())
        self.by = Authentication(
            users_file=str(directory / "users.htpasswd"),
            tokens_file=str(directory / "tokens"),
            jwt=Jwt(JWT.issuer, JWT.audience, str(directory / "keys.json")),
            client_certificates=True,
        )
        self.per_second = changed.get("per_second", 0)
        self.logons = Logons((lambda: self.per_second) if self.per_second else None)
        self.read()

    @staticmethod
    def hash(password):
        return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()

    def write(self, name, text):
        (self.directory / name).write_text(text)

    def read(self):
        """As after a reload."""
        self.authenticator = Authenticator(
            self.by,
            now_us=lambda: self.now_us,
            fetch=self.fetch,
            report=self.reports.append,
            logons=self.logons,
            beside=self.beside,
        )

    async def fetch(self, address):
        raise OSError(address)

    async def beside(self, function, *arguments):
        self.hashed += 1
        return function(*arguments)

    def identify(self, address="a", **shown):
        return asyncio.run(self.authenticator.identify(Credentials(**shown), address))

    def refused(self, **shown):
        with pytest.raises(Unauthenticated) as refused:
            self.identify(**shown)
        for secret in (shown.get("password"), shown.get("token")):
            assert not secret or secret not in refused.value.detail
        return refused.value.detail


@pytest.fixture
def door(tmp_path):
    return Door(tmp_path)


def test_each_way_finds_its_user(door):
    ann = door.identify(user="ann", password="s3cret")
    assert (ann.name, ann.groups) == ("ann", {"desk"})
    assert door.identify(token="t0ken").name == "feed"
    assert door.identify(token=token(claims())).name == "ann"
    assert door.identify(certificate=CERTIFICATE).name == "cert"
    both = door.identify(token="t0ken", user="ann", password="s3cret", certificate=CERTIFICATE)
    assert both.name == "feed"


def test_a_name_means_a_user_of_the_groups_in_the_files(door):
    named = door.authenticator.named
    assert [named(name).groups for name in ("ann", "feed", "dan")] == [{"desk"}, {"feeds"}, set()]


def test_who_shows_nothing_is_sent_what_to_show(door):
    assert "with a token, or a user and his password" in door.refused()


def test_what_is_wrong_is_not_sent(door):
    nobody = door.refused(user="nobody", password="s3cret")
    assert nobody == door.refused(user="ann", password="other")
    assert nobody == door.refused(user="ann") == door.refused(password="s3cret")
    assert door.refused(token="other") == door.refused(token="a.b.c") == "the token is not good"
    door.refused(certificate={"subject": ()})
    door.refused(user="x" * 20_000)


def test_a_way_that_is_not_there_is_none(tmp_path):
    door = Door(tmp_path)
    door.by = Authentication(tokens_file=door.by.tokens_file)
    door.read()
    assert door.identify(token="t0ken").name == "feed"
    assert "accepts no passwords" in door.refused(user="ann", password="s3cret")
    door.refused(token=token(claims()))
    door.refused(certificate=CERTIFICATE)


def test_who_is_known_is_not_hashed_again(door):
    for _ in range(5):
        door.identify(user="ann", password="s3cret")
    assert door.hashed == 1
    door.refused(user="ann", password="s3cre")
    door.refused(user="ann", password="s3cre")
    assert door.hashed == 3


def test_a_changed_password_and_changed_groups_are_found_after_a_reload(door):
    door.identify(user="ann", password="s3cret")
    door.read()
    door.identify(user="ann", password="s3cret")
    assert door.hashed == 1
    door.write("users.groups", "risk: ann\n")
    door.read()
    assert door.identify(user="ann", password="s3cret").groups == {"risk"}
    door.write("users.htpasswd", f"ann:{door.hash('other')}\n")
    door.read()
    door.refused(user="ann", password="s3cret")
    door.write("users.htpasswd", "")
    door.read()
    door.refused(user="ann", password="other")


def test_a_token_that_was_taken_out_is_none_after_a_reload(door):
    door.identify(token="t0ken")
    door.write("tokens", "")
    door.read()
    door.refused(token="t0ken")


def test_what_has_expired_is_refused(door):
    signed = token(claims(exp=NOW_S + 5))
    door.identify(token=signed)
    door.write("tokens", f"feed {sum_of('t0ken')} 2000-01-01T00:00:00Z\n")
    door.read()
    assert door.refused(token="t0ken") == "the credentials have expired"
    door.now_us += 5_000_000
    assert door.refused(token=signed) == "the credentials have expired"


def test_a_signed_token_is_checked_again_when_its_key_may_be_gone(door):
    signed = token(claims(exp=NOW_S + 86_400))
    door.identify(token=signed)
    door.write("keys.json", orjson.dumps(key_set(key("EC", "k2"))).decode())
    door.read()
    door.now_us += SIGNED_KNOWN_US
    door.refused(token=signed)


def test_a_key_that_was_taken_out_of_its_file_is_good_for_nothing_after_a_reload(door):
    signed = token(claims(exp=NOW_S + 86_400))
    door.identify(token=signed)
    door.write("keys.json", orjson.dumps(key_set(key("EC", "k2"))).decode())
    door.read()
    door.refused(token=signed)


def test_fetched_keys_outlive_a_reload(door):
    async def answer(_address):
        return orjson.dumps(key_set(key()))

    signed = token(claims())
    door.by = Authentication(jwt=Jwt(JWT.issuer, JWT.audience, "https://id.example/keys"))
    fetch, door.fetch = door.fetch, answer
    door.read()
    door.identify(token=signed)
    door.fetch = fetch
    door.read()
    assert door.identify(token=token(claims(more="x"))).name == "ann"


def test_who_was_let_in_is_found_again_however_many_are_at_his_address(tmp_path):
    door = Door(tmp_path, per_second=1)
    again = door.authenticator.identify_again
    for at in range(5):
        shown = Credentials(token=token(claims(jti=str(at))))
        assert asyncio.run(again(shown)).name == "ann"
    with pytest.raises(Unauthenticated):
        asyncio.run(again(Credentials(token="other")))


def test_who_goes_on_showing_what_has_expired_keeps_nobody_waiting(tmp_path):
    door = Door(tmp_path, per_second=20)
    door.write("tokens", f"feed {sum_of('t0ken')} 2000-01-01T00:00:00Z\n")
    door.read()
    door.refused(user="ann", password="guess")
    for _ in range(10):
        door.refused(token="t0ken")
    assert door.identify(user="ann", password="s3cret").name == "ann"


def test_a_token_of_another_audience_is_not_known_by_the_one_before(door):
    signed = token(claims())
    door.identify(token=signed)
    door.by = Authentication(jwt=Jwt(JWT.issuer, "other", door.by.jwt.keys))
    door.read()
    door.refused(token=signed)


def test_attempts_are_counted_by_address_and_those_who_are_known_are_none(tmp_path):
    door = Door(tmp_path, per_second=20)
    door.identify(user="ann", password="s3cret")
    for _ in range(4):
        door.refused(user="ann", password="guess")
    with pytest.raises(TooManyLogons) as refused:
        door.identify(user="ann", password="s3cre", address="a")
    assert refused.value.wait_us > 0
    assert refused.value.status == 429
    assert door.identify(user="ann", password="s3cret").name == "ann"
    assert door.identify(token="t0ken").name == "feed"
    assert "not good" in door.refused(user="ann", password="guess", address="b")
    door.read()
    with pytest.raises(TooManyLogons):
        door.identify(user="ann", password="guess", address="a")


def test_who_goes_away_before_he_is_sent_has_failed(tmp_path):
    door = Door(tmp_path, per_second=20)

    async def never(*_):
        await asyncio.sleep(0)
        return False

    door.beside = never
    door.read()

    async def leave():
        for at in range(5):
            one = door.authenticator.identify(Credentials("ann", f"guess {at}"), "a")
            trying = asyncio.create_task(one)
            await asyncio.sleep(0)
            trying.cancel()
            await asyncio.wait([trying])
        return trying.exception()

    assert isinstance(asyncio.run(leave()), TooManyLogons)


def test_so_many_wait_for_a_thread_and_no_more(door, monkeypatch):
    monkeypatch.setattr(session_cache, "WAITING_MAX", 1)
    running, most = 0, 0

    async def slow(*_):
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1
        return True

    door.beside = slow
    door.read()

    async def all_at_once():
        tries = (door.authenticator.identify(Credentials(f"u{at}", "x"), "a") for at in range(5))
        return await asyncio.gather(*tries, return_exceptions=True)

    found = asyncio.run(all_at_once())
    assert most == session_cache.HASHED_AT_ONCE
    assert [isinstance(one, TooManyLogons) for one in found] == [False] * 3 + [True] * 2


def test_hashing_happens_in_a_thread():
    here = threading.get_ident()
    found = asyncio.run(authenticator.in_thread(lambda: threading.get_ident() != here))
    assert found is True
