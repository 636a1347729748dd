"""Who may be connected, and who is counted for whose address."""

from dataclasses import replace

from sow.core.definitions import Configuration, Limits
from sow.core.security_definitions import Security
from sow.server.http.connection_limits import PER_ADDRESS, ConnectionLimiter


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
