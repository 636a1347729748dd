"""What a worker knows of its task, as Spark would tell it."""

from typing import ClassVar

import pytest

pytest.importorskip("pyspark")

from sow.spark import tasks


class Context:
    """One attempt at part 3 of batch 7."""

    def partitionId(self):  # noqa: N802 (the names are Spark's)
        return 3

    def taskAttemptId(self):  # noqa: N802
        return 12

    properties: ClassVar = {tasks.QUERY_ID: "the-query", tasks.BATCH_ID: "7"}

    def getLocalProperty(self, name):  # noqa: N802
        return self.properties.get(name)


@pytest.fixture(autouse=True)
def context(monkeypatch):
    monkeypatch.setattr(tasks.TaskContext, "get", Context)


def test_two_attempts_at_a_part_have_names_of_their_own():
    one, other = tasks.part_and_attempt(), tasks.part_and_attempt()
    assert one[0] == other[0] == 3
    assert one[1] != other[1]
    assert one[1].startswith("12-")


def test_a_task_of_a_stream_knows_its_query_and_its_batch():
    assert tasks.query_and_batch() == ("the-query", 7)


@pytest.mark.parametrize(
    ("properties", "makes"),
    [
        ({tasks.EXECUTION: "0", tasks.OUTERMOST: "0"}, False),
        ({tasks.EXECUTION: "2", tasks.OUTERMOST: "1"}, True),
        ({tasks.EXECUTION: "2", tasks.OUTERMOST: "1", tasks.QUERY_ID: "a stream's"}, False),
        ({}, False),
    ],
)
def test_a_write_within_another_execution_is_for_a_table(monkeypatch, properties, makes):
    monkeypatch.setattr(Context, "properties", properties)
    assert tasks.makes_a_table() == makes


def test_where_there_is_no_task_there_is_one_part(monkeypatch):
    monkeypatch.setattr(tasks.TaskContext, "get", lambda: None)
    part, attempt = tasks.part_and_attempt()
    assert part == 0
    assert attempt.startswith("0-")
