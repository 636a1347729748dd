"""What becomes of a batch when something dies in the middle of it: no row lost, none twice.

Every test counts: the keys in the log of the topic that was written, each with its bookmark. The
moments are made, not waited for: a task stops at a gate, a request at a proxy.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock, Thread

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from conflated_topics.spark import conflate
from sow.server.api.batch_commit import BatchCommitHandler, Recent
from sow.spark.columns import ROW
from sow.spark.http import ServerRefusal, read_options
from sow.spark.http import SowServer as Client
from sow.spark.rows import DataLoss, range_of_log
from sow.spark.stream import SowStreamReader
from sow.spark.writer import SowWriter
from tests.crash.victim import Victim
from tests.edge.serving import Running, configuration
from tests.edge.topics import MESSAGE_TYPES, TOPICS
from tests.ports import free_port
from tests.spark.proxy import Cut, Proxy, Sent
from tests.spark.stopping import Gate, Stopping

pytestmark = [pytest.mark.spark, pytest.mark.edge]

ROWS = 40
BATCH = 10
PAD = "x" * 250_000
"""Of rows that are long: of half of them the server writes ahead of the log (`HELD_BYTES_MAX`)."""


@pytest.fixture
def gate(spark):
    spark.dataSource.register(Stopping)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH))
    gate = Gate()
    yield gate
    gate.close()
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def end_of_log(server):
    return server.get("/v1/log/extent").json["newest"]


def ids(server, topic, start):
    """The ids in the log of a topic after a bookmark; each bookmark is there once."""
    rows = server.get(f"/v1/log?topics={topic}&from={start}&limit=1000000").rows
    assert len({row["bm"] for row in rows}) == len(rows)
    return sorted(row["d"]["id"] for row in rows)


def publish(server, first, until):
    """Rows in log entries of ten."""
    for start in range(first, until, BATCH):
        server.publish("orders", *({"id": n} for n in range(start, min(start + BATCH, until))))


def killed(gate, work):
    """What a job returns whose first task is killed when it has come to the gate."""
    with ThreadPoolExecutor(1) as pool:
        kill = pool.submit(gate.kill)
        try:
            done = work()
        except BaseException:
            gate.close()  # nobody will come
            raise
        kill.result()
        return done


@pytest.fixture
def copy(spark, server, tmp_path):
    """Copies `orders` into `loud` until it has caught up; where and how may be said otherwise."""

    def run(
        start,
        read=None,
        write=None,
        trigger=None,
        sink="loud",
        through=lambda frame: frame,
        columns=("value", "op"),
    ):
        reads = {"url": server.url, "topic": "orders", "startingBookmark": start, **(read or {})}
        writes = {"url": server.url, "topic": sink, **(write or {})}
        frame = spark.readStream.format(reads.pop("format", "sow")).options(**reads).load()
        query = (
            through(frame)
            .select(*columns)
            .writeStream.format(writes.pop("format", "sow"))
            .options(**writes)
            .option("checkpointLocation", str(tmp_path / "copy"))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )
        if trigger is None:
            query.awaitTermination()
        return query

    return run


# A worker is killed.


def test_a_worker_killed_while_it_writes_leaves_nothing_of_its_attempt(spark, server, proxy, gate):
    start = end_of_log(server)
    frame = spark.range(0, ROWS, 1, 1).write.format("stopping").mode("append")
    options = {"url": proxy.url, "topic": "loud", "gate": gate.port, "batchRows": BATCH}
    killed(gate, frame.options(**options).save)
    assert ids(server, "loud", start) == list(range(ROWS))
    staged = proxy.steps("stage")
    lost, won = dict.fromkeys(requested.parameters["attempt"] for requested in staged)
    assert [requested.parameters["attempt"] for requested in staged] == [lost] + [won] * 4
    (commit,) = proxy.steps("commit")
    (part,) = json.loads(commit.body)["parts"]
    assert part == {"part": 0, "attempt": won, "chunks": 4, "rows": ROWS}


@pytest.mark.slow
def test_a_worker_killed_while_it_reads_is_replaced_by_one_that_reads_the_same(spark, server, gate):
    start = end_of_log(server)
    publish(server, 0, ROWS)
    options = {"url": server.url, "topic": "orders", "gate": gate.port, "partitions": 2}
    for moment in ({}, {"startingBookmark": start}):
        frame = spark.read.format("stopping").options(**options, **moment).load()
        rows = killed(gate, frame.collect) if not moment else frame.collect()
        assert sorted(json.loads(row.value)["id"] for row in rows) == list(range(ROWS))
        assert len({row.bookmark for row in rows}) == ROWS


@pytest.mark.slow
def test_a_worker_killed_while_a_stream_writes(copy, server, proxy, gate):
    start = end_of_log(server)
    publish(server, 0, ROWS)
    stopping = {"format": "stopping", "gate": gate.port, "url": proxy.url, "batchRows": BATCH}
    killed(gate, lambda: copy(start, {"partitions": 1}, stopping))
    assert len({requested.parameters["attempt"] for requested in proxy.steps("stage")}) == 2
    assert ids(server, "loud", start) == list(range(ROWS))


# The server is killed, or does not answer.


class Kills:
    """A proxy's way that kills the server at some of the requests, before or after they are done,
    or once it has written some of what they are about.

    The client gets no answer; its next request finds a new server on the old port.
    """

    def __init__(self, data, moments):
        self._data, self.moments = data, list(moments)
        self._port = free_port()
        self.victim = Victim(data, self._port)
        self._is_up = True
        self._one_at_a_time = Lock()

    def __call__(self, requested, forward):
        with self._one_at_a_time:  # tasks ask at the same time
            return self._pass(requested, forward)

    def _pass(self, requested, forward):
        if not self._is_up:
            self.victim, self._is_up = Victim(self._data, self._port), True
        moment = self.moments[0] if self.moments else None
        if moment is None or moment[1] != requested.step:
            return forward()
        if moment[0] == "after":
            assert forward().status == 200
        elif moment[0] == "during":
            self._write_some(forward)
        self.moments.pop(0)
        self.victim.kill()
        self._is_up = False
        raise Cut

    def _write_some(self, forward):
        """Send a request on until the journal is a megabyte longer."""
        journal = self._data / "journal" / "data.mdb"
        enough = journal.stat().st_size + 10**6

        def send():
            with suppress(Cut):
                forward()

        sending = Thread(target=send)
        sending.start()
        while sending.is_alive() and journal.stat().st_size < enough:
            sending.join(0.001)
        assert journal.stat().st_size >= enough


STEPS = [("before", "read"), ("after", "stage"), ("after", "commit")]


@pytest.mark.parametrize("pad", ["", PAD], ids=["rows", "a load"])
def test_a_stream_goes_on_when_its_server_is_killed_and_started_again(copy, tmp_path, pad):
    moments = [*STEPS[:2], ("during", "commit"), STEPS[2]] if pad else STEPS
    kills = Kills(tmp_path / "data", moments)
    victim = Proxy(kills.victim.url)
    try:
        client = Client(victim.url)
        documents = [{"id": n, "pad": pad} for n in range(ROWS)]
        client.json("POST", "/v1/topics/orders/records", documents)
        victim.way = kills
        there = {"url": victim.url}
        query = copy("earliest", {**there, "maxRowsPerTrigger": ROWS // 2}, there, sink="trades")
        assert [progress["numInputRows"] for progress in query.recentProgress] == [ROWS // 2] * 2
        assert kills.moments == []
        rows = client.request("GET", "/v1/log", {"topics": "trades"}).body.splitlines()
        assert sorted(json.loads(row)["d"]["id"] for row in rows) == list(range(ROWS))
    finally:
        victim.close()
        kills.victim.kill()


def made(client, topic):
    """What each row of the topic's log makes of its records, without the record 0."""
    records, found = {}, []
    rows = client.request("GET", "/v1/log", {"topics": topic, "limit": "1000"}).body.splitlines()
    for row in map(json.loads, rows):
        if row.get("d", {}).get("id") == 0:
            continue
        records.pop(row["k"], None)
        if row["op"] == "publish":
            records[row["k"]] = row["d"]
        found.append({one["id"]: one["v"] for one in records.values()})
    return found


def test_a_copy_by_changes_is_the_original_when_its_server_is_killed(copy, tmp_path):
    kills = Kills(tmp_path / "data", STEPS)
    victim = Proxy(kills.victim.url)
    try:
        client = Client(victim.url)
        for version in range(3):
            documents = [{"id": n, "v": version} for n in range(version, ROWS)]
            client.json("POST", "/v1/topics/orders/records", documents)
        client.request("DELETE", "/v1/topics/orders/records", {"filter": "/id > 30"})
        victim.way = kills
        there = {"url": victim.url}
        reads = {**there, "maxRowsPerTrigger": ROWS, "changeFormat": "cdc", "filter": "/id > 0"}
        copy("earliest", reads, there, sink="trades", columns=["*"])
        assert kills.moments == []
        found = [made(client, topic) for topic in ("orders", "trades")]
        assert found[0] == found[1], "at every bookmark"
        assert [len(state) for state in (found[0][0], found[0][-1])] == [1, 30]
    finally:
        victim.close()
        kills.victim.kill()


@pytest.mark.slow
def test_every_request_twice_and_answers_that_are_lost(copy, server, proxy):
    start = end_of_log(server)
    publish(server, 0, ROWS)
    told = []

    def twice_and_silent(requested, forward):
        if requested.step not in ("stage", "commit"):
            return forward()
        told.append((requested.step, json.loads(forward().body).get("duplicate")))
        if len([step for step, _ in told if step == requested.step]) % 2:
            raise Cut
        return forward()

    proxy.way = twice_and_silent
    copy(start, {"maxRowsPerTrigger": ROWS // 2}, {"url": proxy.url})
    duplicate = [duplicate for step, duplicate in told if step == "commit"]
    assert duplicate == [False, True] * 2
    assert ids(server, "loud", start) == list(range(ROWS))


@pytest.mark.slow
def test_a_batch_whose_chunks_are_lost_is_refused_and_sent_again(copy, server, proxy):
    start = end_of_log(server)
    publish(server, 0, ROWS)
    staging = server.server._data_directory / "staging"

    def lose(requested, forward):
        if requested.step == "commit":
            for chunk in staging.glob("*/*/*"):  # as when the machine, not the process, fails
                chunk.write_bytes(b"")
            server.server._handlers[BatchCommitHandler]._recent = Recent()
        return forward()

    proxy.way = lose
    with pytest.raises(Exception, match="is missing: it was never staged, dropped, or lost"):
        copy(start, write={"url": proxy.url})
    assert ids(server, "loud", start) == []
    proxy.way = lambda _requested, forward: forward()
    copy(start, write={"url": proxy.url})
    assert ids(server, "loud", start) == list(range(ROWS))


# Attempts that lose.


def test_of_two_attempts_at_a_part_the_one_that_is_named_is_applied(server):
    start = end_of_log(server)
    writer = SowWriter(read_options({"url": server.url, "topic": "loud"}), StructType())
    first, second = (writer.write(iter([pa.record_batch({"id": pa.array([n])})])) for n in range(2))
    assert first.attempt != second.attempt
    writer.commit([second])
    with pytest.raises(ServerRefusal, match="send the batch again"):
        writer.commit([first])  # its rows went with the first commit, and they were others
    assert ids(server, "loud", start) == [1]


def test_a_write_that_fails_halfway_is_forgotten(spark, server, proxy):
    start = end_of_log(server)
    bad = spark.range(0, ROWS, 1, 1).selectExpr(f"nullif(id, {ROWS - 1}) as id")
    options = {"url": proxy.url, "topic": "loud", "batchRows": 5}
    with pytest.raises(Exception, match="key field /id is missing"):
        bad.write.format("sow").options(**options).mode("append").save()
    assert proxy.steps("stage")
    assert len(proxy.steps("abort")) == 1
    assert proxy.steps("commit") == []
    assert ids(server, "loud", start) == []
    assert list((server.server._data_directory / "staging").glob("*/*")) == []


# Retention overtakes a stream.


@pytest.fixture
def forgetful(tmp_path):
    """A server that keeps nothing of its log that its checkpoints hold."""
    keeps_nothing = "<TransactionLog><RetentionSize>1</RetentionSize></TransactionLog>"
    server = Running(configuration(TOPICS, MESSAGE_TYPES + keeps_nothing), tmp_path / "data")
    yield server
    server.close()


def retain(server):
    """Let go of what nobody is known to want of the log."""
    checkpointer = server.server.checkpointer
    for name in checkpointer._checkpoints:
        server.wait(checkpointer.write(name))
    server.wait(checkpointer._drop_old())


def trim(server):
    """Let go of the whole log."""
    retain(server)
    here = server.get("/v1/log/extent").json
    assert here["oldest"] == here["newest"]
    return int(here["oldest"])


@pytest.mark.slow
def test_a_stream_that_retention_has_overtaken_names_what_is_gone(copy, forgetful):
    there = {"url": forgetful.url}
    publish(forgetful, 0, 10)
    copy("earliest", there, there)
    assert end_of_log(forgetful) == "20"  # ten read, ten written; the account of that takes none
    publish(forgetful, 10, 20)
    begin = trim(forgetful)
    publish(forgetful, 20, 30)
    gap = rf"after bookmark 10 up to {begin} are no longer kept \({begin - 10} changes"
    with pytest.raises(Exception, match=gap):
        copy("earliest", there, there)
    copy("earliest", {**there, "failOnDataLoss": "false"}, there)
    found = sorted(row["id"] for row in forgetful.records("loud"))
    assert found == [*range(10), *range(20, 30)]


def test_a_task_that_retention_overtakes_names_what_is_gone(forgetful):
    """Also where it began to read at 0, which the server takes for the oldest that there is."""
    publish(forgetful, 0, 20)
    begin = trim(forgetful)
    publish(forgetful, 20, 30)
    end = int(end_of_log(forgetful))
    client = Client(forgetful.url)
    for after in (0, 5):
        gone = f"after bookmark {after} up to {begin} are no longer kept \\({begin - after} "
        with pytest.raises(DataLoss, match=gone):
            list(range_of_log(client, "orders", after, end, None))
        (rows,) = range_of_log(client, "orders", after, end, None, fail_on_data_loss=False)
        assert rows.column("bookmark").to_pylist() == list(range(begin + 1, end + 1))


def test_a_checkpoint_that_retention_has_passed_names_what_is_gone(forgetful):
    publish(forgetful, 0, 10)
    given = {"url": forgetful.url, "topic": "orders"}
    reader = SowStreamReader(read_options(given), ROW)
    written = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    publish(forgetful, 10, 20)
    begin = trim(forgetful)
    publish(forgetful, 20, 30)
    gone = rf"after bookmark 10 up to {begin} are no longer kept \({begin - 10} changes"
    with pytest.raises(DataLoss, match=gone + ".*; set failOnDataLoss to false"):
        reader.latestOffset(written, ReadAllAvailable())
    # A batch that was planned before, and is run again after.
    planned = {**written, "after": 10, "bookmark": begin + 5}
    with pytest.raises(DataLoss, match=gone):
        reader.partitions(written, planned)
    goes_on = SowStreamReader(read_options({**given, "failOnDataLoss": "false"}), ROW)
    after = goes_on.latestOffset(written, ReadAllAvailable())
    rows = [row for part in goes_on.partitions(written, after) for row in goes_on.read(part)]
    found = [bookmark for batch in rows for bookmark in batch.column("bookmark").to_pylist()]
    assert found == list(range(begin + 1, begin + 11))


def test_of_two_streams_with_one_consumer_the_log_is_kept_for_the_slower(forgetful):
    given = {"url": forgetful.url, "topic": "orders", "consumer": "shared"}
    slow, fast = (SowStreamReader(read_options(given), ROW) for _ in range(2))
    begin = slow.initialOffset(), fast.initialOffset()
    publish(forgetful, 0, 10)
    behind = slow.latestOffset(begin[0], ReadAllAvailable())
    slow.commit(behind)
    publish(forgetful, 10, 30)
    fast.commit(fast.latestOffset(begin[1], ReadAllAvailable()))
    retain(forgetful)
    assert int(forgetful.get("/v1/log/extent").json["oldest"]) <= 10
    after = slow.latestOffset(behind, ReadAllAvailable())
    rows = [row for part in slow.partitions(behind, after) for row in slow.read(part)]
    assert sum(map(len, rows)) == 20


def test_a_log_that_was_cut_off_is_data_loss(server):
    publish(server, 0, 10)
    end = int(end_of_log(server))
    gone = f"ends at bookmark {end} and this reader has read up to {end + 5}"
    with pytest.raises(DataLoss, match=gone):
        list(range_of_log(Client(server.url), "orders", end - 5, end + 5, None))
    start = {"bookmark": end + 5}
    given = {"url": server.url, "topic": "orders"}
    with pytest.raises(DataLoss, match=gone):
        SowStreamReader(read_options(given), ROW).latestOffset(start, ReadAllAvailable())
    reader = SowStreamReader(read_options({**given, "failOnDataLoss": "false"}), ROW)
    reader.prepareForTriggerAvailableNow()
    went_on = reader.latestOffset(start, ReadAllAvailable())
    assert (went_on["bookmark"], went_on["after"]) == (end, end + 5)
    assert reader.partitions(start, went_on) == []


@pytest.mark.slow  # test_views.py makes a batch again that was written and not noted
def test_a_batch_that_dies_between_the_state_and_the_sink_is_the_same_one_again(
    copy, server, proxy, tmp_path
):
    """Tasks write the state, then the driver commits to the sink, and then Spark notes that the
    batch is done: it is stopped in both gaps. Where a query began Spark does not write down, and
    `latest` is elsewhere by then."""
    begun, requested_to_commit = [], []

    def publish_then_refuse(requested, forward):
        if requested.step == "commit":
            of_state = list((tmp_path / "copy" / "state").rglob("1.*"))
            requested_to_commit.append((len(of_state) > 0, (tmp_path / "copy/commits/0").exists()))
            if len(requested_to_commit) > 1:
                forward()
            return Sent(409, {}, b'{"detail":"not now"}')
        told = forward()
        if requested.parameters.get("from") == "now" and not begun:
            begun.append(told)
            publish(server, 0, ROWS)
        return told

    proxy.way = publish_then_refuse
    start = end_of_log(server)
    there = {"url": proxy.url}

    def windows(frame):
        return conflate(frame, "key", "ts", "1us", buckets=2)

    def run(**trigger):
        return copy("latest", there, there, trigger or None, through=windows)

    with pytest.raises(Exception, match="not now"):
        run(processingTime="0 seconds").awaitTermination()
    assert ids(server, "loud", start) == []
    with pytest.raises(Exception, match="not now"):
        run()
    assert requested_to_commit == [(True, False)] * 2
    once = ids(server, "loud", start)
    assert len(once) >= ROWS - BATCH  # what is of the newest moment waits for its window's end
    publish(server, ROWS, 2 * ROWS)
    proxy.way = lambda _requested, forward: forward()
    run()
    twice = ids(server, "loud", start)
    assert twice == list(range(len(twice)))
    assert len(twice) >= 2 * ROWS - BATCH
