"""`sow replay`: rows go when their time has come, and the changes of a record keep their order."""

import asyncio
import json

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sow.cli.commands.replay import GATHER_S, SPEED_MAX, ReplayPace, play, speed_of
from sow.cli.recording import Recording


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
