"""What a client shows to a server, and what it says of what cannot be shown."""

import ssl

import pytest

from sow.client.auth import ClientAuth
from sow.errors import ClientError
from tests.edge.certificates import certificates


def test_a_token_and_a_password_travel_in_the_header_of_http():
    assert ClientAuth().headers() == {}
    assert ClientAuth(token="abc.def").headers() == {"Authorization": "Bearer abc.def"}
    given = iter(["first", "second"])
    requested = ClientAuth(token=lambda: next(given))
    assert [requested.headers()["Authorization"] for _ in "ab"] == ["Bearer first", "Bearer second"]
    requested = ClientAuth(user="ann", password="pässword")
    assert requested.headers() == {"Authorization": "Basic YW5uOnDDpHNzd29yZA=="}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"token": "a", "user": "ann"}, "not both"),
        ({"token": "a\nb"}, "copy it again"),
        ({"token": "a b"}, "copy it again"),
        ({"token": ""}, "copy it again"),
        ({"token": lambda: "a b"}, "copy it again"),
        ({"user": "ann"}, "has no password"),
        ({"user": "a:b", "password": ""}, "has a colon"),
    ],
)
def test_what_cannot_be_said_is_refused(given, said):
    with pytest.raises(ClientError, match=said) as caught:
        ClientAuth(**given).headers()
    assert "a b" not in str(caught.value)


def test_no_secret_is_shown():
    shown = repr(ClientAuth(token="secret-1", user="ann", password="secret-2"))
    assert "secret" not in shown


def test_certificates_that_are_trusted_and_those_that_are_shown(tmp_path):
    files = certificates(tmp_path)
    assert ClientAuth().context() is True
    assert isinstance(ClientAuth(ca=files.ca).context(), ssl.SSLContext)
    shown = ClientAuth(ca=files.ca, certificate=files.certificate, key=files.key)
    assert isinstance(shown.context(), ssl.SSLContext)
    with pytest.raises(ClientError, match=r"missing\.pem cannot be used"):
        ClientAuth(ca=str(tmp_path / "missing.pem")).context()
    with pytest.raises(ClientError, match="cannot be used"):
        ClientAuth(certificate=files.ca, key=files.key).context()
