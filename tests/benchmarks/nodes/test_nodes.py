"""The benchmarks of edges and followers run, and their page says what was measured and no more."""

from importlib import import_module

import pytest

from tests.benchmarks.measure import Figure
from tests.benchmarks.nodes import edges, page
from tests.benchmarks.nodes.__main__ import CATALOGUE
from tests.benchmarks.nodes.budgets import BUDGETS
from tests.benchmarks.nodes.sizes import FULL, TINY
from tests.benchmarks.results import Run, load
from tests.docs import nodes as part

FACTS = {"date": "2026-01-01 00:00 UTC", "cores": "2"}
WITH_MANY_PROCESSES = ("primary", "crowd", "staleness")
MARKS = {
    **{name: [pytest.mark.slow] for name in WITH_MANY_PROCESSES},
    "shared": [pytest.mark.slow, pytest.mark.nats_server],
}


def figure(name, value, floor=1.0, unit="ms"):
    benchmark, _, case = name.partition(": ")
    return Figure(benchmark, case, unit, [value], [floor], "the floor", note="a note")


def measured(*values):
    """Figures of these values for all that is promised, and for all that the part shows."""
    promised = [one.figure for one in BUDGETS]
    shown = [name for _, names, _ in part.ROWS for name in names]
    return [figure(name, *values) for name in dict.fromkeys([*promised, *shown])]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "RAW", tmp_path / "nodes.json")
    monkeypatch.setattr(page, "PAGE", tmp_path / "nodes.md")
    return page.PAGE


@pytest.mark.edge
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, [])) for name in CATALOGUE]
)
def test_a_benchmark_gives_figures_beside_floors(name):
    found = list(CATALOGUE[name](TINY))
    assert found
    for one in found:
        assert min(*one.ours, *one.floor) > 0, one.name


@pytest.mark.parametrize("size", [TINY, FULL])
def test_what_is_promised_is_what_is_measured(size, monkeypatch):
    """The names of the figures, with nodes that do nothing."""

    class Nothing:
        memory_kib = took_s = 1.0
        play = staticmethod(lambda *_: edges.Used(1.0, 1.0, 1))
        send = ours = staticmethod(lambda *_: (1.0, 1.0))
        url, primary = "", None

        def __init__(self, *_, **__):
            self.screens = 1

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    for name in ("Nodes", "Blaster", "ServerProcess", "Run"):
        monkeypatch.setattr(edges, name, Nothing)
    names = {
        one.name for name in (*WITH_MANY_PROCESSES, "passing") for one in CATALOGUE[name](size)
    }
    of_edges = {one.figure for one in BUDGETS if one.figure.partition(":")[0] in OF_EDGES}
    assert (of_edges <= names) is (size is FULL)


OF_EDGES = ("primary's CPU", "an edge", "staleness", "connections")


def test_the_files_that_a_process_may_open_are_said_where_they_are_too_few(monkeypatch):
    assert edges.allowed(10) == (10, "")
    monkeypatch.setattr(edges.resource, "getrlimit", lambda _: (1024, 1024))
    found, words = edges.allowed(10_000)
    assert found == 2 * (1024 - edges.SPARE_FILES)
    assert "a process may open 1,024 files here (ulimit -Hn)" in words


def test_the_page_has_each_promise_and_each_figure_and_a_part_run_keeps_the_rest(elsewhere):
    assert page.NOT_YET in page.made()
    page.publish(Run("full, 3 repetitions", FACTS, {"a": 1.0}, measured(0.1)), False)
    text = elsewhere.read_text()
    kinds = {(one.figure.partition(":")[0], one.unit) for one in BUDGETS}
    assert text.count("| met") + text.count("| **missed**") == len(kinds)
    assert "a note" in text
    again = Run("full, 3 repetitions", FACTS, {"b": 1.0}, [figure("first copy: x", 7.0)])
    page.publish(again, True)
    assert len(load(page.RAW, Figure).measured) == len(measured(0.1)) + 1


def test_the_part_that_sizes_a_system_computes_with_what_was_measured(elsewhere):
    assert part.table() == page.NOT_YET
    page.publish(Run("full", FACTS, {}, measured(0.5)), False)
    assert "2,000 MB/s a core" in part.table()
    assert "13,000 MB/s, which is 433,333 screens" in part.table()
    page.publish(Run("full", FACTS, {}, measured(1.0)), False)
    assert "1,000 MB/s a core" in part.table()
    page.publish(Run("quick", FACTS, {}, [figure("first copy: x", 7.0)]), False)
    assert part.table().count("not measured | -") == len(part.ROWS)


def test_a_run_shows_its_figures_and_keeps_them_if_asked(elsewhere, monkeypatch, capsys):
    program = import_module("tests.benchmarks.nodes.__main__")
    monkeypatch.setattr(program, "CATALOGUE", {"crowd": lambda _: [figure("an edge: one", 3.0)]})
    monkeypatch.setattr("sys.argv", ["nodes", "crowd", "--tiny"])
    program.main()
    assert not elsewhere.exists()
    monkeypatch.setattr("sys.argv", ["nodes", "--tiny", "--write"])
    program.main()
    assert "| one | ms | 3 |" in elsewhere.read_text()
    assert "an edge" in capsys.readouterr().out
