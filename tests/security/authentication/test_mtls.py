"""Certificates of clients."""

import pytest

from sow.core.security_definitions import User
from sow.security.authentication.credentials import user_of


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
