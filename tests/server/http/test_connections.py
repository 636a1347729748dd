"""Encryption: files that can be used, and a sentence for each that cannot.

Connections are counted, an idle one is closed, and bytes extend a deadline.
"""

import ssl
from asyncio.sslproto import SSLProtocol
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from sow.core.definitions import Configuration, Limits
from sow.core.security_definitions import Security, Tls
from sow.errors import ConfigError
from sow.server.http import connections
from sow.server.http.connections import (
    BYTES_PER_S_MIN,
    PER_ADDRESS,
    READ_AT_ONCE_BYTES,
    ConnectionLimiter,
    IdleTimer,
    MinRateDeadline,
    Proxies,
    certificate_trusted,
    server_context,
)
from tests.edge.certificates import authority, certificates


@pytest.fixture
def files(tmp_path):
    return certificates(tmp_path)


def test_a_certificate_and_its_key_make_a_context(files):
    assert server_context(Tls(files.certificate, files.key)).verify_mode == ssl.CERT_NONE


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_nothing_older_than_tls_1_2_is_spoken_whatever_the_system_says(files, monkeypatch):
    """As where Python was built so that OpenSSL's own settings say what is old enough."""

    def lenient(protocol):
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        return context

    monkeypatch.setattr(connections, "ssl", SimpleNamespace(**vars(ssl) | {"SSLContext": lenient}))
    context = server_context(Tls(files.certificate, files.key))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_connection_keeps_no_more_than_a_record_to_be_read(files):
    server_context(Tls(files.certificate, files.key))
    assert SSLProtocol.max_size == READ_AT_ONCE_BYTES


def test_both_may_stand_in_one_file(files, tmp_path):
    both = tmp_path / "both.pem"
    texts = [Path(file).read_text() for file in (files.certificate, files.key)]
    both.write_text("".join(texts))
    server_context(Tls(str(both), str(both)))


ENDS = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)


def test_of_the_certificates_of_a_file_the_one_that_ends_first_counts(tmp_path):
    files = certificates(tmp_path, not_after=ENDS)
    (found,) = connections.certificates(Tls(files.certificate, files.key)).items()
    assert found[0] == files.certificate
    assert (found[1].expires_s, found[1].valid_until) == (ENDS.timestamp(), "2031-05-06 07:08 UTC")
    longer = certificates(tmp_path, not_after=ENDS.replace(year=2041))
    text = Path(longer.certificate).read_text()
    Path(longer.certificate).write_text(text + Path(files.ca).read_text())
    (again,) = connections.certificates(Tls(files.certificate, files.key)).values()
    assert ENDS.timestamp() < again.expires_s


def test_those_by_which_clients_are_trusted_count_and_nobody_has_any_without_tls(files):
    found = connections.certificates(Tls(files.certificate, files.key, client_ca=files.ca))
    assert [*found] == [files.certificate, files.ca]
    assert connections.certificates(None) == {}


def test_what_is_no_certificate_is_left_out_and_a_file_that_is_gone_is_named(files, tmp_path):
    assert connections.certificates(Tls(files.key, files.key)) == {}
    with pytest.raises(ConfigError, match=f"cannot be read: {tmp_path}/gone: no such file"):
        connections.certificates(Tls(str(tmp_path / "gone"), files.key))


def test_a_reload_names_certificates_that_are_others(tmp_path):
    files = certificates(tmp_path)
    named = Tls(files.certificate, files.key)
    before = connections.certificates(named)
    assert connections.renewed(connections.certificates(named), before) == []
    certificates(tmp_path, not_after=ENDS)
    assert connections.renewed(connections.certificates(named), before) == [
        f"certificate {files.certificate} read again, valid until 2031-05-06 07:08 UTC"
    ]


def refusal(certificate, key):
    with pytest.raises(ConfigError) as caught:
        server_context(Tls(str(certificate), str(key)))
    return str(caught.value)


def test_a_file_that_is_not_there_is_named(files, tmp_path):
    missing = tmp_path / "missing.pem"
    assert f"the Certificate of TLS cannot be read: {missing}" in refusal(missing, files.key)
    assert "the PrivateKey of TLS cannot be read" in refusal(files.certificate, missing)
    assert "is a directory" in refusal(tmp_path, files.key)


def test_a_key_of_another_certificate_is_named(files, tmp_path):
    (tmp_path / "other").mkdir()
    other = certificates(tmp_path / "other")
    said = refusal(files.certificate, other.key)
    assert f"{other.key}: the key is not that of the certificate {files.certificate}" in said


def test_what_is_no_certificate_is_named_and_not_shown(files, tmp_path):
    noise = tmp_path / "noise.pem"
    noise.write_text("secret " * 1000)
    for said in (refusal(noise, files.key), refusal(files.certificate, noise)):
        assert "TLS cannot be used" in said
        assert "secret" not in said


@pytest.mark.parametrize("kept", [0, 100])
def test_of_two_files_the_one_that_was_cut_is_named(files, tmp_path, kept):
    cut = tmp_path / "cut.pem"
    cut.write_text(Path(files.certificate).read_text()[:kept])
    said = refusal(cut, files.key)
    assert f"{cut}: it holds no whole certificate in PEM form" in said
    cut.write_text(Path(files.key).read_text()[:kept])
    said = refusal(files.certificate, cut)
    assert f"{cut}: it holds no whole private key in PEM form" in said


def test_a_key_with_a_passphrase_asks_nobody(files, tmp_path):
    from cryptography.hazmat.primitives import serialization as forms

    key = forms.load_pem_private_key(Path(files.key).read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            forms.Encoding.PEM,
            forms.PrivateFormat.PKCS8,
            forms.BestAvailableEncryption(b"open sesame"),
        )
    )
    assert "has a passphrase" in refusal(files.certificate, locked)


def test_a_certificate_is_believed_as_long_as_whoever_may_have_signed_it(files, tmp_path):
    contexts = []
    for names in (("one",), ("one", "two"), ("two",)):
        file = tmp_path / f"{len(contexts)}.pem"
        file.write_bytes(b"".join(authority(name).cert_pem.bytes() for name in names))
        contexts.append(server_context(Tls(files.certificate, files.key, str(file))))
    one, both, two = contexts
    assert certificate_trusted(one, one)
    assert certificate_trusted(both, one)
    assert not certificate_trusted(two, one)
    assert not certificate_trusted(one, both)
    assert not certificate_trusted(None, one)


def crowd(files_max=10**6, proxies=(), **limits):
    configuration = Configuration(
        "test", limits=Limits(**limits), security=Security(trusted_proxies=proxies)
    )
    return ConnectionLimiter(lambda: configuration, files_max)


def test_there_are_so_many_connections_and_no_more():
    world = crowd(connections_max=2)
    assert world.acquire_connection("192.0.2.1") is None
    assert world.acquire_connection("192.0.2.2") is None
    assert "Limits/Connections" in world.acquire_connection("192.0.2.3")
    world.release_connection("192.0.2.1")
    assert world.acquire_connection("192.0.2.3") is None
    assert world.refused["connections"] == 1


def test_files_may_be_fewer_than_wanted():
    world = crowd(files_max=1)
    assert world.connections_max == 1
    assert world.acquire_connection("192.0.2.1") is None
    assert world.acquire_connection("192.0.2.1") is not None


def test_an_address_has_a_thousand_and_loopback_any_number():
    world = crowd()
    for _ in range(PER_ADDRESS):
        assert world.acquire_connection("192.0.2.1") is None
        assert world.acquire_connection("127.0.0.1") is None
        assert world.acquire_connection("::1") is None
    assert "Limits/ConnectionsPerAddress" in world.acquire_connection("192.0.2.1")
    assert world.acquire_connection("192.0.2.2") is None
    assert world.acquire_connection("127.0.0.1") is None


def test_a_number_that_is_given_counts_for_loopback_too():
    world = crowd(connections_per_address_max=1)
    assert world.acquire_connection("127.0.0.1") is None
    assert world.acquire_connection("127.0.0.1") is not None
    world.release_connection("127.0.0.1")
    assert world.acquire_connection("127.0.0.1") is None


def test_a_proxy_is_free_and_whom_it_asks_for_is_counted():
    world = crowd(proxies=("192.0.2.10/32",), connections_per_address_max=2)
    for _ in range(5):
        assert world.acquire_connection("192.0.2.10") is None
    assert world.acquire("198.51.100.7") is None
    assert world.acquire("198.51.100.7") is None
    assert world.acquire("198.51.100.7") is not None
    assert world.connections == 5
    world.release("198.51.100.7")
    assert world.acquire("198.51.100.7") is None


def test_a_lower_limit_counts_from_now_on():
    configuration = [Configuration("test")]
    world = ConnectionLimiter(lambda: configuration[0], 10**6)
    assert world.acquire_connection("192.0.2.1") is None
    configuration[0] = replace(configuration[0], limits=Limits(connections_max=1))
    assert world.acquire_connection("192.0.2.1") is not None


def test_the_silent_are_given_up_after_one_idle_time():
    assert MinRateDeadline(100.0, 60.0).until_s == 160.0


def test_a_slow_line_may_take_as_long_as_its_body_needs():
    patience, now_s = MinRateDeadline(0.0, 60.0), 0.0
    for _ in range(3600):
        now_s += 1
        assert now_s < patience.until_s
        patience.on_bytes(now_s, BYTES_PER_S_MIN)
    assert patience.until_s == now_s + 60


def test_a_byte_now_and_then_does_not_buy_time():
    patience, now_s = MinRateDeadline(0.0, 60.0), 0.0
    while now_s < patience.until_s:
        now_s += 1
        patience.on_bytes(now_s, 1)
    assert now_s == 61


def test_much_at_once_buys_no_more_than_one_idle_time():
    patience = MinRateDeadline(0.0, 60.0)
    patience.on_bytes(1.0, 64 << 20)
    assert patience.until_s == 61.0


LIMITS = Limits(header_timeout_us=10_000_000, idle_timeout_us=60_000_000)


def test_who_says_nothing_is_given_up_after_the_idle_time():
    assert IdleTimer(100.0).due_s(LIMITS) == 160.0


def test_a_header_counts_from_its_first_byte_however_many_follow():
    silence = IdleTimer(0.0)
    for now_s in (55.0, 57.0, 64.0):
        silence.on_bytes(now_s)
    assert silence.due_s(LIMITS) == 65.0


def test_a_whole_header_is_silent_for_as_long_as_who_says_nothing():
    silence = IdleTimer(0.0)
    silence.on_bytes(55.0)
    silence.on_header(60.0)
    assert silence.due_s(LIMITS) == 120.0


def test_a_request_under_way_is_no_silence_and_time_begins_anew_after_it():
    silence = IdleTimer(0.0)
    silence.on_bytes(1.0)
    silence.begin()
    silence.on_bytes(30.0)
    assert silence.due_s(LIMITS) is None
    silence.end(500.0)
    assert silence.due_s(LIMITS) == 560.0
    silence.on_bytes(510.0)
    assert silence.due_s(LIMITS) == 520.0


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
