"""The adapter of Kafka, on the brokers that librdkafka brings for tests of clients.

They take idempotent batches, answer and are read, and keep all in memory. They have no admin
interface: how the adapter makes a topic, reads its settings and trims is played here with answers
in Kafka's format.
"""

import asyncio
import secrets

import pytest
from aiokafka.protocol.admin import CreateTopicsResponse_v3, DescribeConfigsResponse_v1
from aiokafka.protocol.metadata import MetadataResponse_v1
from confluent_kafka import Producer

from sow.errors import UnsafeLog
from sow.shared_log.adapters import kafka
from sow.shared_log.adapters.kafka import KafkaLog, KafkaPlace
from tests.ports import free_port
from tests.shared_log import conformance
from tests.shared_log.conformance import check, unanswered

pytestmark = pytest.mark.edge

NEED_ADMIN = {
    conformance.what_is_trimmed_is_gone_or_there_without_a_hole,
    conformance.a_log_that_is_trimmed_whole_goes_on,
}


@pytest.fixture(scope="module")
def brokers():
    return Producer({"test.mock.num.brokers": 3})


class KafkaHarness:
    """A topic of its own."""

    FAULTS = ()

    def __init__(self, brokers):
        self._topic = f"sow-{secrets.token_hex(4)}"
        found = brokers.list_topics(self._topic, timeout=20)  # which makes it
        self._servers = [f"{one.host}:{one.port}" for one in found.brokers.values()]
        self._clients = []

    async def connect(self):
        log = KafkaLog(KafkaPlace(servers=self._servers, topic=self._topic, unsafe=True), 20.0)
        self._clients.append(log)
        return log

    async def reopened(self):
        await self.close()
        return await self.connect()

    async def close(self):
        for log in self._clients:
            log.answer_s = 2.0
            await log.close()
        self._clients.clear()


@pytest.mark.parametrize("case", [one for one in conformance.ALWAYS if one not in NEED_ADMIN])
def test_it_conforms(brokers, case):
    async def play():
        await check(case, KafkaHarness(brokers))

    asyncio.run(play())


class Admin:
    """Kafka's admin interface, with answers in the format of its protocol."""

    def __init__(self, settings, brokers=3, partitions=1, topics=("sow",)):
        self.settings, self.brokers, self.partitions = settings, brokers, partitions
        self.topics = list(topics)
        self.made, self.deleted, self.is_closed = [], [], False

    async def start(self):
        pass

    async def close(self):
        self.is_closed = True

    async def describe_cluster(self):
        return _sent(self._metadata()).to_object()

    async def list_topics(self):
        return list(self.topics)

    async def describe_topics(self, topics):
        return _sent(self._metadata()).to_object()["topics"]

    async def describe_configs(self, resources):
        (resource,) = resources
        entries = [(name, value, False, 1, False, []) for name, value in self.settings.items()]
        answer = DescribeConfigsResponse_v1(0, [(0, None, 2, resource.name, entries)])
        return [_sent(answer)]

    async def create_topics(self, topics):
        self.made += topics
        self.topics += [one.name for one in topics]
        self.settings = {**topics[0].topic_configs}
        return _sent(CreateTopicsResponse_v3(0, [(one.name, 0, None) for one in topics]))

    async def delete_records(self, records):
        self.deleted.append(
            {one.partition: record.before_offset for one, record in records.items()}
        )

    def _metadata(self):
        nodes = list(range(1, self.brokers + 1))
        partitions = [(0, n, 1, nodes, nodes) for n in range(self.partitions)]
        brokers = [(n, "localhost", 9092, None) for n in nodes]
        return MetadataResponse_v1(brokers, 1, [(0, "sow", False, partitions)])


def _sent(answer):
    """What comes out of a response that went over the wire."""
    return type(answer).decode(answer.encode())


def admin_of(monkeypatch, *args, **more):
    admin = Admin(*args, **more)
    monkeypatch.setattr(kafka, "AIOKafkaAdminClient", lambda **_: admin)
    monkeypatch.setattr(KafkaLog, "_end", lambda self, client: None)
    return admin


SAFE = {**kafka.safe_settings(3), "flush.messages": "9223372036854775807"}


def checked():
    asyncio.run(KafkaLog(KafkaPlace(servers=["localhost:9092"]))._check("a check"))


def test_a_topic_that_keeps_all_is_taken(monkeypatch):
    admin = admin_of(monkeypatch, SAFE)
    checked()
    assert admin.made == []


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"min.insync.replicas": "1"}, "min.insync.replicas=2"),
        ({"retention.ms": "1000"}, "retention.ms=-1"),
        ({"unclean.leader.election.enable": "true"}, "unclean.leader.election.enable=false"),
    ],
)
def test_a_topic_that_loses_is_refused(monkeypatch, more, word):
    admin_of(monkeypatch, {**SAFE, **more})
    with pytest.raises(UnsafeLog, match=word):
        checked()


def test_a_topic_of_several_partitions_or_without_settings_is_refused(monkeypatch):
    admin_of(monkeypatch, {}, partitions=2)
    with pytest.raises(UnsafeLog, match=r"2 partitions.*does not say"):
        checked()


def test_a_topic_is_made_if_there_is_none(monkeypatch):
    admin = admin_of(monkeypatch, {}, topics=())
    with pytest.raises(UnsafeLog, match=r"does not say flush\.messages"):
        checked()  # the broker of this test knows only what it was told
    (made,) = admin.made
    assert (made.num_partitions, made.replication_factor) == (1, 3)
    assert made.topic_configs["min.insync.replicas"] == "2"


def test_a_trim_never_goes_beyond_the_end(monkeypatch):
    admin = admin_of(monkeypatch, SAFE)

    async def last(_):
        return 10

    monkeypatch.setattr(KafkaLog, "last", last)

    async def play():
        log = KafkaLog(KafkaPlace(servers=["localhost:9092"]))
        for before in (0, 1, 5, 11, 99):
            await log.trim(before)

    asyncio.run(play())
    assert admin.deleted == [{0: 4}, {0: 10}, {0: 10}]


def test_nobody_there_is_no_answer():
    async def play():
        nobody = free_port()
        log = KafkaLog(KafkaPlace(servers=[f"127.0.0.1:{nobody}"]), 0.5)
        await unanswered(log.append(b"lost"))
        await unanswered(log.last())
        await log.close()

    asyncio.run(play())
