"""Staged rows: read in runs of one kind, each good or refused by its place."""

import gc
import sys
from itertools import permutations

import pytest

from sow.core.definitions import Topic
from sow.errors import BadMessage
from sow.sessions.commands import commit_plan as module
from sow.sessions.commands.commit_plan import BatchContent, StagedRows, content_of, read
from tests.topic.making import body, records

KEYLESS = Topic("blobs", "json")


def rows(*given):
    """Rows of (operation, key, document or None)."""
    operations, keys, documents = zip(*given, strict=True)
    bodies = [None if one is None else body(**one) for one in documents]
    return StagedRows(operations, keys, bodies)


def test_runs_are_of_one_operation_and_not_too_long(monkeypatch):
    monkeypatch.setattr(module, "STORED_AT_ONCE", 2)
    given = rows(*[("publish", None, {"id": n}) for n in range(3)], ("delete", "1", None))
    assert [(run.operations[0], len(run)) for run in given.runs()] == [
        ("publish", 2),
        ("publish", 1),
        ("delete", 1),
    ]


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        (("upsert", None, {"id": 1}), "op is 'upsert'"),
        (("publish", None, None), "there is no value"),
        (("delete", None, None), "there is no key"),
    ],
)
def test_a_row_that_cannot_be_is_refused(given, detail):
    with pytest.raises(BadMessage, match=detail):
        read(records(), rows(given))


def test_a_topic_without_keys_is_sent_them():
    step = read(records(KEYLESS), rows(("publish", "a", {"v": 1})))
    assert step.messages.identities == ["a"]
    with pytest.raises(BadMessage, match="there is no key"):
        read(records(KEYLESS), rows(("publish", None, {"v": 1})))


def test_a_delete_names_its_record_by_body_or_key():
    by_body = read(records(), rows(("delete", None, {"id": 1})))
    assert by_body.messages.identities == records().identities_of([body(id=1)])
    by_key = read(records(), rows(("delete", "17", None)))
    assert (by_key.messages.identities, by_key.sow_keys) == ([], ["17"])


def test_long_rows_are_few_in_a_run(monkeypatch):
    monkeypatch.setattr(module, "SLICE_BYTES", 30)
    sizes = (5, 10, 10, 40, 5)
    given = StagedRows(["publish"] * 5, [None] * 5, [b"x" * size for size in sizes])
    assert [len(run) for run in given.runs()] == [3, 1, 1]


def test_what_waits_to_be_committed_is_kept_from_the_collector():
    (run,) = StagedRows(["publish"] * 2, [None] * 2, [b"1", b"2"]).runs()
    assert not any(map(gc.is_tracked, (run.operations, run.keys, run.bodies)))


ROWS = [("publish", None, b"{}"), ("publish", "k", b"{}"), ("delete", "k", None)]


def content(*rows):
    operations, keys, bodies = zip(*rows, strict=True) if rows else ((), (), ())
    return content_of(StagedRows(operations, keys, bodies))


def test_order_and_chunks_make_no_difference():
    whole = content(*ROWS)
    for some in permutations(ROWS):
        assert content(*some) == whole
        assert content(*some[:1]).plus(content(*some[1:])) == whole
    assert whole.may_be(str(whole))


@pytest.mark.parametrize(
    "other",
    [
        ROWS[:2],
        [*ROWS, ROWS[0]],
        [*ROWS[:2], ("delete", "l", None)],
        [*ROWS[:2], ("expire", "k", None)],
        [("publish", "k", b"{}"), ("publish", "k", b"{}"), ("delete", "k", None)],
        [("publish", None, b"1:k{}"), ("publish", None, b"{}"), ("delete", "k", None)],
        [],
    ],
)
def test_one_row_more_less_or_other_is_another_content(other):
    assert not content(*other).may_be(str(content(*ROWS)))


def test_what_an_earlier_version_has_noted_of_rows_is_what_they_are():
    assert str(content(*ROWS)) == "3-8b654283127ac41b3a7a6778e94976d3"


def test_a_row_is_read_and_summed_up_without_a_call_of_python_for_it():
    def calls(count):
        given = rows(*[("publish", None, {"id": n}) for n in range(count)])
        found = []
        sys.setprofile(lambda frame, event, _: found.append(event))
        try:
            for run in given.runs():
                read(there, run)
            content_of(given)
        finally:
            sys.setprofile(None)
        return found.count("call"), found.count("c_call")

    there = records()
    calls(1)  # what is made once
    few, more = calls(250), calls(1250)
    assert more[0] - few[0] < 4 * 40
    assert more[1] - few[1] < 5.5 * 1000


def test_of_rows_that_are_gone_the_number_is_compared():
    text = str(content(*ROWS))
    assert BatchContent(3, None).may_be(text)
    assert not BatchContent(30, None).may_be(text)
    assert content(ROWS[0]).plus(BatchContent(2, None)) == BatchContent(3, None)
