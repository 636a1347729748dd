"""`sow replay`: rows go when their time has come, and the changes of a record keep their order.

Rows of a Parquet file as messages: values, deletes, order, time.
"""

import asyncio
import datetime
import json
from decimal import Decimal

import click
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sow.cli.commands.replay import (
    GATHER_S,
    SPEED_MAX,
    Recording,
    ReplayPace,
    documents,
    json_texts,
    play,
    speed_of,
)
from sow.errors import BadFilter, ClientError


class Time:
    """Seconds that pass only while somebody waits for them."""

    def __init__(self):
        self.now_s, self.waits = 100.0, []

    def now(self):
        return self.now_s

    async def sleep(self, seconds):
        self.waits.append(round(seconds, 6))
        self.now_s += seconds


class Sink:
    """Keeps what it is sent, with the time."""

    def __init__(self, time):
        self.time, self.sent = time, []

    async def send(self, bodies):
        self.keep("publish", bodies)

    async def delete(self, bodies):
        self.keep("delete", bodies)

    def keep(self, what, bodies):
        at_s = round(self.time.now_s - 100.0, 6)
        self.sent += [(at_s, what, json.loads(body)["id"]) for body in bodies]


@pytest.fixture
def recorded(tmp_path):
    """Makes a recording of rows (seconds, id, qty)."""

    def made(*rows, **more):
        path = tmp_path / "rows.parquet"
        times, ids, numbers = zip(*rows, strict=True)
        table = {"ts": list(map(float, times)), "id": list(ids), "qty": list(numbers)}
        pq.write_table(pa.table(table), path)
        return Recording(str(path), "ts", **more)

    return made


def played(recording, speed):
    time = Time()
    sink = Sink(time)
    pace = ReplayPace(speed, time.now, time.sleep)
    return asyncio.run(play(recording, ["/id"], pace, sink)), sink.sent


def test_rows_are_sent_at_their_own_time_divided_by_the_speed(recorded):
    rows = [(5, 1, 1), (7, 2, 1), (10, 3, 1)]
    found, sent = played(recorded(*rows), 2.0)
    assert sent == [(0.0, "publish", 1), (1.0, "publish", 2), (2.5, "publish", 3)]
    assert (found.published, found.deleted, found.recorded_s) == (3, 0, 5.0)
    assert played(recorded(*rows), SPEED_MAX)[1][-1] == (0.0, "publish", 3)


def test_what_is_late_is_not_waited_for():
    time = Time()
    pace = ReplayPace(1.0, time.now, time.sleep)

    async def work():
        await pace.wait_for(0.0)
        time.now_s += 3
        await pace.wait_for(2.0)
        await pace.wait_for(4.0)

    asyncio.run(work())
    assert time.waits == [1.0]
    assert pace.gather_s == GATHER_S


def test_rows_that_are_called_deletes_remove_their_record_in_order(recorded):
    rows = [(0, 1, 5), (0, 1, 0), (0, 1, 7), (0, 2, 0)]
    found, sent = played(recorded(*rows, delete_when="qty == 0"), 1.0)
    assert [what[1:] for what in sent if what[2] == 1] == [
        ("publish", 1),
        ("delete", 1),
        ("publish", 1),
    ]
    assert (found.published, found.deleted, found.rows) == (2, 2, 4)


@pytest.mark.parametrize(("text", "factor"), [("1x", 1), ("0.5x", 0.5), ("10", 10)])
def test_a_speed_is_a_factor(text, factor):
    assert speed_of(None, None, text) == factor


@pytest.mark.parametrize("text", ["0x", "-1x", "fast", "infx", "nan", ""])
def test_what_is_no_speed_says_what_to_write(text):
    with pytest.raises(click.BadParameter, match=r"write 1x, 10x, 0\.5x or max"):
        speed_of(None, None, text)


def test_the_recording_is_on_the_server_when_the_command_ends(sow, server, recorded, tmp_path):
    recorded((0, 1, 5), (1, 2, 6), (2, 1, 7), (3, 2, 0))
    requested = ("--topic", "orders", "--speed", "max", "--delete-when", "qty == 0", "--json")
    said = json.loads(sow.ok("replay", str(tmp_path / "rows.parquet"), *requested))
    assert (said["published"], said["deleted"], said["rows"]) == (3, 1, 4)
    assert server.records("orders") == [{"ts": 2.0, "id": 1, "qty": 7}]


def test_a_topic_without_a_key_takes_no_rows(sow, recorded, tmp_path):
    recorded((0, 1, 5))
    result = sow("replay", str(tmp_path / "rows.parquet"), "--topic", "notes", "--speed", "max")
    assert (result.exit_code, "topic notes has no Key" in result.stderr) == (1, True)


def test_it_may_be_the_first_rows_and_timed_by_another_column(sow, server, recorded, tmp_path):
    recorded((9, 1, 0), (9, 2, 0), (9, 3, 3600))
    requested = ("--topic", "orders", "--time-column", "qty", "--limit", "2")
    said = sow.ok("replay", str(tmp_path / "rows.parquet"), *requested)
    assert said.startswith("2 rows to orders: 2 published, 0 deleted, ")
    assert [one["id"] for one in server.records("orders")] == [1, 2]


START = datetime.datetime(2024, 8, 8, 23, 54, tzinfo=datetime.UTC)


def moments(*seconds):
    times = [START + datetime.timedelta(seconds=at) for at in seconds]
    return pa.array(times, pa.timestamp("ns", "UTC"))


@pytest.fixture
def file(tmp_path):
    def write(**columns):
        path = tmp_path / "recording.parquet"
        pq.write_table(pa.table(columns), path)
        return str(path)

    return write


@pytest.fixture
def book(file):
    """Two levels; the first is deleted, and comes back."""
    return file(
        ts=moments(0, 0.5, 1, 2),
        price=[1.5, 2.5, 1.5, 1.5],
        qty=[10, 20, 0, 30],
    )


class Recorder:
    """A sink that remembers what it was sent, and when."""

    def __init__(self):
        self.now = 0.0
        self.sent = []

    async def send(self, bodies):
        self.sent += [(self.now, "publish", orjson.loads(body)["qty"]) for body in bodies]

    async def delete(self, bodies):
        self.sent += [(self.now, "delete", orjson.loads(body)["qty"]) for body in bodies]

    async def sleep(self, seconds):
        self.now += seconds

    def play(self, path, speed, delete_when="qty == 0", limit=None):
        pace = ReplayPace(speed, lambda: self.now, self.sleep)
        recording = Recording(path, "ts", delete_when, limit)
        return asyncio.run(play(recording, ["/price"], pace, self))


def test_rows_become_documents_without_nulls():
    batch = pa.record_batch(
        {
            "s": pa.array(["a", None]).dictionary_encode(),
            "i": [1, 2],
            "f": [0.5, None],
            "b": [True, False],
            "at": moments(0, 1.25),
        }
    )
    assert [orjson.loads(document) for document in documents(batch)] == [
        {"s": "a", "i": 1, "f": 0.5, "b": True, "at": "2024-08-08T23:54:00.000000000Z"},
        {"i": 2, "b": False, "at": "2024-08-08T23:54:01.250000000Z"},
    ]


def test_names_and_texts_are_quoted():
    batch = pa.record_batch({'a"b%c': ['x"y%z']})
    assert [orjson.loads(document) for document in documents(batch)] == [{'a"b%c': 'x"y%z'}]


def test_a_replay_keeps_its_own_timing(book):
    recorder = Recorder()
    recorder.play(book, 1.0)
    assert [at for at, _, _ in recorder.sent] == [0, 0.5, 1, 2]


def test_ten_times_the_speed_takes_a_tenth_of_the_time(book):
    recorder = Recorder()
    recorder.play(book, 10.0)
    assert recorder.sent[-1][0] == pytest.approx(0.2)


def test_max_never_waits(book):
    recorder = Recorder()
    recorder.play(book, SPEED_MAX)
    assert {at for at, _, _ in recorder.sent} == {0.0}


def test_a_record_deleted_and_published_again_stays_in_that_order(book):
    recorder = Recorder()
    played = recorder.play(book, SPEED_MAX)
    assert [(kind, qty) for _, kind, qty in recorder.sent] == [
        ("publish", 10),
        ("publish", 20),
        ("delete", 0),
        ("publish", 30),
    ]
    assert (played.published, played.deleted) == (3, 1)


def test_a_limit_stops_after_so_many_rows(book):
    recorder = Recorder()
    assert recorder.play(book, SPEED_MAX, limit=2).rows == 2


def test_a_recording_may_be_taken_up_after_any_row(tmp_path):
    path = tmp_path / "groups.parquet"
    table = pa.table({"ts": moments(*range(50)), "price": [1.0] * 50, "qty": list(range(50))})
    pq.write_table(table, path, row_group_size=7)
    for rows in (0, 6, 7, 30, 50):
        segments = Recording(str(path), "ts").after(rows).segments(["/price"], 100.0)
        bodies = [orjson.loads(body) for segment in segments for body in segment.publishes]
        assert [body["qty"] for body in bodies] == list(range(rows, 50))


def test_without_delete_when_every_row_is_published(book):
    recorder = Recorder()
    assert recorder.play(book, SPEED_MAX, delete_when=None).deleted == 0


def test_a_path_may_stand_for_a_column(book):
    recorder = Recorder()
    assert recorder.play(book, SPEED_MAX, delete_when="/qty = 0").deleted == 1


def test_a_column_that_is_not_there_is_named(book):
    with pytest.raises(BadFilter, match="no column 'quantity'"):
        Recording(book, "ts", "/quantity = 0")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("qty == 0 AND price >> 1", 20),
        ("qty = 0 OR /quantity = 1", 11),
        ("qty + qty >> 1", 11),
        ("qty = 0 AND SOW_KEY() = 1", 12),
    ],
)
def test_a_mistake_in_delete_when_is_counted_in_the_text_as_it_was_given(book, text, position):
    with pytest.raises(ClientError) as caught:
        Recording(book, "ts", text)
    assert caught.value.position == position
    assert f"position {position}" in caught.value.detail


def test_a_missing_time_column_names_those_there_are(book):
    with pytest.raises(ClientError, match="ts, price, qty"):
        Recording(book, "time")


def test_a_key_field_without_a_column_is_named(book):
    with pytest.raises(ClientError, match="/symbol"):
        list(Recording(book, "ts").segments(["/symbol"], 1.0))


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "not.parquet"
    path.write_text("id,qty\n1,2\n")
    with pytest.raises(ClientError, match="not a Parquet file"):
        Recording(str(path), "ts")


def test_times_that_are_texts_are_refused(file):
    path = file(ts=["10:00"], price=[1.0])
    with pytest.raises(ClientError, match="not times or seconds"):
        list(Recording(path, "ts").segments(["/price"], 1.0))


def test_decimals_are_numbers_with_all_their_digits():
    column = pa.array([Decimal("1.50"), None, Decimal("0.0000001")], pa.decimal128(38, 7))
    assert json_texts(column) == [b"1.5000000", b"null", b"0.0000001"]
