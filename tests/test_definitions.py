"""What definitions say by themselves."""

from urllib.parse import urlsplit

import pytest

from sow.definitions import authority


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "fe80::1"])
def test_an_address_is_one_in_a_url(host):
    parts = urlsplit(f"http://{authority(host, 8080)}")
    assert (parts.hostname, parts.port) == (host, 8080)
