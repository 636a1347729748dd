"""The judge of faults sees each thing that can be wrong, and the page says what was counted."""

import asyncio
from types import SimpleNamespace

import pytest

from tests.crash.faults import catalogue
from tests.crash.faults.judge import differences, judged, records_of, shown_as_stored, unlike
from tests.crash.faults.nodes import STEP, since

STORED = [("plain", 1), ("feed", 1), ("plain", 2), ("feed", 2), ("plain", 4)]


def verdict(stored=STORED, acknowledged=(1, 2), refused=(3,), last=2, lines=STORED):
    publisher = SimpleNamespace(acknowledged=set(acknowledged), refused=set(refused))
    return judged(
        stored, publisher, SimpleNamespace(last=last), [SimpleNamespace(lines=list(lines))]
    )


def test_what_nobody_knows_may_be_there_or_not():
    assert verdict().is_good


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("lost", {"acknowledged": (1, 2, 5)}),
        ("lost", {"last": 3}),
        ("doubled", {"stored": [*STORED, ("feed", 2)], "lines": [*STORED, ("feed", 2)]}),
        ("refused", {"refused": (4,)}),
        ("gaps", {"lines": STORED[:-1]}),
        ("gaps", {"lines": [STORED[0], STORED[2], STORED[1], *STORED[3:]]}),
        ("gaps", {"lines": [*STORED[:2], STORED[1], *STORED[2:]]}),
        ("gaps", {"lines": []}),
    ],
)
def test_each_fault_is_counted(what, changed):
    found = verdict(**changed)
    assert getattr(found, what) > 0
    assert not found.is_good
    assert found.named


def test_a_subscriber_from_now_on_begins_anywhere():
    assert differences(STORED, STORED[2:]) == []
    assert differences(STORED, STORED[2:4]) == [("plain", 4)]


def test_nodes_that_show_something_else_are_named():
    same = ("log", "7", "00", [])
    assert unlike({"a": same, "b": same, "c": same}) == []
    assert unlike({"a": same, "b": ("log", "7", "01", []), "c": same}) == ["b: state hash"]


def test_a_node_that_is_stale_for_a_moment_is_not_taken_for_one_that_differs():
    answers = [None, [{"id": 1}]]

    class Nodes:
        async def ask(self, _name, _path):
            return answers.pop(0)

        async def until(self, what, _why):
            while (found := await what()) is None:
                pass
            return found

    assert asyncio.run(records_of(Nodes(), "a", "plain")) == [{"id": 1}]


def test_records_are_the_last_of_each_key_in_the_log():
    rows = [{"topic": "plain", "d": {"id": 1, "n": n}} for n in (1, 2)]
    assert shown_as_stored(rows, [[{"id": 1, "n": 2}], []]) == []
    assert shown_as_stored(rows, [[{"id": 1, "n": 1}], []]) == ["plain"]
    assert shown_as_stored(rows, [[{"id": 1, "n": 2}], [{"id": 1}]]) == ["feed"]


def test_the_page_has_what_was_played_once_and_adds_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "RESULTS", tmp_path / "faults.json")
    facts = {"acknowledged": 7, "unknown": 1, "terms": 2, "void": 3, "moves": 4, "told_gaps": 0}
    run = SimpleNamespace(
        seed=5,
        faults={"node killed": 2, "node paused": 1},
        waits_s={"node killed": [2.0, 4.0], "node paused": []},
        long_steps={"node killed": 1, "node paused": 0},
        longest_step={"node killed": [62, "following"], "node paused": [0, ""]},
        facts={**facts, "longest_step_ms": [9, "writing"], "longest_read_ms": 1234},
        verdict=verdict(),
    )
    assert catalogue.table() == ""
    for adds in (False, True):
        catalogue.write(catalogue.entry(catalogue.title("nats"), run), adds)
    said = catalogue.table()
    assert said.count("**nats**") == 1
    assert "seed 5): 6 faults in 2 runs, 4 terms, 6 void entries" in said
    assert "1,234 ms, the longest step, writing, 9 ms" in said
    assert "| node killed | 4 | 3.00 | 4.00 | 4.00 | 2; 62 ms, following |" in said
    assert "| node paused | 2 | – | – | – | 0 |" in said
    catalogue.write(catalogue.entry(catalogue.title("nats"), run), False)
    catalogue.write(catalogue.entry(catalogue.title("nats", "node killed"), run), False)
    said = catalogue.table()
    assert said.count("3 faults in 1 runs") == 2
    assert "**nats, node killed alone, the one that leads**" in said
    catalogue.write(catalogue.entry(catalogue.title("nats", is_busy=True), run), False)
    assert catalogue.table().count("**nats, on a busy machine**") == 1
    first = catalogue.entry(catalogue.title("nats"), run)
    for of in first["kinds"].values():
        del of["long_steps"], of["longest_step_ms"]
    catalogue.write(first, False)
    catalogue.write(catalogue.entry(catalogue.title("nats"), run), True)
    assert "| 4.00 | 2; 62 ms" not in catalogue.table()
    assert "| 4.00 | 1; 62 ms, following (of 2) |" in catalogue.table()


def test_a_stall_is_what_has_come_since_the_last_reading_also_of_a_server_that_has_started_again():
    text = """sow_step_longest_seconds{step="following"} 0.2
sow_step_longest_seconds{step="a delete"} 0.012
sow_steps_long_total{step="following"} 3.0
"""
    now = {(what, step): float(value) for what, step, value in STEP.findall(text)}
    assert since({}, now) == (3, [[200, "following"], [12, "a delete"]])
    assert since(now, now) == (0, [])
    assert since(now, now | {("s_long_total", "following"): 5.0}) == (2, [])
    again = {("s_long_total", "following"): 1.0, ("_longest_seconds", "following"): 0.07}
    assert since(now, again) == (1, [[70, "following"]])
