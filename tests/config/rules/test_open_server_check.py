"""Listening beyond loopback: an error for who checks a file, none for who reads it."""

import pytest

from sow.config import exposed
from sow.core.security_definitions import Authentication, Security


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "LocalHost"])
def test_loopback_is_no_exposure(instance, host):
    loaded = instance(f"<Listen>{host}:8080</Listen>")
    assert loaded.checked == loaded
    assert (loaded.exposure, exposed(host.strip("[]"), Security())) == (None, None)


def test_a_port_alone_means_loopback(instance):
    assert instance("<Listen>8080</Listen>").exposure is None
    assert instance("").exposure is None


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "sow.example", "[2001:db8::1]"])
def test_anything_else_is_an_error_with_its_line(instance, host):
    loaded = instance(f"\n<Listen>{host}:8080</Listen>")
    assert loaded.configuration.host == host.strip("[]")
    assert loaded.errors == ()
    checked = loaded.checked
    assert checked.configuration is None
    (error,) = checked.errors
    assert (error.line, error.element) == (2, "Listen")
    assert host.strip("[]") in error.message
    assert "127.0.0.1" in error.instead
    assert "--insecure" in error.instead


def test_a_file_with_other_errors_says_those(instance):
    loaded = instance("<Listen>0.0.0.0:8080</Listen><Lisstten/>")
    assert [error.element for error in loaded.checked.errors] == ["Lisstten"]


def test_where_users_are_requested_who_they_are_it_is_meant():
    assert exposed("0.0.0.0", Security(authentication=Authentication(tokens_file="t"))) is None
    assert exposed("0.0.0.0", Security()) is not None
