"""What a worker knows of its task, as Spark would tell it."""

from typing import ClassVar

import pytest

pytest.importorskip("pyspark")

from sow.spark import task_context


class Context:
    """One attempt at part 3 of batch 7."""

    def partitionId(self):  # noqa: N802 (the names are Spark's)
        return 3

    def taskAttemptId(self):  # noqa: N802
        return 12

    properties: ClassVar = {task_context.QUERY_ID: "the-query", task_context.BATCH_ID: "7"}

    def getLocalProperty(self, name):  # noqa: N802
        return self.properties.get(name)


@pytest.fixture(autouse=True)
def context(monkeypatch):
    monkeypatch.setattr(task_context.TaskContext, "get", Context)


def test_two_attempts_at_a_part_have_names_of_their_own():
    one, other = task_context.part_and_attempt(), task_context.part_and_attempt()
    assert one[0] == other[0] == 3
    assert one[1] != other[1]
    assert one[1].startswith("12-")


def test_a_task_of_a_stream_knows_its_query_and_its_batch():
    assert task_context.query_and_batch() == ("the-query", 7)


@pytest.mark.parametrize(
    ("properties", "makes"),
    [
        ({task_context.EXECUTION: "0", task_context.OUTERMOST: "0"}, False),
        ({task_context.EXECUTION: "2", task_context.OUTERMOST: "1"}, True),
        (
            {
                task_context.EXECUTION: "2",
                task_context.OUTERMOST: "1",
                task_context.QUERY_ID: "a stream's",
            },
            False,
        ),
        ({}, False),
    ],
)
def test_a_write_within_another_execution_is_for_a_table(monkeypatch, properties, makes):
    monkeypatch.setattr(Context, "properties", properties)
    assert task_context.makes_a_table() == makes


def test_where_there_is_no_task_there_is_one_part(monkeypatch):
    monkeypatch.setattr(task_context.TaskContext, "get", lambda: None)
    part, attempt = task_context.part_and_attempt()
    assert part == 0
    assert attempt.startswith("0-")
