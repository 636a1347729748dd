"""A shared log in a topic of one partition, of Kafka or what speaks its protocol.

    append    what waits goes in one batch, answered once all replicas in sync have it
    read      a consumer without a group, from a position
    last      the end that replicas in sync have
    trim      records before a position are deleted

Positions are offsets and one more. The library sends a batch again that was not answered; the
producer is idempotent, so the broker stores it once. Behind a failure a producer is never used
again: what it still has on its way may come late, and is void.

Settings that lose what was answered are read by the admin interface and refused, before anything is
appended (`topic_findings`). A producer that waits for all replicas is answered by those that are in
sync, and that may be the leader alone: `min.insync.replicas` says how many it takes at least. No
disk is waited for, copies on several machines stand in for it; a single broker has to flush each
batch. A topic also deletes by age and by size, unless its settings say that it does not, and an
unclean election makes a replica lead that lacks entries.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, TopicAlreadyExistsError, for_code

from sow.core.async_tasks import end_all
from sow.errors import LogTrimmed, LogUnanswered, UnsafeLog
from sow.shared_log import BLOCK_BYTES_MAX, StoredBlock
from sow.shared_log.adapters import Appender

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


T = TypeVar("T")

BATCH_BYTES, BATCH_BLOCKS = BLOCK_BYTES_MAX, 1024
"""What one request appends at most; with its envelopes it stays below `BATCH_BYTES_MAX`."""
PAGE_BLOCKS = 256
"""What a reader gets at a time."""
FAILURES = (KafkaError, OSError, AssertionError, ValueError)
"""What the library raises; an assertion where a topic lacks a partition."""


@dataclass(frozen=True, kw_only=True)
class KafkaPlace:
    """Where a log is; `<Log>` of config.xml. Options are those of aiokafka's clients: TLS, SASL."""

    servers: Sequence[str]
    topic: str = "sow"
    unsafe: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


class KafkaLog:
    """A client of the log at a place; each answer may take `answer_s`."""

    def __init__(self, place: KafkaPlace, answer_s: float = 5.0) -> None:
        self.place = place
        self.answer_s = answer_s
        self._partition = TopicPartition(place.topic, 0)
        self._appender = Appender(self._stored, BATCH_BYTES, BATCH_BLOCKS)
        self._producer: Any = None
        self._reader: Any = None
        self._reading = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()

    async def append(self, block: bytes) -> int:
        """See `SharedLog`."""
        return await self._appender.append(block)

    async def read(self, after: int) -> AsyncGenerator[StoredBlock, None]:
        """See `SharedLog`."""
        what = f"a read from position {after}"
        await self._check(what)
        consumer = await self._consumer(what)
        try:
            consumer.assign([self._partition])
            consumer.seek(self._partition, after)
            while True:
                for stored in await self._page(what, consumer, after):
                    yield stored
                    after = stored.position
        finally:
            self._end(consumer)

    async def last(self) -> int:
        """See `SharedLog`."""
        what = "its newest position"
        ends = await self._query(what, lambda reader: reader.end_offsets([self._partition]))
        return int(ends[self._partition])

    async def trim(self, before: int) -> None:
        """See `SharedLog`."""
        what = "a trim"
        offset = min(before - 1, await self.last())
        if offset <= 0:
            return
        admin = await self._started(what, AIOKafkaAdminClient(**self._options))
        try:
            records = {self._partition: RecordsToDelete(before_offset=offset)}
            await self._answer(what, admin.delete_records(records))
        finally:
            self._end(admin)

    async def close(self) -> None:
        """End the connections; what is on its way may still come."""
        await self._appender.close()
        for one in (self._producer, self._reader):
            if one is not None:
                self._end(one)
        self._producer = self._reader = None
        if self._ending:
            _, late = await asyncio.wait(self._ending, timeout=self.answer_s)
            await end_all(late)

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": list(self.place.servers),
            "client_id": "sow",
            "request_timeout_ms": max(1, round(self.answer_s * 1000)),
            **self.place.options,
        }

    async def _stored(self, blocks: list[bytes]) -> range:
        """Append blocks as one batch; their positions."""
        what = "an append"
        producer = self._producer
        if producer is None:
            await self._check(what)
            producer = self._producer = await self._started(
                what,
                AIOKafkaProducer(
                    acks="all",
                    enable_idempotence=True,
                    max_batch_size=BATCH_BYTES_MAX,
                    max_request_size=BATCH_BYTES_MAX,
                    **self._options,
                ),
            )
        batch = producer.create_batch()
        for block in blocks:
            batch.append(key=None, value=block, timestamp=None)
        batch.close()
        try:
            sent = await self._answer(
                what, producer.send_batch(batch, self.place.topic, partition=0)
            )
            # The library goes on with what it has, so its answer is not cancelled.
            answer = await self._answer(what, asyncio.shield(sent))
            if answer.offset < 0:
                self._unanswered(what, "it has the batch and does not say where")
        except LogUnanswered:
            self._producer = None
            self._end(producer)
            raise
        return range(answer.offset + 1, answer.offset + 1 + len(blocks))

    async def _page(self, what: str, consumer: AIOKafkaConsumer, after: int) -> list[StoredBlock]:
        """What comes next; nothing if it is quiet, and somebody is there."""
        silent_ms = max(1, round(self.answer_s * 500))
        try:
            found = await self._answer(
                what, consumer.getmany(timeout_ms=silent_ms, max_records=PAGE_BLOCKS)
            )
        except OffsetOutOfRangeError as error:
            await self._check_trimmed(what, consumer, after)
            self._unanswered(what, error)
        if not found:
            await self._check_trimmed(what, consumer, after)
        records = found.get(self._partition, ())
        return [StoredBlock(record.offset + 1, record.value or b"") for record in records]

    async def _check_trimmed(self, what: str, consumer: AIOKafkaConsumer, after: int) -> None:
        """Raise LogTrimmed where what follows is gone, and LogUnanswered where nobody says so."""
        begins = await self._answer(what, consumer.beginning_offsets([self._partition]))
        if after < (begin := begins[self._partition]):
            raise LogTrimmed(
                f"the topic {self.place.topic} of Kafka begins behind position {begin}, and what "
                f"follows {after} is needed",
                begin,
            )

    async def _query(self, what: str, question: Any) -> Any:
        """An answer of the consumer that is kept for questions."""
        async with self._reading:
            if self._reader is None:
                await self._check(what)
                self._reader = await self._consumer(what)
            try:
                return await self._answer(what, question(self._reader))
            except LogUnanswered:
                reader, self._reader = self._reader, None
                self._end(reader)
                raise

    async def _consumer(self, what: str) -> AIOKafkaConsumer:
        return await self._started(
            what,
            AIOKafkaConsumer(
                auto_offset_reset="none",
                enable_auto_commit=False,
                max_partition_fetch_bytes=BATCH_BYTES_MAX,
                **self._options,
            ),
        )

    async def _started(self, what: str, client: Any) -> Any:
        """A client that is connected."""
        try:
            await self._answer(what, client.start())
        except BaseException:
            self._end(client)
            raise
        return client

    def _end(self, client: Any) -> None:
        """Stop a client, without waiting for what it has on its way."""
        stop = client.close if isinstance(client, AIOKafkaAdminClient) else client.stop

        async def stopped() -> None:
            with suppress(*FAILURES):
                await stop()

        task = asyncio.create_task(stopped())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _check(self, what: str) -> None:
        """Make the topic if there is none; refuse settings that lose."""
        topic = self.place.topic
        admin = await self._started(what, AIOKafkaAdminClient(**self._options))
        try:
            brokers = len((await self._answer(what, admin.describe_cluster()))["brokers"])
            # All names: by itself Kafka may make a topic whose name is requested.
            if topic not in await self._answer(what, admin.list_topics()):
                await self._make(what, admin, brokers)
            if self.place.unsafe:
                return
            (said,) = await self._answer(what, admin.describe_topics([topic]))
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            answers = await self._answer(what, admin.describe_configs([resource]))
        finally:
            self._end(admin)
        settings = {
            entry[0]: entry[1] for answer in answers for one in answer.resources for entry in one[4]
        }
        partitions = said["partitions"]
        replicas = min((len(one["replicas"]) for one in partitions), default=0)
        found = topic_findings(topic, settings, replicas, len(partitions), brokers)
        if found:
            raise UnsafeLog("; ".join(found))

    async def _make(self, what: str, admin: AIOKafkaAdminClient, brokers: int) -> None:
        topic = NewTopic(
            self.place.topic,
            num_partitions=1,
            replication_factor=replicas_of(brokers),
            topic_configs=safe_settings(brokers),
        )
        made = await self._answer(what, admin.create_topics([topic]))
        for _, code, *said in made.topic_errors:
            if code not in (0, TopicAlreadyExistsError.errno):
                self._unanswered(what, for_code(code)(*said[:1]))

    async def _answer(self, what: str, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self.answer_s):
                return await call
        except OffsetOutOfRangeError:
            raise
        except TimeoutError:
            self._unanswered(what, f"nothing came within {self.answer_s:g} s")
        except FAILURES as error:
            self._unanswered(what, error)

    def _unanswered(self, what: str, why: object) -> NoReturn:
        raise LogUnanswered(
            f"Kafka has not answered {what} of the topic {self.place.topic}: "
            f"{str(why) or type(why).__name__}"
        ) from (why if isinstance(why, Exception) else None)
