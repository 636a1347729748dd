"""What a client trusts, and what it says of a file that it cannot."""

import ssl

import pytest

from sow.client.trust import trusting
from sow.errors import ClientError
from tests.edge.certificates import certificates


def test_without_a_file_the_machine_says_who_is_trusted():
    assert trusting(None) is True


def test_a_file_of_certificates_makes_a_context(tmp_path):
    assert isinstance(trusting(certificates(tmp_path).ca), ssl.SSLContext)


def test_a_file_that_cannot_be_used_is_named(tmp_path):
    noise = tmp_path / "noise.pem"
    noise.write_text("nothing")
    for wrong in (tmp_path / "missing.pem", tmp_path, noise):
        with pytest.raises(ClientError, match=f"ca {wrong} cannot be used"):
            trusting(str(wrong))
