"""Generated code for a record and columns for many at once evaluate one language: they agree."""

import json

from sow.core.cooperative import run_to_completion
from sow.expressions import MessageTrait, Trait, compile_term, walk
from sow.query import Query, answering
from tests.expressions.every_node import A, B, beside_fields, every_condition, node_classes
from tests.expressions.naive import truth
from tests.query.topic import Topic

VALUES = (None, "", 1, 5, 2.5, "ab", "5", True, [5, "ab"])
OTHERS = (3, "ab", 5, None, 7, "x", 5, "", 2.5)
RECORDS = [
    {"id": number, "a": a, "b": b} for number, (a, b) in enumerate(zip(VALUES, OTHERS, strict=True))
]
KNOWN = [
    {A.path: record["a"], B.path: record["b"], Trait.MESSAGE_SIZE: len(json.dumps(record))}
    for record in RECORDS
]


def test_every_class_of_nodes_is_compared_and_the_evaluators_agree() -> None:
    topic = Topic()
    topic.put(*RECORDS)
    met, by_columns = set(), set()
    for condition in every_condition():
        for node in beside_fields(condition):
            requested = Query(filter=compile_term(node))
            expected = [slot for slot, record in enumerate(KNOWN) if truth(node, record)]
            by_code = topic.indexes.passing(requested.filter, topic.table.live()).nonzero()[0]
            answer = run_to_completion(answering(topic.indexes, requested))
            assert (by_code.tolist(), answer.slots.tolist()) == (expected, expected), str(node)
            classes = set(map(type, walk(node)))
            met |= classes
            if len(requested.filter.conjuncts) == 1 and answer.kind == "memo":
                by_columns |= classes
    assert met == node_classes(), "see tests/expressions/every_node.py"
    assert by_columns == met - {MessageTrait}


def test_tests_are_not_mistaken_whose_literals_differ_in_their_type_alone() -> None:
    topic = Topic()
    topic.put({"id": 1, "a": 5})
    assert topic.found("1 LIKE '[.]'") == []
    assert topic.found("1.0 LIKE '[.]'") == [1]
    assert topic.found("1 LIKE '[.]' OR 1.0 LIKE '[.]' AND /a > 1") == [1]
