"""Random queries, answered by the whole server and by SQLite.

`SOW_FUZZ_QUESTIONS=100000` (which `make fuzz` sets) runs so many, new ones every time; by default
2,000, always the same. A failure names the seed.
"""

import os
from random import Random, SystemRandom

from sow.core.definitions import Topic
from sow.expressions import MessageTrait, walk
from sow.query import answers
from tests.effort import TIMES
from tests.expressions.every_node import node_classes
from tests.fuzz.sql import FIELDS, Question, Questions, connected
from tests.laws.harness import World, short

QUESTIONS = int(os.environ.get("SOW_FUZZ_QUESTIONS", "0"))
REQUESTED_OF_ONE = 250
"""Questions to one world: then another one begins, with other columns made in another order."""
RECORDS = 24
PLAIN = Topic("plain", "json", keys=("/id",))
INDEXED = Topic(
    "indexed",
    "json",
    keys=("/id",),
    hash_indexes=(("/i",), ("/s", "/m"), ("/m",)),
    indexes=("/f", "/t"),
)


class Both:
    """The same records in two topics, one of them with indexes, and in SQLite."""

    def __init__(self, rng: Random) -> None:
        self.questions = Questions(rng)
        self.world = World(PLAIN, INDEXED)
        self.client = self.world.client()
        self.base = connected()
        for number in range(RECORDS):
            self.put(number)

    def put(self, number: int) -> None:
        """A record that is new, or another state of it."""
        record = {"id": number, **self.questions.record()}
        for topic in (PLAIN, INDEXED):
            self.world.publish(topic.name, record)
        row = [number, *[record.get(name) for name in FIELDS]]
        names = ", ".join(f"{name} = excluded.{name}" for name in FIELDS)
        places = ", ".join("?" * len(row))
        self.base.execute(
            f"INSERT INTO records VALUES ({places}) ON CONFLICT (id) DO UPDATE SET {names}", row
        )

    def drop(self, number: int) -> None:
        """A record that is there goes; the next of its key is the youngest."""
        for topic in (PLAIN, INDEXED):
            self.world.delete(topic.name, f"/id = {number}")
        self.base.execute("DELETE FROM records WHERE id = ?", [number])

    def expected(self, question: Question) -> list[int]:
        """What SQLite answers."""
        return [row[0] for row in self.base.execute(f"SELECT id FROM records WHERE {question.sql}")]

    def answered(self, topic: Topic, question: Question) -> list[int]:
        """What the server does."""
        lines = self.client.say(c="sow", t=topic.name, cid="1", **question.options)
        assert [line["status"] for line in lines if line["c"] == "ack"] == ["success"], lines
        return [document["id"] for _, document in short(lines)]


def test_any_question_has_the_answer_of_sqlite(monkeypatch) -> None:
    seed = SystemRandom().randrange(10**9) if QUESTIONS else 0
    few_rows, met = answers.FEW_ROWS, set()
    for block in range((QUESTIONS or 2_000 * TIMES) // REQUESTED_OF_ONE):
        rng = Random(f"{seed} {block}")
        both = Both(rng)
        for number in range(REQUESTED_OF_ONE):
            rng.choice([both.put, both.drop, *[lambda _: None] * 6])(rng.randrange(RECORDS))
            question, topic = both.questions.question(), rng.choice((PLAIN, INDEXED))
            # The records are so few that no column would be made of them.
            monkeypatch.setattr(answers, "FEW_ROWS", rng.choice((0, few_rows)))
            answered, expected = both.answered(topic, question), both.expected(question)
            where = f"seed {seed}, block {block}, question {number}, topic {topic.name}"
            assert answered == expected, f"{where}: {question.options}; {question.sql}"
            met |= set(map(type, walk(question.filter)))
    assert met == node_classes() - {MessageTrait}
