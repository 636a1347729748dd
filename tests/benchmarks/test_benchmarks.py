"""The benchmarks run. How fast anything is, no test asserts."""

import re
from dataclasses import replace

import pytest

from tests.benchmarks import page, pairs, report
from tests.benchmarks.budgets import BUDGETS, verdicts
from tests.benchmarks.catalogue import CATALOGUE
from tests.benchmarks.ingest import over_websocket
from tests.benchmarks.measure import Figure, in_turn
from tests.benchmarks.pinger import PONG, Waits
from tests.benchmarks.processes import ROOT
from tests.benchmarks.queries import QUESTIONS, in_engine, under_updates
from tests.benchmarks.restart import fill, read_values, started_s
from tests.benchmarks.sizes import TINY
from tests.benchmarks.sockets import LineCounter
from tests.benchmarks.stalls import GUARDED, OPERATIONS, WORST, named, stalls

DELETE = "delete of half by filter"
# By default one benchmark with a server shows that they run; `make slow` runs all of them.
IN_PROCESS = (
    "ingest-engine", "series", "filters", "subscribing", "views", "windows", "calculations",
    "message-types", "conflation", "copies", pytest.param("footprint", marks=pytest.mark.slow),
)  # fmt: skip
WITH_SERVER = (
    "ingest-client", "low-rates", "large-messages", "restart-growth", "restart-view", "memory",
    "patterns", "snapshot", "followers", "views-served", "rights", "ticks", "ingest-numbered",
    "past",
)  # fmt: skip


def test_waits_are_looked_at_beside_some_operations_alone():
    assert named("") == named(" ;") == OPERATIONS + GUARDED
    names = [operation.name for operation in named("delete; reload with another")]
    assert names == ["reload with another copy", "reload with another filter", DELETE]
    with pytest.raises(SystemExit, match="no operation begins with 'Delete'"):
        named("Delete")


def figure(name, *ours, unit="ms", floor=(1.0,)):
    benchmark, _, case = name.partition(": ")
    return Figure(benchmark, case, unit, ours, floor, "the floor")


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_benchmark_without_a_server_gives_figures(name):
    assert all(min(*found.ours, *found.floor) > 0 for found in CATALOGUE[name](TINY))


@pytest.mark.edge
@pytest.mark.parametrize(
    "name", ["fan-out", *(pytest.param(name, marks=pytest.mark.slow) for name in WITH_SERVER)]
)
def test_a_benchmark_with_a_server_gives_a_figure(name):
    found = next(CATALOGUE[name](TINY))
    assert min(found.floor) > 0


@pytest.mark.slow
@pytest.mark.edge
def test_each_large_operation_is_carried_out_beside_a_pinger():
    found = list(stalls(TINY))
    assert [figure.case for figure in found] == [
        *(each.name for each in OPERATIONS + GUARDED),
        WORST,
    ]
    assert max(figure.value for figure in found) == found[-1].value > 0


def test_the_longest_wait_is_found_however_the_pongs_are_cut():
    for size in (1, 3, 10, 100):
        waits = Waits()
        numbers = [waits.ping(at)[-8:] for at in (1.0, 2.0, 3.0)]
        pongs = b"".join([PONG + number for number in numbers])
        for at in range(0, len(pongs), size):
            assert waits.unanswered
            waits.feed(pongs[at : at + size], 5.0)
        assert (waits.longest_s, waits.count, waits.unanswered) == (4.0, 3, False)


@pytest.mark.slow
@pytest.mark.edge
def test_ingest_over_a_socket_gives_figures_of_the_first_variant():
    assert next(over_websocket(replace(TINY, frame_sizes=(100,)))).value > 0


@pytest.mark.edge
@pytest.mark.parametrize("checkpointed", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_filled_directory_can_be_read_and_started_from(tmp_path, checkpointed):
    file = fill(tmp_path, 50, checkpointed)
    assert read_values(file) > 50 * 200
    assert started_s(tmp_path) > 0


def test_queries_in_the_engine_and_in_numpy_agree():
    # The benchmark itself compares the answers, byte for byte.
    assert len(list(in_engine(TINY))) == 6


@pytest.mark.slow
@pytest.mark.edge
def test_queries_are_requested_while_updates_are_taken():
    found = list(under_updates(TINY))
    assert len(found) == len(QUESTIONS)
    assert all(re.match("[1-9].* updates/s were taken", figure.note) for figure in found)


def test_a_budget_without_its_figure_is_not_passed_over():
    said = report.judged([figure("query in the engine: top 10", 4.0)])
    assert len(said) == len(BUDGETS)
    assert said["fan-out to 1,000"] == "not measured in this run"


def test_a_ratio_compares_speeds_whatever_the_unit():
    slow = figure("x: y", 4.0, unit="ms", floor=(1.0,))
    rate = figure("x: y", 1.0, unit="rows/s", floor=(4.0,))
    crowd = figure("x: y", 100.0, unit="followers", floor=(400.0,))
    assert slow.ratio == rate.ratio == crowd.ratio == 0.25


@pytest.mark.parametrize("unit", ["followers", "rows/s", "ms"])
@pytest.mark.parametrize("floor", [0.0, 4.0])
def test_a_figure_of_nothing_is_reported(unit, floor):
    nothing = figure("followers of one core: 10,000/s, p99 under 10 ms", 0.0, floor=(floor,))
    nothing = replace(nothing, unit=unit)
    report.show([nothing])
    assert len(report.row(nothing)) == len(report.HEADINGS)
    found = verdicts([nothing])
    assert report.judged([nothing])[found[0].budget.path]
    assert page.summary(found)


def test_a_median_is_not_moved_by_one_bad_repetition():
    assert figure("x: y", 1.0, 2.0, 900.0).value == 2.0


def test_measures_alternate_after_a_turn_that_does_not_count():
    order = []
    taken = in_turn(2, lambda: order.append("a") or 1.0, lambda: order.append("b") or 2.0)
    assert order == ["a", "b"] * 3
    assert taken == [[1.0, 1.0], [2.0, 2.0]]


def test_a_missed_budget_says_by_how_much():
    (verdict,) = verdicts([figure("query in the engine: top 10", 10.0)])
    assert "missed: 10 ms, aim at most 5 (2.00 times the aim)" in report.said(verdict)


def test_a_met_budget_says_so():
    (verdict,) = verdicts([figure("query in the engine: top 10", 4.0)])
    assert report.said(verdict).startswith("met: 4 ms")


def test_lines_are_counted_however_the_stream_is_cut():
    stream = b"\x82\x03a\nb" + b"\x82\x7e\x00\xc8" + b"\n" * 200 + b"\x89\x00" + b"\x82\x01x"
    for size in (1, 2, 3, 7, len(stream)):
        counter = LineCounter()
        for at in range(0, len(stream), size):
            counter.feed(stream[at : at + size])
        assert (counter.lines, counter.pings, counter.left) == (2 + 201 + 1, 1, 0)


def test_a_refusal_ends_a_benchmark():
    with pytest.raises(ConnectionError, match="disk full"):
        LineCounter().feed(b'\x82\x32{"c":"ack","status":"failure","reason":"disk full"}')


@pytest.mark.edge
def test_two_trees_are_given_the_same_work():
    found = dict(pairs.ratios(ROOT, ROOT, 2, pairs.SMALL))
    assert [len(each) for each in found.values()] == [2] * 8
    assert min(map(min, found.values())) > 0
