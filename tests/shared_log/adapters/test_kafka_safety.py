"""Settings of Kafka that lose what was answered are found, and others are not."""

import pytest

from sow.shared_log.adapters import kafka

THREE = {"min.insync.replicas": "2", "flush.messages": "9223372036854775807"}
SAFE = {**kafka.KEEPS_ALL, **THREE, "max.message.bytes": str(kafka.BATCH_BYTES_MAX)}


def found(replicas=3, partitions=1, brokers=3, **settings):
    changed = {name.replace("_", "."): value for name, value in settings.items()}
    return kafka.topic_findings("sow", {**SAFE, **changed}, replicas, partitions, brokers)


def test_a_topic_of_three_replicas_that_keeps_all_is_safe():
    assert found() == []
    assert found(replicas=4, brokers=5) == []


@pytest.mark.parametrize("brokers", [1, 2, 3, 7])
def test_a_topic_that_is_made_is_safe(brokers):
    settings = {**SAFE, "flush.messages": "9", **kafka.safe_settings(brokers)}
    replicas = kafka.replicas_of(brokers)
    assert kafka.topic_findings("sow", settings, replicas, 1, brokers) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min.insync.replicas", "1"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1073741824"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("unclean.leader.election.enable", "true"),
        ("max.message.bytes", "1048588"),
    ],
)
def test_a_setting_that_loses_is_named_with_what_to_write(name, value):
    (one,) = kafka.topic_findings("sow", {**SAFE, name: value}, 3, 1, 3)
    assert f"{name} {value}" in one
    assert f"--add-config {name}=" in one


def test_a_broker_alone_has_to_flush():
    (one,) = found(replicas=1, brokers=1)
    assert "--add-config flush.messages=1" in one
    assert found(replicas=1, brokers=1, flush_messages="1") == []


def test_few_replicas_and_many_partitions_are_findings():
    (few,) = found(replicas=2)
    assert "2 replicas over 3 brokers" in few
    (many,) = found(partitions=4)
    assert "4 partitions" in many


def test_what_cannot_be_read_is_a_finding():
    (one,) = kafka.topic_findings("sow", {}, 3, 1, 3)
    assert "does not say" in one
    assert "min.insync.replicas" in one
