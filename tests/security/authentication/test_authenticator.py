"""The one door: credentials in, a user out."""

import asyncio
import threading

import bcrypt
import orjson
import pytest

from sow.core.security_definitions import Authentication, Jwt
from sow.errors import TooManyLogons, Unauthenticated
from sow.security.authentication import authenticator
from sow.security.authentication.authenticator import (
    FREE_FAILURES,
    HASHED_AT_ONCE,
    LONGEST_WAIT_US,
    SIGNED_KNOWN_US,
    Attempts,
    Authenticator,
    Hashing,
    Known,
    Logons,
    network_of,
)
from sow.security.authentication.credentials import Credentials
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
    monkeypatch.setattr(authenticator, "WAITING_MAX", 1)
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
    assert most == HASHED_AT_ONCE
    assert [isinstance(one, TooManyLogons) for one in found] == [False] * 3 + [True] * 2


def test_hashing_happens_in_a_thread():
    here = threading.get_ident()
    found = asyncio.run(authenticator.in_thread(lambda: threading.get_ident() != here))
    assert found is True


def test_so_many_are_known(monkeypatch):
    monkeypatch.setattr(authenticator, "KNOWN_MAX", 2)
    known = Known()
    for at in range(3):
        known.put(known.sum_of(str(at)), at, None)
    assert [known.get(known.sum_of(str(at)), 0) for at in range(3)] == [None, 1, 2]
    assert known.sum_of("a", "bc") != known.sum_of("ab", "c")
    assert known.sum_of("a") != Known().sum_of("a")


def test_what_is_known_for_a_while_is_not_known_after_it():
    known = Known()
    known.put(b"x", "ann", 10)
    assert known.get(b"x", 9) == "ann"
    assert known.get(b"x", 10) is None


def test_attempts_are_bounded_where_it_is_said():
    assert Logons().attempts is None
    assert Logons(lambda: 20).attempts.wait_us("a", 0) == 0


def test_who_goes_away_leaves_no_room_for_more_threads():
    async def all_leave():
        hashing, begun, over = Hashing(), [], asyncio.Event()

        async def thread():
            begun.append(True)
            return await over.wait()

        for _ in range(3 * HASHED_AT_ONCE):
            one = asyncio.create_task(hashing.run("", thread))
            for _ in range(3):
                await asyncio.sleep(0)
            one.cancel()
        last = asyncio.create_task(hashing.run("", thread))
        await asyncio.sleep(0)
        assert len(begun) == HASHED_AT_ONCE
        over.set()
        assert await last
        assert len(begun) == HASHED_AT_ONCE + 1

    asyncio.run(all_leave())


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


class Threads:
    """Threads that end when they are told to; `begun` says whose each was, in their order."""

    def __init__(self):
        self.hashing, self.begun, self.over = Hashing(), [], []

    async def come(self, *addresses):
        """A logon from each address, one after the other."""
        coming = [asyncio.create_task(self._one(address)) for address in addresses]
        await settle()
        return coming

    def _one(self, address):
        async def thread():
            self.begun.append(address)
            over = asyncio.get_running_loop().create_future()
            self.over.append(over)
            return await over

        return self.hashing.run(address, thread)

    async def end(self, count):
        for _ in range(count):
            self.over.pop(0).set_result(True)
            await settle()


GUESSER, OTHER = "192.0.2.7", "192.0.2.8"


def test_addresses_take_turns_however_many_logons_one_of_them_has():
    async def work():
        threads = Threads()
        waiting = await threads.come(*[GUESSER] * 60, OTHER, *[GUESSER] * 3, "192.0.2.9", OTHER)
        await threads.end(5)
        assert threads.begun == [
            *[GUESSER] * HASHED_AT_ONCE, GUESSER, OTHER, "192.0.2.9", GUESSER, OTHER
        ]  # fmt: skip
        while threads.over:
            await threads.end(1)
        assert all(await asyncio.gather(*waiting))
        await threads.come(OTHER, OTHER)
        assert threads.begun[-2:] == [OTHER, OTHER], "and nothing is taken"

    asyncio.run(work())


def test_the_addresses_of_one_network_have_one_turn():
    async def work():
        threads = Threads()
        network = [f"2001:db8:0:1::{host:x}" for host in range(20)]
        await threads.come(*network, "2001:db8:0:2::1", "::ffff:192.0.2.8", OTHER)
        await threads.end(4)
        own, other, mapped, last = threads.begun[HASHED_AT_ONCE:]
        assert own.startswith("2001:db8:0:1:")
        assert [other, mapped] == ["2001:db8:0:2::1", "::ffff:192.0.2.8"]
        assert last.startswith("2001:db8:0:1:")

    asyncio.run(work())


def test_who_fills_the_queue_makes_room_for_another_address(monkeypatch):
    monkeypatch.setattr(authenticator, "WAITING_MAX", 4)

    async def work():
        threads = Threads()
        waiting = await threads.come(*[GUESSER] * (HASHED_AT_ONCE + 4))
        (refused,) = await threads.come(GUESSER)
        with pytest.raises(TooManyLogons):
            await refused
        others = await threads.come(OTHER, OTHER, OTHER)
        for one in (waiting[-1], waiting[-2], others[-1]):
            with pytest.raises(TooManyLogons):
                await one
        await threads.end(6)
        assert threads.begun[HASHED_AT_ONCE:] == [GUESSER, OTHER, GUESSER, OTHER]
        assert await asyncio.gather(*waiting[:-2], *others[:-1]) == [True] * 6

    asyncio.run(work())


def test_who_goes_away_while_he_waits_takes_nobodys_turn():
    async def work():
        threads = Threads()
        waiting = await threads.come(*[GUESSER] * HASHED_AT_ONCE, OTHER, GUESSER, OTHER)
        threads.over.pop(0).set_result(True)
        await asyncio.sleep(0)  # the turn is given, and not begun
        for one in waiting[-3::2]:
            one.cancel()
        await settle()
        assert threads.begun == [*[GUESSER] * HASHED_AT_ONCE, GUESSER]
        await threads.end(2)
        await threads.come(OTHER)
        assert threads.begun[-1] == OTHER

    asyncio.run(work())


def test_there_are_so_many_a_second_and_as_many_at_once():
    tries = Attempts(lambda: 20)
    assert [tries.wait_us("a", 0) for _ in range(20)] == [0] * 20
    wait_us = tries.wait_us("a", 0)
    assert 0 < wait_us <= 50_001
    assert tries.wait_us("b", 0) == 0
    assert tries.wait_us("a", wait_us) == 0
    assert tries.wait_us("a", wait_us) > 0


def test_each_failure_in_a_row_doubles_the_wait():
    tries, now_us, waits = Attempts(lambda: 1_000_000), 0, []
    for _ in range(14):
        wait_us = tries.wait_us("a", now_us)
        waits.append(wait_us)
        now_us += wait_us
        assert wait_us == 0 or tries.wait_us("a", now_us) == 0
        tries.failed("a", now_us)
    assert waits[: FREE_FAILURES + 1] == [0] * (FREE_FAILURES + 1)
    assert waits[FREE_FAILURES + 1 : FREE_FAILURES + 4] == [100_000, 200_000, 400_000]
    assert waits[-1] == LONGEST_WAIT_US
    tries.wait_us("a", now_us + LONGEST_WAIT_US)
    tries.succeeded("a")
    tries.failed("a", now_us + LONGEST_WAIT_US)
    assert tries.wait_us("a", now_us + LONGEST_WAIT_US) == 0


def test_a_clock_that_steps_back_gives_nothing_away():
    tries = Attempts(lambda: 1)
    assert tries.wait_us("a", 10_000_000) == 0
    assert tries.wait_us("a", 5_000_000) > 0
    assert tries.wait_us("a", 5_500_000) > 0


def test_so_many_addresses_are_kept(monkeypatch):
    monkeypatch.setattr(authenticator, "ADDRESSES_KEPT", 2)
    tries = Attempts(lambda: 1)
    for address in "abc":
        assert tries.wait_us(address, 0) == 0
    assert tries.wait_us("c", 0) > 0
    assert tries.wait_us("b", 0) > 0
    assert tries.wait_us("a", 0) == 0, "it came longest ago"
    tries.failed("nobody", 0)
    tries.succeeded("nobody")


def test_who_has_a_network_has_the_attempts_of_one_address():
    here = Attempts(lambda: 2)
    waits = [here.wait_us(f"2001:db8:0:7::{at:x}", 0) for at in range(4)]
    assert [wait > 0 for wait in waits] == [False, False, True, True]
    for other in ("2001:db8:0:8::1", "192.0.2.1", "::ffff:192.0.2.2", "fe80::1", "fe80::2", ""):
        assert here.wait_us(other, 0) == 0
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"


def test_how_many_there_are_may_change_at_any_time():
    most = 1
    tries = Attempts(lambda: most)
    assert tries.wait_us("a", 0) == 0
    assert tries.wait_us("a", 0) > 0
    most = 100
    assert tries.wait_us("a", 10_000) == 0
    assert [tries.wait_us("a", 2_000_000) for _ in range(100)] == [0] * 100
    most = 1
    assert tries.wait_us("a", 3_000_000) == 0
    assert tries.wait_us("a", 3_000_000) > 0, "what was left to it is not"
