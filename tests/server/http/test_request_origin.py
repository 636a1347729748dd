"""Host, Origin and the client's address of each request."""

import asyncio
from threading import Event
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from sow.core.definitions import Configuration
from sow.core.security_definitions import Security
from sow.errors import ClientError
from sow.server.http.request_origin import (
    OriginPolicy,
    RequestMiddleware,
    RequestOrigin,
    client_address,
)
from tests.cases import all_cases

MACHINE = frozenset({"box", "box.corp.example"})
RULE = OriginPolicy(
    Security(
        allowed_hosts=("sow.example",),
        allowed_origins=("https://desk.example", "http://tools.example:8000"),
    ),
    listen="named.example",
)
BARE = OriginPolicy(Security(), listen="127.0.0.1")


def verdict(rule, **requested):
    """421, 403, the listed origin, or None where a request is let in as any other."""
    requested.setdefault("hosts", ["localhost:8080"])
    try:
        return rule.admit(RequestOrigin(**requested), MACHINE)
    except ClientError as error:
        return error.status


GOOD_HOSTS = [
    "localhost",
    "localhost:8080",
    "localhost:9000",  # a mapped port, or a tunnel's
    "LOCALHOST.:9000",
    "127.0.0.1:8080",
    "[::1]:8080",
    "192.0.2.7:8080",
    "[2001:db8::7]:8080",
    "box:8080",
    "BOX.corp.example",
    "sow.example",
    "sow.example:443",
    "named.example:8080",
    "desk.example",
    "tools.example:8080",
]
BAD_HOSTS = [
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "evil.localhost",
    "127.0.0.1.evil.example",
    "sow.example.evil.example",
    "xsow.example",
    "example",
    "box.other.example",
    "user@localhost",
    "localhost@evil.example",
    "evil.example#localhost",
    "2130706433",
    "0x7f.0.0.1",
    "127.1:8080",
    "",
    "localhost, evil.example",
]


@all_cases("host", GOOD_HOSTS)
def test_a_name_of_this_server_is_good_whatever_the_port(host):
    assert verdict(RULE, hosts=[host]) is None


@all_cases("host", BAD_HOSTS)
def test_any_other_name_is_misdirected(host):
    assert verdict(RULE, hosts=[host]) == 421
    assert verdict(RULE, hosts=[host], method="OPTIONS", path="/nowhere") == 421
    # The page's own origin does not help: that is what DNS rebinding looks like.
    assert verdict(RULE, hosts=[host], origins=[f"http://{host}"]) == 421
    assert verdict(RULE, hosts=[host], origins=["https://desk.example"]) == 421


@all_cases("host", BAD_HOSTS)
def test_the_host_of_an_absolute_address_counts_beside_the_header(host):
    assert verdict(RULE, targets=[host]) == 421
    assert verdict(RULE, targets=["localhost:8080"], hosts=[host]) == 421
    assert verdict(RULE, targets=["localhost:8080"]) is None
    assert verdict(RULE, targets=[host], hosts=[], host_is_optional=True) == 421


def test_one_host_is_named_and_only_old_clients_name_none():
    assert verdict(RULE, hosts=["localhost", "localhost"]) == 421
    assert verdict(RULE, hosts=["localhost", "evil.example"]) == 421
    assert verdict(RULE, hosts=[]) == 421
    assert verdict(RULE, hosts=[], host_is_optional=True) is None
    assert verdict(RULE, hosts=[], host_is_optional=True, origins=["http://localhost"]) == 403
    assert verdict(RULE, hosts=["evil.example"], host_is_optional=True) == 421


OWN = [
    ("localhost:8080", "http://localhost:8080"),
    ("localhost:8080", "HTTP://LocalHost:8080"),
    ("localhost", "http://localhost"),
    ("localhost:80", "http://localhost"),
    ("localhost", "http://localhost:80"),
    ("[::1]:8080", "http://[::1]:8080"),
    ("192.0.2.7:8080", "http://192.0.2.7:8080"),
    # A proxy that ends TLS and passes Host on.
    ("sow.example", "https://sow.example"),
    ("sow.example:443", "https://sow.example"),
    ("localhost.:8080", "http://localhost.:8080"),
]
FOREIGN = [
    ("localhost:8080", "http://localhost:3000"),
    ("localhost:8080", "http://localhost"),
    ("localhost", "http://localhost:8080"),
    ("localhost:8080", "http://127.0.0.1:8080"),
    ("localhost:8080", "http://evil.example"),
    ("localhost:8080", "http://evil.example:8080"),
    ("localhost:8080", "http://localhost.evil.example:8080"),
    ("localhost:8080", "http://localhost:8080@evil.example"),
    ("localhost:8080", "http://localhost:8080/"),
    ("localhost:8080", "ftp://localhost:8080"),
    ("localhost:8080", "file://"),
    ("localhost:8080", "null"),
    ("localhost:8080", ""),
    ("localhost:8080", "*"),
    ("localhost:8080", "http://localhost:8080 http://evil.example"),
    ("localhost:8080", "https://desk.example:444"),
    ("localhost:8080", "http://desk.example"),
    ("localhost:8080", "https://sub.desk.example"),
    ("localhost:8080", "https://sow.example"),
    ("localhost:8080", "https://desk.example."),
    ("localhost:8080", "http://tools.example.:8000"),
    ("localhost:8080", "http://localhost.:8080"),
    ("localhost.:8080", "http://localhost:8080"),
]


@all_cases(("host", "origin"), OWN)
def test_a_page_of_the_server_itself_may_do_all(host, origin):
    for site in ("", "same-origin"):
        assert verdict(RULE, hosts=[host], origins=[origin], fetch_site=site) is None


@all_cases(("host", "origin"), FOREIGN)
def test_a_page_of_another_site_may_not_even_ask(host, origin):
    for method in ("GET", "POST", "OPTIONS", "DELETE"):
        assert verdict(RULE, hosts=[host], origins=[origin], method=method) == 403


@pytest.mark.parametrize("origin", ["https://desk.example", "http://tools.example:8000"])
def test_a_listed_page_may_and_is_sent_so(origin):
    assert verdict(RULE, origins=[origin], fetch_site="cross-site") == origin
    assert verdict(BARE, origins=[origin]) == 403


def test_origins_are_one_or_none():
    assert verdict(RULE, origins=["https://desk.example", "https://desk.example"]) == 403
    assert verdict(RULE, origins=["http://localhost:8080", "http://evil.example"]) == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_request_from_elsewhere_that_does_not_say_from_where_is_refused(site):
    across = {"fetch_site": site}
    assert verdict(RULE, **across) == 403
    assert verdict(RULE, **across, fetch_mode="no-cors") == 403
    assert verdict(RULE, **across, path="/v1/topics", fetch_mode="navigate") == 403
    assert verdict(RULE, **across, path="/", fetch_mode="navigate") is None
    own = verdict(RULE, **across, origins=["http://localhost:8080"])
    assert own == (403 if site == "cross-site" else None)


def test_a_request_of_a_page_of_ones_own_and_of_no_page_comes_in():
    for site in ("same-origin", "none", ""):
        assert verdict(RULE, fetch_site=site) is None


def test_a_link_on_another_site_may_open_the_console_and_nothing_else():
    link = {"fetch_site": "cross-site", "fetch_mode": "navigate", "path": "/"}
    assert verdict(RULE, **link, fetch_dest="document") is None
    assert verdict(RULE, **link) is None
    assert verdict(RULE, **link, fetch_dest="iframe") == 403
    assert verdict(RULE, **link, method="POST") == 403
    assert verdict(RULE, **link, hosts=["evil.example"]) == 421
    assert verdict(RULE, **link | {"path": "/metrics"}) == 403


def test_a_proxy_that_is_believed_says_what_the_browser_called():
    behind = {"hosts": ["127.0.0.1:8080"], "forwarded_hosts": ["sow.example"]}
    assert verdict(RULE, **behind) is None
    assert verdict(RULE, **behind, origins=["https://sow.example"]) is None
    assert verdict(RULE, **behind, origins=["https://other.example"]) == 403
    chain = {"hosts": ["127.0.0.1:8080"], "forwarded_hosts": ["sow.example, localhost", "box"]}
    assert verdict(RULE, **chain) is None


def test_what_a_proxy_says_never_makes_a_bad_host_good():
    assert verdict(RULE, hosts=["evil.example"], forwarded_hosts=["localhost"]) == 421
    assert verdict(RULE, hosts=["127.0.0.1"], forwarded_hosts=["evil.example"]) == 421
    assert verdict(RULE, hosts=["127.0.0.1"], forwarded_hosts=["localhost, evil.example"]) == 421
    assert verdict(RULE, hosts=["127.0.0.1"], forwarded_hosts=[""]) == 421


@pytest.mark.parametrize(
    ("requested", "sentence"),
    [
        ({"hosts": ["evil.example:80"]}, "<AllowedHosts>evil.example</AllowedHosts>"),
        ({"origins": ["http://a.example:80"]}, "<AllowedOrigins>http://a.example</AllowedOrigins>"),
        ({"origins": ["null"]}, "serve the page from an address"),
        ({"fetch_site": "cross-site"}, "<AllowedOrigins>"),
        ({"hosts": []}, "no Host header"),
        ({"hosts": ["a/b"]}, "localhost:8080"),
    ],
)
def test_a_refusal_says_what_to_write(requested, sentence):
    with pytest.raises(ClientError) as caught:
        BARE.admit(RequestOrigin(**{"hosts": ["localhost"]} | requested), MACHINE)
    assert sentence in caught.value.detail


@pytest.mark.parametrize("text", ["x" * 5000, "é" * 5000, "http://" + "x" * 5000, "\x00" * 99])
def test_a_refusal_repeats_little_of_what_was_sent(text):
    for requested in ({"hosts": [text]}, {"hosts": ["localhost"], "origins": [text]}):
        with pytest.raises(ClientError) as caught:
            BARE.admit(RequestOrigin(**requested), MACHINE)
        assert len(caught.value.detail) < 600
        assert caught.value.detail.isascii() or "…" in caught.value.detail


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
