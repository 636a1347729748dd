import pytest

from sow.errors import BadFilter
from sow.expressions import OrderTerm, parse_order_by, sort_key
from sow.paths import Path

PX, ID = Path(("px",)), Path(("id",))


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("/px", (OrderTerm(PX),)),
        ("/px DESC,/id", (OrderTerm(PX, descending=True), OrderTerm(ID))),
        (" /px  asc , /id desc text ", (OrderTerm(PX), OrderTerm(ID, True, True))),
        ("/id TEXT", (OrderTerm(ID, text=True),)),
        ("[/a, b] DESC,/px", (OrderTerm(Path(("a, b",)), True), OrderTerm(PX))),
        ("/a[0]", (OrderTerm(Path(("a",), 0)),)),
        ("$.order.px DESC", (OrderTerm(Path(("order", "px")), True),)),
    ],
)
def test_an_order_is_a_list_of_paths_with_directions(text, terms):
    assert parse_order_by(text) == terms


@pytest.mark.parametrize(
    ("text", "position"),
    [("", 0), ("px", 0), ("/px DOWN", 0), ("/px,", 4), ("/px,id", 4), ("/px TEXT DESC", 0)],
)
def test_a_bad_order_is_refused_with_its_position(text, position):
    with pytest.raises(BadFilter) as error:
        parse_order_by(text)
    assert (error.value.reason, error.value.position) == ("bad orderby", position)


def test_nulls_come_first_then_nan_then_numbers_then_strings():
    nan = float("nan")
    ordered = sorted(["b", 2, nan, "10", True, None, 0.5, "", []], key=sort_key)
    assert ordered[:3] == [None, "", []]
    assert ordered[3] is nan
    assert ordered[4:] == [0.5, True, 2, "10", "b"]


def test_a_list_ranks_by_its_first_element():
    assert sort_key([3, 1]) == sort_key(3)
    assert sort_key([None, 1]) == sort_key(None)


def test_with_text_everything_ranks_as_text():
    (term,) = parse_order_by("/px TEXT")
    assert sorted([10, "9", 9.5, None, True], key=term.key) == [None, True, 10, "9", 9.5]


def test_without_text_numbers_rank_by_value():
    (term,) = parse_order_by("/px")
    assert sorted([10, 9, "9"], key=term.key) == [9, 10, "9"]
