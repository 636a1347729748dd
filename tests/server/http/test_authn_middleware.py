"""Who comes is found out once for each request, by the users of the moment."""

import asyncio

import orjson
import pytest
from multidict import CIMultiDict

from sow.core.definitions import AUDIT
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.errors import (
    Busy,
    ClientError,
    ConfigError,
    IssuerAway,
    NotEntitled,
    Unauthenticated,
)
from sow.protocol.commands import Command
from sow.protocol.replies import timestamp
from sow.security.authorization import EVERYTHING
from sow.server.http.authn_middleware import (
    PresentedCredentials,
    credentials_of,
    permissions_of,
)
from sow.sessions.commands.audit import Audit
from tests.laws.harness import ORDERS, SECOND, World
from tests.server.stand_ins import authenticator_of, request_of, run

ROLES = (Role("desk", ("*",), (Allow("orders", read=True),)),)
SECURITY = Security(authentication=Authentication(tokens_file="tokens"), roles=ROLES)


class Tokens:
    """Finds users by tokens that are their names."""

    def __init__(self, *names, before=lambda: None):
        self.names, self.before, self.requested = names, before, []

    async def identify(self, shown, address=""):
        self.requested.append((shown.token, address))
        self.before()
        await asyncio.sleep(0)
        if shown.token not in self.names:
            raise Unauthenticated("not good")
        return User(shown.token)

    async def identify_again(self, shown):
        return await self.identify(shown)


def asking(token=None, app=None):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return request_of(headers=headers, app=app)


def authn(*names):
    return authenticator_of(SECURITY, lambda _by: Tokens(*names))


def test_where_nobody_is_requested_nothing_is_looked_at():
    here, request = authenticator_of(Security(), NotImplemented), asking("anything")
    assert run(here.admit(request, "admin")) is EVERYTHING
    assert permissions_of(request) is EVERYTHING
    assert not here.must_identify(Command("logon", token="x"))


def test_who_is_found_out_stands_with_the_request():
    here, request = authn("ann"), asking("ann")
    assert run(here.admit(request, "read")).user == User("ann")
    assert permissions_of(request).user == User("ann")
    assert credentials_of(request).credentials.token == "ann"
    for refused in (asking(), asking("ben")):
        with pytest.raises(Unauthenticated):
            run(here.admit(refused, "read"))


def test_an_address_that_demands_nothing_knows_no_rights():
    request = asking("ann")
    run(authn("ann").admit(request, "nothing"))
    with pytest.raises(KeyError):
        permissions_of(request)


def test_an_administrator_is_known_where_nobody_has_to_be():
    roles = (*ROLES, Role("all", ("user:ann",), (Allow("", admin=True),)))
    security = Security(authentication=SECURITY.authentication, roles=roles)
    here = authenticator_of(security, lambda _by: Tokens("ann", "ben"))
    requested = [asking("ann"), asking("ben"), asking("wrong"), asking()]
    assert [run(here.may_administer(one)) for one in requested] == [True, False, False, False]
    assert run(authenticator_of(Security(), NotImplemented).may_administer(asking()))
    twice = request_of(headers=[("Authorization", "Bearer ann"), ("Authorization", "Bearer b")])
    assert not run(here.may_administer(twice))


def test_who_was_found_out_while_users_were_read_again_is_found_out_again():
    here = authn()
    first, second = Tokens("ann"), Tokens()
    first.before = lambda: here.swap_security(here.read(SECURITY)._replace(authenticator=second))
    here.swap_security(here.read(SECURITY)._replace(authenticator=first))
    with pytest.raises(Unauthenticated):
        run(here.admit(asking("ann"), "read"))
    assert (len(first.requested), len(second.requested)) == (1, 1)


def test_a_logon_is_noted_for_when_its_turn_comes_and_holds_for_the_users_of_its_time():
    here = authn("ann")
    for token, found in (("ann", User), ("ben", ClientError)):
        command = Command("logon", token=token)
        assert here.must_identify(command)
        run(here.identify(command, "192.0.2.7"))
        assert isinstance(command.identified.user, found)
        assert command.identified.under is here.role_set
        assert "token=" not in repr(command)


class Away:
    """An authenticator that has to ask somebody who does not answer."""

    async def identify(self, shown, address=""):
        raise IssuerAway("try again")

    identify_again = identify


def test_who_cannot_be_found_out_now_is_sent_that_and_is_nobody():
    here, command = (
        authenticator_of(SECURITY, lambda _by: Away()),
        Command("logon", token="ann"),
    )
    run(here.identify(command, "192.0.2.7"))
    assert isinstance(command.identified.user, IssuerAway)
    assert run(here.identify_again(command.identified.shown)) is None


def test_a_logon_that_comes_while_nobody_is_requested_any_more_needs_no_user():
    here, command = authn("ann"), Command("logon", token="ann")
    assert here.must_identify(command)
    here.swap_security(authenticator_of(Security(), NotImplemented).read(Security()))
    run(here.identify(command, "192.0.2.7"))
    assert command.identified is None


def test_the_user_of_a_live_session_is_found_again_or_is_nobody():
    here = authn("ann")
    request = asking("ann")
    run(here.admit(request, "read"))
    shown, later = credentials_of(request), here.read(SECURITY)._replace(authenticator=Tokens())
    assert run(here.identify_again(shown)) == User("ann")
    assert run(here.identify_again(shown, later)) is None
    here.swap_security(later)
    assert run(here.identify_again(shown)) is None
    assert run(here.identify_again(None)) is None
    assert isinstance(credentials_of(request), PresentedCredentials)


def test_who_is_waited_for_may_do_what_he_may_when_he_is_done():
    now_us = 0
    here = authenticator_of(SECURITY, lambda _by: Tokens("ann"), "sow_own", lambda: now_us)
    ann, own = asking("ann"), asking("sow_own")
    run(here.admit(ann, "read"))
    run(here.admit(own, "admin"))
    until = here.role_set.rights(User("ann", expires_us=5))
    here.ensure_still_authorized(until, here.role_set)
    now_us = 5
    with pytest.raises(Unauthenticated):
        here.ensure_still_authorized(until, here.role_set)
    here.swap_security(here.read(SECURITY))
    with pytest.raises(Busy):
        permissions_of(ann)
    assert permissions_of(own) is EVERYTHING


def test_where_nobody_was_and_is_requested_a_reload_breaks_nothing_off():
    here, request = authenticator_of(Security(), lambda _by: Tokens("ann")), asking()
    run(here.admit(request, "read"))
    here.swap_security(here.read(Security()))
    assert permissions_of(request) is EVERYTHING
    here.swap_security(here.read(SECURITY))
    with pytest.raises(Busy):
        permissions_of(request)


def test_users_that_cannot_be_read_change_nothing():
    def refuse(_by):
        raise ConfigError("no such file")

    with pytest.raises(ConfigError):
        authenticator_of(SECURITY, refuse)


def test_who_shows_the_servers_own_token_is_the_server():
    here = authenticator_of(SECURITY, lambda _by: Tokens("ann"), "sow_own")
    assert run(here.admit(asking("sow_own"), "admin")) is EVERYTHING
    for other in ("", "sow_ow", "é"):
        with pytest.raises(ClientError):
            run(here.admit(asking(other), "read"))
    with pytest.raises(ClientError):
        run(authn("ann").admit(asking(""), "read"))


def test_a_token_that_is_no_text_is_nobodys():
    class Request(dict):
        transport = None
        headers = CIMultiDict({"Authorization": "Bearer \udcff"})  # as aiohttp hands on b"\xff"

    here = authenticator_of(SECURITY, lambda _by: Tokens("ann"), "sow_own")
    with pytest.raises(Unauthenticated):
        run(here.authenticate_request(Request()))


def test_a_certificate_goes_with_whoever_may_have_signed_it():
    class Certificates(Tokens):
        async def identify(self, shown, address=""):
            if not shown.certificate:
                raise Unauthenticated("nobody")
            return User(shown.certificate["subject"])

    class Transport:
        is_closing = staticmethod(lambda: False)

        def get_extra_info(self, name):
            return {"peercert": {"subject": "carl"}, "sslcontext": "then"}.get(name)

    class Request(dict):
        transport, headers = Transport(), CIMultiDict()

    good = {"then"}
    here = authenticator_of(
        SECURITY, lambda _by: Certificates(), certificate_trusted=good.__contains__
    )
    rights, shown = run(here.authenticate_request(Request()))
    assert rights.user == run(here.identify_again(shown)) == User("carl")
    good.clear()
    assert run(here.identify_again(shown)) is None
    assert run(here.authenticate_request(Request()))[0].user is None


def test_two_headers_are_refused():
    request = request_of(headers=[("Authorization", "Bearer ann"), ("Authorization", "Bearer b")])
    with pytest.raises(ClientError):
        run(authn("ann").admit(request, "read"))


def test_what_is_demanded_beside_topics_is_looked_at_by_the_route():
    here = authn("ann")
    with pytest.raises(NotEntitled):
        run(here.admit(asking("ann"), "read")).check("admin")


def test_what_is_noted_bears_the_time_of_now_however_long_nothing_was_done():
    world = World(ORDERS, AUDIT)
    here = authn()
    audit = Audit(world.engine)
    now_us = world.now + 3600 * SECOND
    here.follow(world.engine, audit, lambda: now_us)
    here.note_refused(asking("ben"), EVERYTHING, Unauthenticated("not good"))
    table = world.engine.catalog.account(AUDIT).records.table
    (one,) = [orjson.loads(table.bodies[slot]) for slot in table.slots.values()]
    assert one["at"] == timestamp(now_us)
