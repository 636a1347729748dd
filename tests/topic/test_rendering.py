"""Renderer: one topic's lines, whatever they are for."""

import json

import pytest

from sow.core.paths import parse_path
from sow.errors import ClientError
from sow.messages import message_type
from sow.topic.rendering import WHOLE, LineColumns, Renderer, Shape, key_fields

TS_US = 1_700_000_000_000_000
BODY = b'{"id":1,"px": 10.5,"at":{"x":2}}'


def renderer(kind="json", *keys):
    return Renderer("orders", message_type(kind), tuple(map(parse_path, keys)))


def columns(*bodies):
    count = len(bodies)
    return LineColumns(["17"] * count, bodies, range(5, 5 + count), [TS_US] * count)


def one_line(kind, shape=WHOLE, body=BODY, of="json"):
    made = renderer(of)
    (line,) = made.lines(kind, shape, columns(body), made.head(kind, "s1"))
    return line


@pytest.mark.parametrize(
    ("kind", "more"),
    [("sow", {}), ("p", {"bm": "5"}), ("delta", {"delta": True, "bm": "5"}), ("oof", {})],
)
def test_each_kind_of_line_says_what_it_has_to(kind, more):
    head = {"c": kind, "s": "s1", "t": "orders"}
    assert json.loads(one_line(kind)) == {**head, "k": "17", "d": json.loads(BODY), **more}


def test_a_body_is_passed_on_byte_for_byte():
    assert BODY in one_line("p")


def test_a_shape_leaves_out_keys_and_brings_in_times():
    line = json.loads(one_line("p", Shape(sow_keys=False, timestamps=True)))
    assert "k" not in line
    assert line["ts"] == "2023-11-14T22:13:20.000000Z"


@pytest.mark.parametrize("kind", ["sow", "p", "oof"])
def test_only_selected_fields_are_shown(kind):
    line = json.loads(one_line(kind, Shape(select=("/id", "/at/x"))))
    assert line["d"] == {"id": 1, "at": {"x": 2}}


def test_a_delta_is_shown_as_it_was_made_with_the_key_fields_first():
    made, shape = renderer("json", "/id"), Shape(select=("/id", "/px"))
    body = made.delta(shape, {"px": 11}, {"id": 1, "px": 11, "q": 3})
    assert body == b'{"id":1,"px":11}'
    (line,) = made.lines("delta", shape, columns(body))
    assert b'"d":{"id":1,"px":11}' in line


def test_lines_without_a_head_are_what_stands_behind_it():
    made = renderer()
    head = made.head("p", "s1")
    (tail,) = made.lines("p", Shape(), columns(BODY))
    assert head + tail == one_line("p")


def test_bytes_that_are_no_text_are_sent_with_their_encoding():
    line = json.loads(one_line("p", body=b"\xff\x00", of="binary"))
    assert line["enc"] == "base64"
    assert line["d"] == "/wA="


def test_documents_are_bodies_or_bodies_with_what_is_known_of_them():
    made, rows = renderer(), columns(BODY, b'{"id":2}')
    assert made.documents(Shape(), rows, meta=False) == [BODY, b'{"id":2}']
    wrapped = [json.loads(text) for text in made.documents(Shape(), rows, meta=True)]
    assert [list(one) for one in wrapped] == [["k", "bm", "ts", "d"]] * 2
    assert [one["bm"] for one in wrapped] == ["5", "6"]


def test_a_row_says_when_its_record_expires_if_that_is_known():
    made, rows = renderer(), columns(BODY, BODY, BODY)._replace(expires_us=[TS_US, 0, -1])
    wrapped = [json.loads(text) for text in made.documents(Shape(), rows, meta=True)]
    assert [list(one)[3:-1] for one in wrapped] == [["expires"], [], ["expires"]]
    assert [one.get("expires") for one in wrapped] == ["2023-11-14T22:13:20.000000Z", None, None]


@pytest.mark.parametrize("select", ["/r/none", "/none", "-/"])
def test_a_root_stays_where_a_select_list_leaves_nothing(select):
    made, shape = renderer("xml"), Shape(select=(select,))
    assert made.shown(shape, [b"<r><a>1</a></r>", b"<r>1</r>"]) == [b"<r/>", b"<r/>"]
    assert made.delta(shape, {}, {"r": {"a": "1"}}) == b"<r/>"


def test_a_delta_that_changes_nothing_can_be_merged():
    assert renderer().delta(Shape(), {}, {"a": 1}) == b"{}"
    assert renderer("xml").delta(Shape(), {}, {"r": {"a": "1"}}) == b"<r><a>1</a></r>"


def test_a_select_list_needs_fields():
    renderer().check_select(("/id",))
    with pytest.raises(ClientError, match="sent whole or not at all"):
        renderer("binary").check_select(("/id",))


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (("/id",), {"id": 1}),
        (("/at/x", "/id"), {"id": 1, "at": {"x": 2}}),
        (("/legs/0/id",), {"legs": [{"id": 7}]}),
        (("/nobody",), {}),
    ],
)
def test_key_fields_are_the_part_that_the_paths_name(paths, found):
    document = {"id": 1, "at": {"x": 2, "y": 3}, "legs": [{"id": 7}]}
    assert key_fields(tuple(map(parse_path, paths)), document) == found


def test_a_shape_within_another_shows_what_both_show():
    document = {"a": 1, "b": 2, "c": {"d": 3, "e": 4}}
    whole, some = Shape(), Shape(select=("-/b", "-/c/d"))
    other = Shape(sow_keys=False, select=("-/a",))
    assert whole.within(whole) == whole
    assert whole.within(some).shown(document) == some.within(whole).shown(document)
    assert some.within(other).shown(document) == {"c": {"e": 4}}
    assert other.within(some).sow_keys is False
