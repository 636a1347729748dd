"""The comparison can be run with what is always here, and finds wrong answers and lost records."""

import pytest

from tests.benchmarks.peers.asking import check, requested_of_library, requested_of_ours
from tests.benchmarks.peers.comparison import rows_of
from tests.benchmarks.peers.embedded import Embedded
from tests.benchmarks.peers.grouping import check as check_groups
from tests.benchmarks.peers.grouping import expected, grouped_by_library, grouped_by_ours
from tests.benchmarks.peers.load import Load, final, lost
from tests.benchmarks.peers.nats import HEAD
from tests.benchmarks.peers.ours import Ours
from tests.benchmarks.peers.questions import QUESTIONS, keys_of
from tests.benchmarks.peers.taking import killed, taken

LOAD = Load(keys=20, count=60, size=10)


def sqlite():
    return Embedded("SQLite", "SQLite", "fsync")


@pytest.mark.edge
@pytest.mark.parametrize("make", [Ours, sqlite])
def test_what_is_taken_is_there_and_survives_a_kill(make):
    assert taken(make(), LOAD).rate > 0
    assert killed(make(), LOAD) == 0


@pytest.mark.edge
def test_questions_are_answered_alike():
    fill, load = Load(200, 200, 50, seed=3), Load(200, 100, 50, seed=4)
    cases = [question.case for question in QUESTIONS]
    assert [requested.case for requested in requested_of_ours(load, fill, 5000, 2)] == cases
    assert [
        requested.case for requested in requested_of_library(sqlite(), load, fill, 5000, 2)
    ] == cases


@pytest.mark.edge
def test_groups_are_kept_alike():
    fill, load = Load(50, 50, 50, seed=3, each_once=True), Load(50, 40, 10, seed=4)
    ours = grouped_by_ours(load, fill, 5000)
    for found in (ours, grouped_by_library(sqlite(), load, fill, 5000)):
        assert len(found.late_ms) == 4, "each batch"
        assert min(found.late_ms) > 0
        assert found.cpu_s_per_million > 0


def test_wrong_groups_are_found():
    fill, load = Load(50, 50, 50, seed=3, each_once=True), Load(50, 40, 10, seed=4)
    right = expected(final(fill.batches()) | final(load.batches()))
    check_groups(right, load, fill)
    (region, row), *_ = right.items()
    for at in range(len(row)):
        wrong = [value + (place == at) for place, value in enumerate(row)]
        with pytest.raises(AssertionError):
            check_groups({**right, region: wrong}, load, fill)
    with pytest.raises(AssertionError):
        check_groups({**right, "none": row}, load, fill)


def test_an_older_state_than_what_was_acknowledged_is_lost():
    batches = LOAD.batches()
    assert lost(batches, len(batches), final(batches)) == 0
    assert lost(batches, 3, final(batches[:3])) == 0
    assert lost(batches, 3, final(batches[:5])) == 0
    assert lost(batches, 3, final(batches[:2])) > 0
    assert lost(batches, 3, final(batches) | {99: b"never sent"}) == 1


def test_a_wrong_answer_is_found():
    records = final(LOAD.batches())
    for question in QUESTIONS:
        right = keys_of(question, records)
        check(question, right, records)
        with pytest.raises(AssertionError):
            check(question, [*right, max(records)], records)


def test_a_message_of_nats_is_sent_from_its_payload():
    found = HEAD.match(b"MSG orders.7 1 inbox 12\r\n")
    assert found is not None
    assert (found[1], found[2]) == (b"orders.7", b"12")


@pytest.mark.edge
def test_a_row_says_what_it_promises_and_what_else_was_measured():
    fill, load = Load(50, 50, 50, seed=3, each_once=True), Load(50, 50, 50, seed=4)
    assert sorted(final(fill.batches())) == list(range(50)), "every key once"
    (first, *_) = rows_of("SQLite", "fsync", requested_of_library(sqlite(), load, fill, 5000, 2))
    assert (first.durability, len(first.values)) == ("fsync", 2)
    assert {"ms p50:", "ms max:", "updates/s meanwhile:"} <= first.also.keys()
