import json

from sow.expressions import parse_order_by
from sow.indexes.sort_keys import SortKeys
from sow.messages import message_type


def test_values_of_all_kinds_are_ranked_and_follow_changes() -> None:
    (term,) = parse_order_by("/a")
    values = ["b", 2**53 + 1, None, [7, 1], 2**53, "a", 7]
    bodies: list[bytes | None] = [json.dumps({"a": value}).encode() for value in values]
    column = SortKeys(term, message_type("json").decoder((term.path,)), bodies)
    column.refresh()
    ranks = column.text_order.ranks()[column.codes]
    assert ranks.argsort(kind="stable").tolist() == [2, 3, 6, 4, 1, 5, 0]
    bodies[0] = b'{"a":0}'
    column.touch([0])
    column.refresh()
    ranks = column.text_order.ranks()[column.codes]
    assert ranks.argsort(kind="stable").tolist() == [2, 0, 3, 6, 4, 1, 5]
