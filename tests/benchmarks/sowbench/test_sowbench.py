"""The bench finds what is lost, doubled, out of order, altered or forgotten, and who is right."""

import socket

import orjson
import pytest

from tests.benchmarks.results import Run
from tests.benchmarks.sowbench import __main__ as bench_program
from tests.benchmarks.sowbench import nexmark, page
from tests.benchmarks.sowbench.adapter import Cannot, Pace, made, specs, takes_part
from tests.benchmarks.sowbench.adapters.nats import HEAD
from tests.benchmarks.sowbench.adapters.sow import Subscribed
from tests.benchmarks.sowbench.bench import TINY, Bench, Played, compared
from tests.benchmarks.sowbench.checking import check
from tests.benchmarks.sowbench.floors import Floors, measured
from tests.benchmarks.sowbench.hearing import Heard, Verdict, in_quantiles
from tests.benchmarks.sowbench.load import Load, lost
from tests.benchmarks.sowbench.questions import QUESTIONS, fault_of
from tests.benchmarks.sowbench.row import Row

FLOORS = Floors(1.0, 1.0, 100.0, 1.0, 1000.0)
LOAD = Load(keys=3, count=12, size=4, symbols=3)
ROWS = {
    "W1": 2, "W2": 3, "W3": 1, "W4": 6, "W5": 2, "W6": 6, "W7": 1, "W8": 10, "W9": 7, "W10": 1,
}  # fmt: skip
"""Rows of each workload when everything is answered, once for each rate, crowd and filter."""


def heard(*numbers, load=LOAD, symbols=(), cut=7):
    stream = b"".join(b"head " + load.records()[n][1] + b"\r\n" for n in numbers)
    found = Heard(load, symbols)
    for at in range(0, len(stream), cut):
        found.take(stream[at : at + cut], 1.0)
    return found


def test_what_a_follower_heard_is_compared_update_by_update():
    right = list(range(12))
    assert heard(*right).verdict() == Verdict()
    assert heard(*right).is_current()
    assert heard(*right[:5], *right[6:]).verdict() == Verdict(missing=1)
    assert heard(*right, 4).verdict() == Verdict(repeated=1, stale=1)
    swapped = [0, 1, 2, 6, 4, 5, 3, *right[7:]]
    assert heard(*swapped).verdict() == Verdict(disordered=1)
    assert heard(*right[:11]).verdict() == Verdict(missing=1, stale=1)
    assert not heard(*right[:11]).is_current()


def test_other_bytes_and_what_nobody_asked_for_are_found():
    found = heard(*range(12))
    found.take(LOAD.records()[3][1].replace(b"buy", b"bye"), 1.0)
    assert found.verdict() == Verdict(altered=1)
    only = heard(*range(12), symbols=["S1"])
    assert only.verdict() == Verdict(altered=8)
    assert heard(1, 4, 7, 10, symbols=["S1"]).verdict() == Verdict()


def test_after_a_snapshot_every_update_since_it_counts():
    since = heard(3, 4, 5, 6, 7, 8, 9, 10, 11)
    assert since.verdict(snapshot=True) == Verdict()
    assert since.verdict() == Verdict(missing=3)
    assert heard(0, 4, 5, 6, 7, 8, 9, 10, 11).verdict(snapshot=True) == Verdict(missing=1)


def test_a_snapshot_may_have_states_from_before_the_load():
    before, load = Load(3, 3, 3), Load(3, 6, 3, first=3)
    found = heard(*range(6), load=load)
    found.take(before.records()[1][1], 2.0)
    assert found.verdict() == Verdict(stale=1), "that went back to one"


def test_lateness_counts_from_the_first_update_that_a_line_stands_for():
    every = heard(*range(12)).late_ms(0.0, 0.1)
    assert every[0] == every[3] == pytest.approx(1000)
    assert every[11] == pytest.approx(800)
    newest = heard(9, 10, 11).late_ms(0.0, 0.1)
    assert newest == [pytest.approx(1000)] * 3, "that of records 0, 1 and 2"
    assert heard(*range(12)).late_ms(0.0, 0.1, since=8) == [pytest.approx(800)] * 4
    assert in_quantiles([1.0, 3.0, 2.0]) == {"p50": 2.0, "p99": 3.0, "p99.99": 3.0, "max": 3.0}


def test_an_older_state_than_what_was_acknowledged_is_lost():
    assert lost(LOAD, 3, LOAD.final()) == 0
    assert lost(LOAD, 1, LOAD.final(1)) == 0
    assert lost(LOAD, 1, LOAD.final(2)) == 0, "it may have been taken"
    assert lost(LOAD, 3, LOAD.final(2)) == 3
    assert lost(LOAD, 3, {**LOAD.final(), 99: b"never sent"}) == 1
    assert lost(LOAD, 3, {}) == 3


def test_a_wrong_answer_is_found():
    load = Load(keys=2000, count=4000, size=1)
    held = load.final()
    for question in QUESTIONS:
        rows = [body for body in held.values() if question.holds(orjson.loads(body))]
        if question.top:
            rows = sorted(rows, key=lambda body: -orjson.loads(body)["px"])[:10]
        assert fault_of(question, rows, held) == ""
        assert fault_of(question, [*rows, load.records()[0][1]], held)


@pytest.mark.parametrize("query", nexmark.QUERIES, ids=lambda query: query.name)
def test_the_events_of_nexmark_answer_each_query(query):
    events = [each for part in nexmark.parts(3000, 2, 100) for each in part]
    rows = nexmark.wanted_of(query, tuple(events))
    assert rows
    assert nexmark.fault_of(query, rows, events) == ""
    assert nexmark.fault_of(query, rows[1:], events)
    first, *_ = rows
    assert nexmark.fault_of(query, [*rows[1:], (*first[:-1], -1)], events)


@pytest.mark.edge
@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ("loses", "1 missing"),
        ("repeats", "1 repeated"),
        ("swaps", "disordered"),
        ("alters", "1 altered"),
        ("misses", "rows instead of"),
    ],
)
def test_a_server_that_goes_wrong_is_caught(variant, words):
    assert words in "\n".join(check(f"example-{variant}"))


@pytest.mark.edge
def test_a_server_that_does_what_it_has_to_is_not():
    assert check("example-right") == []


@pytest.mark.edge
def test_what_a_kill_has_taken_is_counted():
    rows = list(
        bench_program.CATALOGUE["W1"](Bench(TINY, ["example-right", "example-forgets"], FLOORS))
    )
    right, forgets = rows[2:]
    assert (right.limit, right.fault) == ("", "")
    assert "acknowledged lost by SIGKILL" in forgets.limit


@pytest.mark.edge
@pytest.mark.parametrize("name", bench_program.CATALOGUE)
def test_a_workload_gives_rows(name):
    rows = list(bench_program.CATALOGUE[name](Bench(TINY, ["sow-durable"], FLOORS)))
    assert len(rows) == ROWS[name]
    for row in rows:
        assert row.fault == ""
        assert "gaps" not in row.limit, "a follower that comes back continues where it was"
        assert row.workload == name
        if not row.reason:
            assert row.values


@pytest.mark.edge
@pytest.mark.parametrize("name", ["W4", pytest.param("W6", marks=pytest.mark.slow)])
def test_followers_over_two_edges_have_rows_of_their_own(name):
    rows = list(bench_program.CATALOGUE[name](Bench(TINY, ["sow-edges"], FLOORS)))
    assert [row.name for row in rows] == ["SOW with two edges"] * ROWS[name]
    wrong = [(row.fault, row.reason, row.limit) for row in rows]
    assert [one for one in wrong if one[0] or one[1] or "gaps" in one[2]] == []


def test_a_variant_may_take_part_in_some_workloads_alone():
    assert [takes_part("sow-edges", name) for name in ("W1", "W3", "W4", "W6")] == [0, 1, 1, 1]
    assert takes_part("sow-durable", "W1")


@pytest.mark.edge
def test_floors_are_measured():
    assert min(measured()) > 0


def test_a_follower_that_was_cut_off_anywhere_has_heard_what_is_before_its_place():
    bodies = enumerate((body for _, body in LOAD.records()[:3]), 1)
    stream = b"\n".join(b'{"c":"p","d":%b,"bm":"%d"}' % (body, bm) for bm, body in bodies)
    for cut in range(1, len(stream)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            follower, found = Subscribed(ours), Heard(LOAD)
            for piece in (stream[:cut], stream[cut:]):
                theirs.sendall(piece)
                found.take(follower.read(), 1.0)
                assert found.numbers == list(range(int(follower.place or 0))), cut
            assert follower.place == "3"


def test_a_message_of_nats_is_sent_from_its_payload():
    for line in (b"MSG orders.S7.7 1 12\r\n", b"MSG orders.S7.7 1 reply 12\r\n"):
        found = HEAD.match(line)
        assert (found[1], found[3], found[4]) == (b"orders.S7.7", None, b"12")
    found = HEAD.match(b"HMSG orders.S7.7 1 reply 30 42\r\n")
    assert (found[2], found[3], found[4]) == (b"orders.S7.7", b"30", b"42")


def row(case, name, *values, unit="ms", **more):
    return Row(case, name, values, unit, "fsync", **more)


def test_rows_that_we_lose_come_first_and_a_wrong_one_is_no_figure():
    rows = [
        row("W1 won", "SOW", 2.0, unit="updates/s", floor=9.0, floor_name="the floor"),
        row("W1 won", "another", 1.0, unit="updates/s", limit="2 lost"),
        row("W1 won", "third", 5.0, unit="updates/s", fault="3 records wrong"),
        row("W2 lost", "SOW", 1.0, 2.0, 9.0),
        row("W2 lost", "another", 1.0),
        row("W9 q19, few", "another", reason="no views"),
    ]
    text = page.text_of(Run("tiny", {"date": "today"}, {"W1": 1.0}, rows))
    lost = "| W2 lost | 2 ms | another 1 (0.5) | - |"
    won = "another 1 (0.5) [2 lost]; third **wrong**: 3 records wrong"
    assert text.index(lost) < text.index("| W1 won | 2 updates/s |")
    assert won in text or "third **wrong**: 3 records wrong; another 1 (0.5) [2 lost]" in text
    assert "| 9 (the floor) |" in text
    assert "| another | W9 q19 | no views |" in text


def test_what_cannot_be_done_has_its_reason_and_what_fails_is_said():
    def play(spec, _number):
        if spec == "example-right":
            raise Cannot("no such thing")
        if spec == "example-loses":
            raise EOFError("gone")
        return Played({("x", "ms"): 1.0}, limit="as it is")

    bench = Bench(TINY, ["example-right", "example-loses", "example-swaps"], FLOORS)
    first, second, third = compared(bench, "W1 x", play, {"x": (0.5, "half")})
    assert (first.reason, first.values) == ("no such thing", ())
    assert second.reason == "failed: EOFError"
    assert (third.values, third.floor, third.limit) == ([1.0], 0.5, "as it is")


def test_adapters_are_named_by_variant_or_by_file(tmp_path):
    assert specs(["sow", "nats-batched"]) == ["sow-durable", "sow-edges", "nats-batched"]
    assert [made(spec).name for spec in specs(["redis"])][2] == "Redis without a log"
    with pytest.raises(SystemExit, match="there is no adapter nothing"):
        made("nothing")
    with pytest.raises(SystemExit, match="has no variant"):
        made("redis-sometimes")
    file = tmp_path / "mine.py"
    file.write_text("class Adapter:\n    VARIANTS = ('one',)\n    def __init__(self, _): pass\n")
    assert specs([str(file)]) == [f"{file}:one"]
    assert check(str(file)) == [
        f"{file}:one: the class Adapter has no start, stop, publish, follow, query, state, "
        "name, promise"
    ]


def test_a_pace_is_a_window_or_moments():
    closed = Pace(window=4)
    assert (closed.allowed(3), closed.wait_s(9)) == (7, None)
    opened = Pace(step_s=1000.0)
    opened.start()
    assert opened.allowed(0) == 1
    assert 900 < opened.wait_s(1) <= 1000
