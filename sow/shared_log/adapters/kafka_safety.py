"""What of the settings of Kafka loses entries that were answered, in sentences.

A producer that waits for all replicas (`acks=all`, as the adapter does) is answered by those that
are in sync, and that may be the leader alone: `min.insync.replicas` says how many it takes at
least. No disk is waited for, copies on several machines stand in for it; a single broker has to
flush each batch. A topic also deletes by age and by size, unless its settings say that it does not,
and an unclean election makes a replica lead that lacks entries.

These are functions of what was answered to `sow.shared_log.adapters.kafka`.
"""

from collections.abc import Mapping

from sow.shared_log.protocol import BLOCK_BYTES_MAX

REPLICAS_MIN, IN_SYNC_MIN = 3, 2
BATCH_BYTES_MAX = 2 * BLOCK_BYTES_MAX
"""A batch with its envelopes."""
KEEPS_ALL = {
    "cleanup.policy": "delete",  # by command alone, since nothing is ever too old or too much
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
WHY = {
    "cleanup.policy": "entries go, or are refused, since they have no keys",
    "retention.ms": "entries go when they are old",
    "retention.bytes": "the oldest entries go when there are many",
    "unclean.leader.election.enable": "a replica may lead that lacks entries that were answered",
}
IN_SYNC, FLUSH, LARGEST = "min.insync.replicas", "flush.messages", "max.message.bytes"
CHECKED = (*KEEPS_ALL, IN_SYNC, FLUSH, LARGEST)


def replicas_of(brokers: int) -> int:
    """How many replicas a topic gets that is made."""
    return min(brokers, REPLICAS_MIN)


def safe_settings(brokers: int) -> dict[str, str]:
    """The settings of a topic that is made."""
    replicas = replicas_of(brokers)
    settings = {**KEEPS_ALL, LARGEST: str(BATCH_BYTES_MAX)}
    return settings | ({FLUSH: "1"} if replicas == 1 else {IN_SYNC: str(IN_SYNC_MIN)})


def topic_findings(
    topic: str, settings: Mapping[str, str], replicas: int, partitions: int, brokers: int
) -> list[str]:
    """What is unsafe in a topic that is there."""
    found = []
    if partitions != 1:
        found.append(
            f"the topic {topic} has {partitions} partitions, and only one has an order: write "
            "another <Topic>, which is made if there is none"
        )
    if replicas < replicas_of(brokers):
        found.append(
            f"the topic {topic} has {replicas} replicas over {brokers} brokers of Kafka, so a "
            f"machine that dies takes entries with it: give it {replicas_of(brokers)}"
        )
    if unread := [name for name in CHECKED if name not in settings]:
        return [*found, f"Kafka does not say {', '.join(unread)} of the topic {topic}"]
    found += _setting_findings(topic, settings, replicas)
    return found


def _setting_findings(topic: str, settings: Mapping[str, str], replicas: int) -> list[str]:
    wrong = [(name, value, WHY[name]) for name, value in KEEPS_ALL.items()]
    wrong = [one for one in wrong if settings[one[0]] != one[1]]
    if replicas > 1 and int(settings[IN_SYNC]) < IN_SYNC_MIN:
        wrong.append((IN_SYNC, str(IN_SYNC_MIN), "the leader alone answers for all replicas"))
    if replicas == 1 and settings[FLUSH] != "1":
        wrong.append((FLUSH, "1", "its only broker answers before the disk has an entry"))
    if int(settings[LARGEST]) < BATCH_BYTES_MAX:
        wrong.append((LARGEST, str(BATCH_BYTES_MAX), "it refuses the largest entries"))
    return [
        f"the topic {topic} of Kafka has {name} {settings[name]}, so {why}: `kafka-configs.sh "
        f"--alter --entity-type topics --entity-name {topic} --add-config {name}={value}`"
        for name, value, why in wrong
    ]
