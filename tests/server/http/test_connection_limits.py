"""Connections are counted, an idle one is closed, and bytes extend a deadline."""

from dataclasses import replace

from sow.core.definitions import Configuration, Limits
from sow.core.security_definitions import Security
from sow.server.http.connection_limits import (
    BYTES_PER_S_MIN,
    PER_ADDRESS,
    ConnectionLimiter,
    IdleTimer,
    MinRateDeadline,
)


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
