"""Hosts and origins have one spelling each, and what is ambiguous is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.addresses import (
    Authority,
    Origin,
    is_loopback,
    parse_authority,
    parse_host,
    parse_origin,
    target_authorities,
)
from tests.cases import all_cases

AUTHORITIES = {
    "localhost": ("localhost", None),
    "LocalHost:8080": ("localhost", 8080),
    "localhost.": ("localhost.", None),
    "localhost.:8080": ("localhost.", 8080),
    "localhost:": ("localhost", None),
    "127.0.0.1:8080": ("127.0.0.1", 8080),
    "[::1]": ("::1", None),
    "[::1]:8080": ("::1", 8080),
    "[0:0:0:0:0:0:0:1]:8080": ("::1", 8080),
    "[::ffff:127.0.0.1]:80": ("127.0.0.1", 80),
    "[fe80::1%25eth0]:80": ("fe80::1", 80),
    "[FE80::A]": ("fe80::a", None),
    "sow.example": ("sow.example", None),
    "my_service-1:80": ("my_service-1", 80),
    "xn--bcher-kva.example": ("xn--bcher-kva.example", None),
    "0.0.0.0:80": ("0.0.0.0", 80),
}

NO_AUTHORITIES = [
    "",
    ":8080",
    ".",
    "localhost..",
    ".localhost",
    "a..b",
    "localhost:port",
    "localhost:99999",
    "localhost:8080:8080",
    "localhost:-1",
    "localhost:8080/",
    "localhost/evil",
    "localhost?",
    "localhost#",
    "localhost\\evil",
    "localhost, evil.example",
    "localhost evil.example",
    " localhost",
    "localhost ",
    "localhost\x00",
    "localhost\t:80",
    "user@localhost",
    "localhost@evil.example",
    "user:secret@localhost:80",
    "lоcalhost",  # the o is Cyrillic
    "bücher.example",
    "%6cocalhost",
    "2130706433",  # what some resolvers take for 127.0.0.1
    "0x7f000001",
    "0x7f.1",
    "017700000001",
    "127.1",
    "127.0.0.01",
    "127.0.0.1.",
    "127.0.0.256",
    "example.0x7f",
    "::1",
    "::1:8080",
    "[::1",
    "::1]",
    "[::1]8080",
    "[127.0.0.1]:80",
    "[localhost]:80",
    "[[::1]]",
    "http://localhost:8080",
    "a" * 64 + ".example",
    "a." * 127 + "example",
    "１２７.0.0.1",
    "localhost:８０８０",
]


@all_cases("text", AUTHORITIES)
def test_an_authority_has_one_spelling(text):
    assert parse_authority(text) == Authority(*AUTHORITIES[text])


@all_cases("text", NO_AUTHORITIES)
def test_what_is_ambiguous_is_no_authority(text):
    assert parse_authority(text) is None


def test_a_dot_at_the_end_is_the_same_host_and_another_origin():
    for parse, text in ((parse_authority, "h.example"), (parse_origin, "https://h.example")):
        plain, dotted = parse(text), parse(f"{text}.")
        assert plain.host == dotted.host == "h.example"
        assert plain != dotted


@all_cases(
    ("target", "authorities"),
    [
        ("/v1/topics", []),
        ("//evil.example/v1/topics", []),
        ("/v1?at=http://evil.example/", []),
        ("*", []),
        ("evil.example:80", []),
        ("http://evil.example/v1/topics", ["evil.example"]),
        ("HTTP://evil.example:80?x", ["evil.example:80"]),
        ("ftp://localhost@evil.example#x", ["localhost@evil.example"]),
        ("http://[::1]:80/://localhost/", ["[::1]:80"]),
        ("http:///v1/topics", [""]),
        ("://evil.example/", ["evil.example"]),
    ],
)
def test_a_target_that_is_an_absolute_address_names_a_host(target, authorities):
    assert target_authorities(target) == authorities


@given(st.text(max_size=40))
def test_any_text_is_an_authority_or_none_and_its_spelling_is_stable(text):
    found = parse_authority(text)
    if found is not None:
        assert parse_host(found.host) == found.host
        assert text.isascii()


@pytest.mark.parametrize(
    ("text", "origin", "shown"),
    [
        ("http://localhost", ("http", "localhost", 80), "http://localhost"),
        ("http://localhost:80", ("http", "localhost", 80), "http://localhost"),
        ("HTTPS://Desk.Example:443", ("https", "desk.example", 443), "https://desk.example"),
        ("https://desk.example.", ("https", "desk.example.", 443), None),
        ("https://desk.example:8443", ("https", "desk.example", 8443), "https://desk.example:8443"),
        ("http://[::1]:8080", ("http", "::1", 8080), "http://[::1]:8080"),
        ("http://h:0", ("http", "h", 0), "http://h:0"),
        ("chrome-extension://abcdef", ("chrome-extension", "abcdef", None), None),
    ],
)
def test_an_origin_has_one_spelling(text, origin, shown):
    assert parse_origin(text) == Origin(*origin)
    assert str(parse_origin(text)) == (shown or text)
    assert parse_origin(str(parse_origin(text))) == Origin(*origin)


@all_cases(
    "text",
    [
        "null",
        "",
        "*",
        "localhost:8080",
        "//localhost",
        "http://",
        "http://localhost/",
        "http://localhost/page",
        "http://user@localhost",
        "http://localhost@evil.example",
        "http://a http://b",
        "http://a,http://b",
        "http://a\thttp://b",
        "http://localhost?",
        "http://localhost#",
        "http:// localhost",
        "file://",
    ],
)
def test_what_is_no_origin(text):
    assert parse_origin(text) is None


def test_loopback_is_what_only_this_machine_reaches():
    inside = ["127.0.0.1", "127.255.0.9", "::1", "localhost", "LOCALHOST.", "::ffff:127.0.0.1"]
    outside = ["0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "::2", "sow.example", "localhost.example"]
    assert [is_loopback(host) for host in inside] == [True] * len(inside)
    assert [is_loopback(host) for host in outside] == [False] * len(outside)
