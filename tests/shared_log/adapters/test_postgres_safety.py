"""Settings of PostgreSQL that lose what was answered are found, and others are not."""

import pytest

from sow.shared_log.adapters import postgres

SAFE = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "synchronous_standby_names": "ANY 1 (a, b)",
}


@pytest.mark.parametrize(
    ("dsn", "hosts"),
    [
        ("postgres://u:p%40@a:5432,b:5433/sow?sslmode=disable", ["a", "b"]),
        ("postgresql://[::1]:5432/sow", ["::1"]),
        ("postgres:///sow?host=a,b", ["a", "b"]),
        ("postgres:///sow", ["localhost"]),
    ],
)
def test_the_hosts_of_an_address(dsn, hosts):
    assert postgres.hosts(dsn) == hosts


@pytest.mark.parametrize("commit", ["on", "remote_apply"])
def test_commits_that_wait_are_safe(commit):
    assert postgres.setting_findings("a:5432", {**SAFE, "synchronous_commit": commit}, 3) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fsync", "off"),
        ("full_page_writes", "off"),
        ("synchronous_commit", "off"),
        ("synchronous_commit", "local"),
        ("synchronous_commit", "remote_write"),
        ("synchronous_standby_names", ""),
        ("synchronous_standby_names", " "),
    ],
)
def test_a_setting_that_loses_is_named_with_what_to_write(name, value):
    (found,) = postgres.setting_findings("a:5432", {**SAFE, name: value}, 3)
    assert name in found
    assert "a:5432" in found
    assert "write" in found


def test_a_server_alone_needs_no_standby():
    assert postgres.setting_findings("a:5432", {**SAFE, "synchronous_standby_names": ""}, 1) == []


def standby(sync_state, address="10.0.0.2", state="streaming"):
    return {
        "application_name": "b",
        "sync_state": sync_state,
        "address": address,
        "state": state,
    }


@pytest.mark.parametrize(
    ("one", "is_safe"),
    [
        (standby("quorum"), True),
        (standby("sync"), True),
        (standby("potential"), True),
        (standby("async"), False),
        (standby("async", state="catchup"), False),
        (standby("async", state="backup"), True),
        # An archive, or a copy for reports: nobody fails over to it.
        (standby("async", address="10.0.0.9"), True),
    ],
)
def test_a_standby_to_fail_over_to_is_one_that_commits_wait_for(one, is_safe):
    found = postgres.standby_findings("a:5432", [one], {"10.0.0.1", "10.0.0.2"})
    assert (found == []) == is_safe
    assert is_safe or "asynchronous standby b" in found[0]


def test_standbys_that_do_not_say_how_they_are_are_a_finding():
    (found,) = postgres.standby_findings("a:5432", [standby(None), standby(None)], set())
    assert "grant pg_read_all_stats" in found


def test_an_unlogged_table_is_a_finding():
    assert postgres.table_findings("sow_log", {"sow_log": "p", "sow_log_end": "p"}) == []
    (found,) = postgres.table_findings("sow_log", {"sow_log": "u", "sow_log_end": "p"})
    assert "alter table sow_log set logged" in found
