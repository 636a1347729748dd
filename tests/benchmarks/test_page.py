"""The page is what the raw results say, and what a run measures is kept whole."""

from importlib import import_module

import pytest

from tests.benchmarks import page
from tests.benchmarks.budgets import Budget, value
from tests.benchmarks.machine import LIBRARIES, facts
from tests.benchmarks.measure import Figure
from tests.benchmarks.page import PAGE, PARTS, PROFILES, made, publish
from tests.benchmarks.results import Run, load, put_in, save
from tests.benchmarks.share import REST, Share
from tests.benchmarks.sowbench.row import Row
from tests.benchmarks.spark.loads import Shape

FACTS = {"date": "2026-01-01 00:00 UTC", "cores": "2"}


def run_of(*measured):
    return Run("tiny, 1 repetitions", FACTS, {"one": 90.0, "two": 1.5}, measured)


def figure(case="top 10", ours=(4.0,)):
    return Figure("query in the engine", case, "ms", ours, [1.0], "numpy", 2.5, "a note")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A page, raw results and budgets of its own."""
    cases = ("top 10", "of one", "of two", "of two, more", "of broken")
    budgets = [
        Budget(one, f"query in the engine: {one}", value, at, "ms")
        for at, one in enumerate(cases, 5)
    ]
    monkeypatch.setattr(page, "BUDGETS", budgets)
    monkeypatch.setattr(page, "SPARK_BUDGETS", budgets)
    monkeypatch.setattr(page, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(page, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(page, "PROFILES", page.PAGE)
    parts = "".join(f"{part.begin}\nold\n{part.end}\n" for part in PARTS.values())
    page.PAGE.write_text(f"before\n{parts}after\n")
    return page.PAGE


@pytest.mark.parametrize("path", [PAGE, PROFILES])
def test_a_page_in_the_docs_is_made_of_the_raw_results_in_the_docs(path):
    text = path.read_text()
    assert made(text) == text, f"{path} is out of date; run: make docs"


def test_no_table_of_the_page_was_put_there_by_hand():
    text = PAGE.read_text()
    parts = [part for part in PARTS.values() if part.begin in text]
    for part in parts:
        text = page.put(text, part.begin, "", part.end)
    by_hand = [line for line in text.splitlines() if line.startswith("|")]
    assert by_hand[0] == "| measures | with | in about |"
    # SOWbench, edges and followers, and profiles have pages of their own.
    assert len(by_hand) == 2 + len(parts) + 3, "what measures what, and no figures"


@pytest.mark.parametrize("is_part", [False, True])
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_part_keeps_what_stands_around_it(elsewhere, part, is_part):
    """Also where some benchmarks are run, and nothing is kept of the others."""
    measured = {
        Share: [Share("a path", "a part", 4.0, "ms", 1.0)],
        Figure: [figure()],
    }
    publish(part.target, run_of(*measured[part.kind]), is_part)
    text = elsewhere.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "4 ms" in text or "| top 10 | 4 ms |" in text
    assert "1 repetitions, it took 2 min" in text
    others = [one for one in PARTS.values() if one.target != part.target]
    assert text.count("Not measured yet") == len(others)


@pytest.mark.parametrize(
    "measured",
    [figure("a", [1.5, 2.25]), Row("a", "b", [1.5, 2.25], "ms", "none", also={"p50": [1.0]})],
)
def test_what_was_measured_is_kept_with_every_repetition(tmp_path, measured):
    path = tmp_path / "results" / "run.json"
    save(path, run_of(measured, measured))
    found = load(path, type(measured))
    assert (found.size, found.facts, found.took_s) == (
        "tiny, 1 repetitions",
        FACTS,
        {"one": 90.0, "two": 1.5},
    )
    save(tmp_path / "again.json", found)
    assert (tmp_path / "again.json").read_text() == path.read_text()
    assert [list(one.ours if type(one) is Figure else one.values) for one in found.measured] == [
        [1.5, 2.25]
    ] * 2


@pytest.fixture
def there():
    """Two benchmarks of no cost."""
    return {name: lambda sizes, name=name: [figure(f"of {name}")] for name in ("one", "stalls")}


@pytest.fixture
def bench(elsewhere, monkeypatch, there):
    """`python -m tests.benchmarks` with benchmarks of no cost."""
    program = import_module("tests.benchmarks.__main__")
    monkeypatch.setattr(program, "CATALOGUE", there)

    def run(*words):
        monkeypatch.setattr("sys.argv", ["benchmarks", *words])
        program.main()
        return elsewhere.read_text()

    return run


def test_a_whole_run_is_kept_and_stalls_have_a_part_of_their_own(bench):
    text = bench("--tiny", "--write")
    assert "| of one | 4 ms |" in text
    assert "of stalls" not in text
    text = bench("stalls", "--tiny", "--write")
    assert "| of stalls | 4 ms | 1 ms | a note |" in text
    assert "| of one | 4 ms |" in text
    assert sorted(path.name for path in page.FOLDER.iterdir()) == ["bench.json", "stalls.json"]


@pytest.mark.parametrize("words", [("one", "stalls", "--write"), ("two",), ("--tiny", "--quick")])
def test_nonsense_is_usage(bench, words, capsys):
    with pytest.raises(SystemExit) as ended:
        bench(*words)
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_what_is_measured_again_stands_beside_the_rest_and_says_so(bench, there, monkeypatch):
    there["two"] = lambda sizes: [figure("of two")]
    bench("--tiny", "--write")
    there["two"] = lambda sizes: [figure("of two", [7.0]), figure("of two, more", [8.0])]
    facts = {"date": "2026-02-02 00:00 UTC", "SOW": "9.9 at abc"}
    monkeypatch.setattr(import_module("tests.benchmarks.__main__"), "facts", lambda: facts)
    text = bench("two", "--tiny", "--write")
    assert "| of one | 4 ms |" in text
    assert "| of two | 7 ms |" in text
    assert "| of two, more | 8 ms |" in text
    assert "- measured apart, 2026-02-02 00:00 UTC, 9.9 at abc: two\n" in text
    with pytest.raises(SystemExit, match="of another size"):
        bench("two", "--quick", "--write")
    assert page.PAGE.read_text() == text
    assert "apart" not in bench("--tiny", "--write"), "a whole run stands for itself"


def test_what_is_measured_again_is_replaced_subject_by_subject():
    paths = ("a", "a", "b"), ("b", "b", "c")
    kept, again = (run_of(*[Share(path, "part", 1, "ms", 1) for path in one]) for one in paths)
    facts = {**FACTS, "SOW": "1"}
    from_scratch = [one._replace(value=2) for one in again.measured]
    found = put_in(kept, Run(kept.size, facts, {"x": 1.0}, from_scratch))
    assert [(one.path, one.value) for one in found.measured] == [
        ("a", 1), ("a", 1), ("b", 2), ("b", 2), ("c", 2),
    ]  # fmt: skip


def test_what_fails_is_left_out_of_a_run_and_said(bench, there):
    there["broken"] = lambda sizes: [figure("of broken"), 1 // 0]
    with pytest.raises(SystemExit, match="not measured, since it failed: broken"):
        bench("--tiny", "--write")
    assert "| of one | 4 ms |" in page.PAGE.read_text()
    assert "of broken" not in page.PAGE.read_text()
    del there["one"]
    with pytest.raises(SystemExit, match="nothing was measured"):
        bench("--tiny", "--write")
    assert "| of one | 4 ms |" in page.PAGE.read_text()


def test_a_part_may_be_looked_at(bench):
    assert "of one" not in bench("one", "--tiny")


def test_a_profile_shows_the_whole_of_a_path_and_its_largest_parts():
    parts = [
        Share("restart", "the log", 3.0, "s", 0.75),
        Share("restart", REST, 1, "s", 0.25),
    ]
    assert "| restart | 4 s | the log 75% |" in page.of_profiles(run_of(*parts))


def test_cases_with_one_aim_have_one_line_and_a_missed_aim_its_reason(monkeypatch):
    budgets = [Budget(one, f"query in the engine: {one}", value, 5, "ms") for one in "abc"]
    monkeypatch.setattr(page, "REASONS", {"b": "it is slow", "c": "it is slow"})
    figures = [figure("a", (1.0,)), figure("b", (6.0,)), figure("c", (10.0,))]
    text = page.of_figures(run_of(*figures), budgets)
    assert "- **b, and 1 more**: it is slow" in page.of_reasons(run_of(*figures), budgets)
    assert "| c | 10 ms | at most 5 | 1 ms (numpy) | 0.1 |" in text
    assert "**missed**, 2.00 times the aim; the worst of 3, 2 missed |" in text
    assert "| a |" not in text


def test_a_run_says_what_it_ran_on_and_not_where():
    found = facts((*LIBRARIES, "not-there"))
    assert {"date", "SOW", "processor", "cores", "Python", "libraries"} <= found.keys()
    assert "not-there" not in found["libraries"]


def test_a_load_knows_the_last_row_of_each_of_its_keys():
    shape = Shape(rows=2_000, keys=400)
    last = {}
    for number in range(shape.rows):
        task = number // shape.of_task
        last[task * shape.keys_of_task + number % shape.keys_of_task] = number
    assert len(last) == shape.keys
    assert sum(last.values()) == shape.last()
