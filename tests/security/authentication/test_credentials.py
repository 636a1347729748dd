"""What somebody shows: read from a header, never worded."""

import base64

import pytest

from sow.core.security_definitions import User
from sow.errors import Unauthenticated
from sow.security.authentication.credentials import LONGEST, Credentials, user_of


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        ("", Credentials()),
        ("Bearer abc.def", Credentials(token="abc.def")),
        ("bearer   abc", Credentials(token="abc")),
        (basic("ann:s3cret"), Credentials(user="ann", password="s3cret")),
        (basic("ann:a:b"), Credentials(user="ann", password="a:b")),
        (basic("zoë:"), Credentials(user="zoë")),
    ],
)
def test_a_header_is_read(header, shown):
    assert Credentials.of_header(header) == shown
    assert bool(shown) == bool(header)


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer  ",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        basic("nocolon"),
        "Digest username=ann",
        "Basic é",
        "x" * (LONGEST + 1),
    ],
)
def test_a_header_that_cannot_be_read_is_refused_without_its_text(header):
    with pytest.raises(Unauthenticated) as refused:
        Credentials.of_header(header)
    assert len(header) < 7 or header not in refused.value.detail
    assert len(refused.value.detail) < 200


def test_credentials_are_never_worded():
    shown = Credentials("ann", "s3cret", "t0ken")
    assert "s3cret" not in f"{shown!r}{shown}"
    assert "t0ken" not in f"{shown!r}{shown}"


def subject(*parts):
    return {"subject": tuple(((key, value),) for key, value in parts)}


def test_the_common_name_is_the_user_and_units_are_groups():
    shown = subject(
        ("organizationName", "Bank"),
        ("organizationalUnitName", "desk"),
        ("organizationalUnitName", "risk"),
        ("commonName", "ann"),
    )
    shown["notAfter"] = "Jan  2 00:00:00 1970 GMT"
    expected = User("ann", frozenset({"desk", "risk"}), expires_us=86_400_000_000)
    assert user_of(shown) == expected


@pytest.mark.parametrize(
    "shown",
    [{}, subject(), subject(("commonName", "")), subject(("commonName", "a"), ("commonName", "b"))],
)
def test_without_exactly_one_common_name_it_is_nobody(shown):
    assert user_of(shown) is None
