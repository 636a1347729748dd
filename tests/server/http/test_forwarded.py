"""Whose request it is, by what trusted proxies say."""

import pytest

from sow.server.http.forwarded import Proxies

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


@pytest.mark.parametrize(("peer", "forwarded_for", "client"), CASES)
def test_the_client_is_who_trusted_proxies_say(peer, forwarded_for, client):
    assert PROXIES.client(peer, forwarded_for) == client


def test_without_trusted_proxies_nobody_is_believed():
    assert Proxies([]).client("127.0.0.1", ["198.51.100.7"]) == "127.0.0.1"
    assert not Proxies([]).trusts("127.0.0.1")
