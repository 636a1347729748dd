import pytest

from sow.core.paths import Path, parse_path
from sow.errors import BadFilter, TooLarge
from sow.expressions import OrderTerm, Trait, parse, parse_order_by, sort_key
from sow.expressions.nodes import Arithmetic, Identifier
from sow.expressions.ordering import CALCULATED_MAX, TERMS_MAX
from tests.cases import all_cases

PX, ID = Identifier(Path(("px",))), Identifier(Path(("id",)))


@all_cases(
    ("text", "terms"),
    [
        ("/px", (OrderTerm(PX),)),
        ("/px DESC,/id", (OrderTerm(PX, descending=True), OrderTerm(ID))),
        (" /px  asc , /id desc text ", (OrderTerm(PX), OrderTerm(ID, True, True))),
        ("/id TEXT", (OrderTerm(ID, text=True),)),
        ("[/a, b] DESC,/px", (OrderTerm(Identifier(Path(("a, b",))), True), OrderTerm(PX))),
        ("/a[0]", (OrderTerm(Identifier(Path(("a",), 0))),)),
        ("$.order.px DESC", (OrderTerm(Identifier(Path(("order", "px"))), True),)),
        ("/px * /id DESC,(/id)", (OrderTerm(Arithmetic("*", PX, ID), True), OrderTerm(ID))),
        ("/px > 1 AND /id = 2 DESC", (OrderTerm(parse("/px > 1 AND /id = 2"), True),)),
        ("/desc desc", (OrderTerm(Identifier(Path(("desc",))), True),)),
    ],
)
def test_an_order_is_a_list_of_values_with_directions(text, terms):
    assert parse_order_by(text) == terms


@all_cases(
    ("text", "position"),
    [
        ("", 0),
        ("px", 0),
        ("/px DOWN", 4),
        ("/px,", 4),
        ("/px,id", 4),
        ("/px TEXT DESC", 9),
        ("/px DESC ASC", 9),
        ("/px + DESC", 6),
        ("/px /qty", 5),
        ("/id, NOPE(/px)", 5),
        ("/id, /px OF PREVIOUS", 9),
        ("/id, LENGTH(/a, /b)", 5),
        ("/px, 'id'", 5),
        ("1", 0),
        ("TRUE_VALUE() DESC", 0),
    ],
)
def test_a_bad_order_is_refused_with_its_position(text, position):
    with pytest.raises(BadFilter, match="order_by: ") as error:
        parse_order_by(text)
    assert (error.value.reason, error.value.position) == ("bad orderby", position)
    assert error.value.expected


def test_what_may_follow_a_value_is_said():
    with pytest.raises(BadFilter) as error:
        parse_order_by("/px DOWN")
    assert "ASC or DESC, TEXT, AND, OR, ',' or the end of the order_by" in error.value.expected


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (", ".join(["/a"] * (TERMS_MAX + 1)), 4 * TERMS_MAX),
        (", ".join(["/a+1"] * (CALCULATED_MAX + 1)), 6 * CALCULATED_MAX),
        ("/id, " + "(" * 200 + "/a", 105),
        ("/id, " + "- " * 101 + "/a", 205),
        ("/" + "a" * 9000, 8192),
        (", ".join([f"/b IN ({', '.join(['5'] * 248)})"] * 5), 4 * (8 + 3 * 248)),
        (f"/id, /x IN ({', '.join([f'/f{at:03}' for at in range(257)])})", 12 + 7 * 255),
    ],
)
def test_an_order_is_bounded(text, position):
    with pytest.raises(TooLarge) as error:
        parse_order_by(text)
    assert (error.value.position, bool(error.value.expected)) == (position, True)


def test_calls_with_patterns_are_bounded_over_all_terms():
    call = "REGEXP_REPLACE(/a, 'x', 'y')"
    assert len(parse_order_by(f"LENGTH({call}), /a")) == 2
    with pytest.raises(TooLarge, match="more than 1 call of CRC64") as caught:
        parse_order_by(f"{call}, STRFTIME('%d', /b)")
    assert caught.value.position == len(call) + 2


def test_a_topic_is_refused_by_name():
    with pytest.raises(BadFilter, match=r"order_by: \[orders\] at position 0 has no place"):
        parse_order_by("[orders]./a")


def test_a_term_is_calculated_of_its_fields():
    plain, calculated, constant = parse_order_by("/px DESC, /px * /id, 1 + 1")
    assert (plain.path, plain.paths) == (PX.path, (PX.path,))
    assert plain.calculate([[3, None]], 2) == [3, None]
    assert (calculated.path, calculated.paths) == (None, (PX.path, ID.path))
    assert calculated.calculate([[3, None], [2, 1]], 2) == [6, None]
    assert constant.calculate([], 3) == [2, 2, 2]


def test_an_order_is_read_once():
    assert parse_order_by("/px, /id") is parse_order_by("/px, /id")


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


@pytest.mark.parametrize(
    "value", ["UNIX_TIMESTAMP()", "TOPIC_NAME()", "BOOKMARK()", "AMPS_INSTANCE_NAME()"]
)
def test_what_is_the_same_for_all_records_sorts_none(value):
    with pytest.raises(BadFilter, match="the same for all records that are sorted") as error:
        parse_order_by(f"/a, {value} DESC")
    assert error.value.position == 4


def test_an_order_knows_the_traits_that_it_reads():
    (term,) = parse_order_by("LAST_UPDATED() + /a DESC")
    assert (term.path, term.paths, term.traits) == (
        None,
        (parse_path("/a"),),
        (Trait.LAST_UPDATED,),
    )
    assert term.calculate([[1, None], [2.5, 3.5]], 2) == [3.5, None]
