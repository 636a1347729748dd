"""Answers in CSV: rows of a snapshot, with what is declared first."""

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Declared
from sow.history.snapshot import Snapshot
from sow.messages.declared import DeclaredFields
from sow.server.http.csv_answers import CsvTable
from sow.topic.rendering import Shape
from tests.topic.making import put, records


def answer(meta=False, select=None, schema=()):
    target = records()
    put(target, {"id": 1, "a": {"b": 1.5}}, {"id": 2, "px": "x"}, seq=7)
    rows = Snapshot.take(target, target.table.live())
    declared = DeclaredFields(target.message_type, schema) if schema else None
    table = CsvTable(rows, meta, Shape(select=select), declared)
    names = run_to_completion(table.header())
    return b"".join(table.pieces(names)).decode().split("\r\n")[:-1]


def test_fields_are_columns():
    assert answer() == ["id,/a/b,px", "1,1.5,", "2,,x"]


def test_what_is_declared_comes_first_and_whole():
    schema = (Declared("/px", "string"), Declared("/a", "json"))
    assert answer(schema=schema) == ["px,a,id", ',"{""b"":1.5}",1', "x,,2"]


def test_only_what_is_selected_is_there():
    schema = (Declared("/px", "string"), Declared("/a", "json"))
    assert answer(select=("/id", "/a"), schema=schema) == ["a,id", '"{""b"":1.5}",1', ",2"]


def test_with_meta_the_record_is_one_field():
    head, first, _ = answer(meta=True, schema=(Declared("/px", "string"),))
    assert head == "k,bm,ts,/d/px,/d/id,/d/a/b"
    key, bookmark, ts, *fields = first.split(",")
    assert key.isdigit()
    assert (bookmark, ts[:10], fields) == ("7", "1970-01-01", ["", "1", "1.5"])
