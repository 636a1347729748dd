"""Settings of NATS that lose what was answered are found, and others are not."""

import pytest

from sow.shared_log.adapters import nats_safety as safety

SAFE = {"version": "2.15.1", "jetstream": {"config": {"sync_always": True}}}
STREAM = {
    **safety.KEEPS_ALL,
    **safety.SETTINGS,
    "num_replicas": 3,
    "subjects": ["sow.log"],
}


def test_a_server_that_waits_for_its_disk_is_safe():
    assert safety.server_findings("nats://a:4222", SAFE) == []


@pytest.mark.parametrize(
    ("varz", "write"),
    [
        ({}, "sync_interval: always"),
        ({"jetstream": {}}, "without JetStream"),
        ({"jetstream": {"config": {"sync_interval": 120_000_000_000}}}, "sync_interval: always"),
        ({"jetstream": {"config": {"sync_always": False}}}, "sync_interval: always"),
        # Debian's NATS 2.9 does not say it, because it cannot do it.
        ({"version": "2.9.10", "jetstream": {"config": {"max_memory": 1}}}, "NATS 2.9.10"),
    ],
)
def test_any_other_server_is_named_with_what_to_write(varz, write):
    (found,) = safety.server_findings("nats://a:4222", varz)
    assert write in found
    assert "nats://a:4222" in found


def test_settings_that_cannot_be_read_are_a_finding():
    found = safety.unread_finding("nats://a:4222", "http://a:8222", "refused")
    assert "nats://a:4222 cannot be read at http://a:8222/varz (refused)" in found
    assert "<Monitor>" in found


@pytest.mark.parametrize(
    ("replicas", "servers", "is_safe"),
    [(1, 1, True), (2, 2, True), (1, 3, False), (2, 3, False), (3, 3, True), (3, 5, True)],
)
def test_replicas_are_three_where_there_are_three_servers(replicas, servers, is_safe):
    assert (safety.replicas_finding(replicas, servers) == []) == is_safe


def test_a_stream_as_it_is_made_is_safe():
    assert safety.stream_findings("sow", STREAM, "sow.log", 3) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_replicas", 1),
        ("persist_mode", "async"),
        ("subjects", ["sow.log", "other"]),
        ("subject_transform", {"src": "a", "dest": "b"}),
        ("max_msgs", 1000),
        ("max_bytes", 1000),
        ("max_age", 1000),
        ("max_msgs_per_subject", 1),
        ("retention", "interest"),
        ("storage", "memory"),
        ("sealed", True),
        ("no_ack", True),
        ("max_msg_size", 1000),
        ("max_consumers", 1),
        ("allow_rollup_hdrs", True),
        ("sources", [{"name": "other"}]),
    ],
)
def test_a_stream_that_loses_entries_says_by_which_setting(name, value):
    (found,) = safety.stream_findings("sow", {**STREAM, name: value}, "sow.log", 3)
    assert found.startswith("the stream sow ")
    called = {"num_replicas": "replicas"} | dict.fromkeys(
        ("subject_transform", "subjects", "sources"), "takes"
    )
    assert called.get(name, name) in found


def test_replicas_stand_on_servers_whose_settings_are_known():
    cluster = {"leader": "n1", "replicas": [{"name": "n2"}, {"name": "n3"}]}
    assert safety.placement_findings("sow", cluster, {"n1", "n2", "n3"}) == []
    (found,) = safety.placement_findings("sow", cluster, {"n1", "n2"})
    assert "server n3" in found
    assert safety.placement_findings("sow", {}, set()) == []
