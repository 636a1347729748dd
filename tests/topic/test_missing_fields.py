"""Fields that no record has: what is said, of which records, and what looking for them costs."""

import json

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.paths import parse_path
from sow.expressions import compile_filter, parse_order_by
from sow.protocol.commands import Options
from sow.query import Query
from sow.security.row_level_security import RowPolicy, read_condition
from sow.topic import missing_fields
from sow.topic.missing_fields import Unsure, field_advice, has_field, unsure_fields
from tests.topic.making import ORDERS, put, records

IBM = {"id": 1, "symbol": "IBM", "ship": {"city": "Rome"}, "legs": [{"px": 1}], "note": None}


def advice(target, *paths, guard=None):
    """The sentences on fields, as a query gets them."""
    unsure = unsure_fields(target, Query(), Options(select=paths), guard)
    return [*run_to_completion(field_advice([Unsure(target, unsure, guard)]))] if unsure else []


def test_the_field_that_was_meant_is_named():
    target = records()
    put(target, IBM)
    assert advice(target, "/symbl") == ["no record has /symbl; did you mean /symbol?"]
    assert advice(target, "/qqqq") == ["no record has /qqqq"]
    assert advice(target, "/ship/cty") == ["no record has /ship/cty; did you mean /ship/city?"]
    present = ("/symbol", "/ship", "/ship/city", "/legs/px", "/note", "/id")
    assert advice(target, *present) == []
    assert unsure_fields(target, Query(), Options(select=present), None) == []
    assert len(advice(target, *[f"/x{n}" for n in range(20)])) == missing_fields.ADVICE_MAX


def test_without_records_there_is_nothing_to_say():
    target = records()
    assert advice(target, "/symbl") == []
    put(target, IBM)
    target.drop(target.table.identities[:1], "deleted", lambda n: ([2] * n, [0] * n))
    assert advice(target, "/symbl") == []


def test_what_counts_is_what_records_are_now():
    target = records()
    put(target, IBM, {"id": 2})
    assert advice(target, "/symbol") == []
    put(target, {"id": 1}, seq=3)
    assert advice(target, "/symbol") == ["no record has /symbol"]
    put(target, {"id": 2, "symbol": "A"}, seq=4)
    assert advice(target, "/symbol") == []


def test_one_of_many_records_is_found_however_its_name_is_written(monkeypatch):
    monkeypatch.setattr(missing_fields, "BODIES_AT_ONCE", 10)
    monkeypatch.setattr(missing_fields, "SEARCHED_AT_ONCE", 40)
    target = records()
    put(target, *({"id": n} for n in range(300)), {"id": 300, "px": 1}, {"id": 301})
    bodies, names, columns, *_ = target.read([b'{"id":302,"\\u0071ty":1}'])
    target.put(names, bodies, columns, [400], [0], 0)
    assert advice(target, "/px", "/qty") == []
    assert advice(target, "/pxx") == ["no record has /pxx"]
    at_once = field_advice([Unsure(target, [parse_path("/pxx")], None)])
    assert sum(1 for _ in at_once) < 12  # only what has changed is read again


def test_what_was_said_is_said_again_without_a_step_until_a_record_changes():
    target = records()
    put(target, IBM, {"id": 2})

    def looked():
        steps = field_advice([Unsure(target, [parse_path("/symbl")], None)])
        return sum(1 for _ in steps), advice(target, "/symbl")

    assert advice(target, "/symbl") == ["no record has /symbl; did you mean /symbol?"]
    assert looked() == (0, ["no record has /symbl; did you mean /symbol?"])
    put(target, {"id": 1}, seq=3)
    assert looked()[0] > 0
    assert looked() == (0, ["no record has /symbl"])
    target.drop([target.table.identities[1]], "deleted", lambda n: ([4] * n, [0] * n))
    assert looked()[0] > 0
    put(target, {"id": 3, "symbl": 1}, seq=5)
    assert advice(target, "/symbl") == []


def test_only_what_the_user_may_see_counts_and_is_meant():
    target = records()
    put(target, {"id": 1, "desk": "a", "salary": 1}, {"id": 2, "desk": "b", "px": 2})
    guard = RowPolicy(read_condition("/desk = 'b'"), ("-/salary",))
    assert advice(target, "/salary", guard=guard) == ["no record has /salary"]
    assert advice(target, "/salry", guard=guard) == ["no record has /salry"]
    assert advice(target, "/px", guard=guard) == []
    put(target, {"id": 2, "desk": "c", "px": 2}, seq=3)
    assert advice(target, "/px", "/salry", guard=guard) == []  # nothing may be seen
    of_a = RowPolicy(read_condition("/desk = 'a'"))
    assert advice(target, "/px", guard=of_a) == ["no record has /px"]
    assert advice(target, "/px") == []


def test_a_hidden_field_and_an_absent_one_are_told_alike():
    guard = RowPolicy(None, ("-/salary",))
    with_it, without = records(), records()
    put(with_it, *({"id": n, "salary": n} for n in range(1000)))
    put(without, *({"id": n} for n in range(1000)))
    found = [advice(target, "/salary", "/px", guard=guard) for target in (with_it, without)]
    assert found[0] == found[1] == ["no record has /px", "no record has /salary"]


def test_messages_without_fields_have_none_missing():
    target = records(ORDERS.__class__("notes", "string"), keys=())
    assert advice(target, "/x") == []


def test_what_a_query_names():
    condition, order = compile_filter("/a = 1 AND /b/c > /d"), parse_order_by("/e DESC, /f")
    options = Options(select=("-/", "+/g/h"))
    target = records()  # which knows nothing of its fields yet

    def named(condition, order, options):
        query = Query(condition, order_by=order)
        return [*map(str, unsure_fields(target, query, options, None))]

    assert named(condition, order, options) == ["/a", "/b/c", "/d", "/e", "/f", "/g/h"]
    grouped = Options(projection=("/desk", "SUM(/qty) AS /total"), grouping=("/desk",))
    assert named(None, order, grouped) == ["/desk", "/qty", "/desk"]


@pytest.mark.parametrize(
    ("document", "path", "has"),
    [
        ({"a": None}, "/a", True),
        ({"a": {"b": []}}, "/a/b", True),
        ({"a": [[{"b": 1}]]}, "/a/b", True),
        ({"a": "b"}, "/a/b", False),
        ({"a": []}, "/a/b", False),
        ([], "/a", False),
    ],
)
def test_a_document_has_a_field_of_any_value(document, path, has):
    assert has_field(json.loads(json.dumps(document)), parse_path(path).steps) is has
