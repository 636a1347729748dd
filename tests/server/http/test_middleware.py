"""The middleware: Host, Origin and the client's address of each request."""

import asyncio
from threading import Event
from types import SimpleNamespace

from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from sow.core.definitions import Configuration
from sow.core.security_definitions import Security
from sow.server.http.middleware import Proxies, RequestMiddleware, client_address
from tests.cases import all_cases

PROXIES = Proxies(["192.0.2.10/32", "10.0.0.0/8", "2001:db8::/32"])

CASES = [
    # A client that comes by itself is believed nothing.
    ("198.51.100.7", [], "198.51.100.7"),
    ("198.51.100.7", ["127.0.0.1"], "198.51.100.7"),
    # One proxy, several, and an address that the client made up before them.
    ("192.0.2.10", ["198.51.100.7"], "198.51.100.7"),
    ("192.0.2.10", ["198.51.100.7, 10.1.2.3"], "198.51.100.7"),
    ("192.0.2.10", ["1.1.1.1, 198.51.100.7, 10.1.2.3"], "198.51.100.7"),
    ("192.0.2.10", ["1.1.1.1", "198.51.100.7", "10.1.2.3"], "198.51.100.7"),
    # As some proxies write it.
    ("192.0.2.10", ["198.51.100.7:4711"], "198.51.100.7"),
    ("192.0.2.10", ["[2001:db9::7]:4711"], "2001:db9::7"),
    ("192.0.2.10", ["2001:db9::7"], "2001:db9::7"),
    ("::ffff:192.0.2.10", ["198.51.100.7"], "198.51.100.7"),
    ("2001:db8::1", ["198.51.100.7"], "198.51.100.7"),
    # What cannot be read is not guessed: whoever wrote it stands for it.
    ("192.0.2.10", [], "192.0.2.10"),
    ("192.0.2.10", [""], "192.0.2.10"),
    ("192.0.2.10", ["unknown"], "192.0.2.10"),
    ("192.0.2.10", ["198.51.100.7, _hidden, 10.0.0.1"], "10.0.0.1"),
    ("192.0.2.10", ["localhost"], "192.0.2.10"),
    ("192.0.2.10", ["10.0.0.1, 10.0.0.2"], "10.0.0.1"),
    ("", ["198.51.100.7"], ""),
]


@all_cases(("peer", "forwarded_for", "client"), CASES)
def test_the_client_is_who_trusted_proxies_say(peer, forwarded_for, client):
    assert PROXIES.client(peer, forwarded_for) == client


def test_without_trusted_proxies_nobody_is_believed():
    assert Proxies([]).client("127.0.0.1", ["198.51.100.7"]) == "127.0.0.1"
    assert not Proxies([]).trusts("127.0.0.1")


PROXIED = Configuration("test", security=Security(trusted_proxies=("192.0.2.10/32",)))


def ask(gate, peer, **headers):
    """Whose request the gate says it is."""
    transport = SimpleNamespace(
        get_extra_info=lambda name, _default=None: peer, is_closing=lambda: False
    )
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    request = make_mocked_request("GET", "/", {"Host": "box"} | named, transport=transport)

    async def handler(request):
        return web.Response(text=client_address(request))

    return asyncio.run(gate.check(request, handler)).text


def opened(configuration, names=lambda: ["box"]):
    gate = RequestMiddleware(lambda: configuration, names)
    gate.open()
    return gate


def test_a_request_is_its_peers_or_whose_a_trusted_peer_says():
    gate = opened(PROXIED)
    said = {"X_Forwarded_For": "198.51.100.7"}
    assert ask(gate, ("192.0.2.10", 4711), **said) == "198.51.100.7"
    assert ask(gate, ("192.0.2.11", 4711), **said) == "192.0.2.11"
    assert ask(gate, ("::ffff:192.0.2.10", 4711, 0, 0), **said) == "198.51.100.7"
    assert ask(opened(Configuration("test")), ("127.0.0.1", 1), **said) == "127.0.0.1"


def test_a_peer_that_has_gone_is_nobody():
    assert ask(opened(PROXIED), None) == ""


def test_a_slow_resolver_holds_nobody_up():
    found = Event()

    def names():
        yield "box"
        found.wait()
        yield "Late.Corp."
        yield "no host at all"

    gate = opened(PROXIED, names)
    assert ask(gate, ("192.0.2.11", 1)) == "192.0.2.11"
    found.set()
    gate.names_are_known.wait()
    assert gate.machine == {"box", "late.corp"}
