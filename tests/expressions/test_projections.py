"""Projections: what is to be kept of each record, and what a row is made of."""

import pytest

from sow.core.paths import Path, TopicPath
from sow.errors import BadFilter, ClientError, TooLarge
from sow.expressions import LAST, Aggregate, compile_projection
from tests.cases import all_cases

ORDERS = {"orders": "json"}
BOTH = {"orders": "json", "quotes": "nvfix"}


def compiled(*fields, grouping=("/desk",), topics=ORDERS):
    return compile_projection(fields, grouping, topics)


def of_orders(*names):
    return tuple(TopicPath("orders", Path((name,))) for name in names)


def test_what_is_kept_of_records_is_kept_once():
    made = compiled(
        "SUM(/px * /qty) / SUM(/qty) AS /vwap", "SUM(/qty) AS /qty", "AVG(/qty) AS /avg", "/desk"
    )
    assert made.grouping == of_orders("desk")
    assert made.inputs == of_orders("desk", "px", "qty")
    texts = [one.text for one in made.arguments]
    assert texts == ["([orders]./px * [orders]./qty)", "[orders]./qty"]
    assert made.aggregates == (Aggregate("SUM", 0), Aggregate("SUM", 1), Aggregate("AVG", 1))
    assert list(map(str, made.targets)) == ["/vwap", "/qty", "/avg", "/desk"]


def test_arguments_are_calculated_of_columns():
    made = compiled("SUM(IF(/px > 2, /qty, 0)) AS /big", "MAX(/qty) AS /most", "COUNT(1) AS /n")
    columns = [["a", "a"], [1, 3], [10, 20]]
    assert [one.values(columns, 2) for one in made.arguments] == [[0, 20], [10, 20], [1, 1]]


def test_equal_numbers_that_are_written_otherwise_are_other_arguments():
    made = compiled("SUM(1) AS /a", "SUM(1.0) AS /b", "SUM(TRUE_VALUE()) AS /c")
    assert [one.values([["x"]], 1) for one in made.arguments] == [[1], [1.0], [True]]


def test_a_row_is_made_of_what_is_known_of_the_group():
    made = compiled(
        "SUM(/px * /qty)/SUM(/qty) AS /d/vwap",
        "/desk",
        "UPPER(/desk) AS /d/name",
        "IF(COUNT(1) > 1, 'many', 'one') AS /size",
        "SUM(/qty) > 3 AS /large",
        "/sym",
        "2 AS /two",
    )
    assert [one.kind for one in made.aggregates] == ["SUM", "SUM", "COUNT", LAST]
    row = made.document(["rates"], [12.0, 4, 2, "ACME"])
    assert row == {
        "d": {"vwap": 3.0, "name": "RATES"},
        "desk": "rates",
        "size": "many",
        "large": True,
        "sym": "ACME",
        "two": 2,
    }


def test_what_is_left_out_leaves_nothing_around_it():
    made = compiled("/desk AS /d/desk", "SUM(/a) AS /d/a HINT OPTIONAL", "/sym AS /o/p/sym")
    assert made.document([None], [None, None]) == {"o": {"p": {"sym": None}}}
    row = made.document(["x"], [1, 2])
    assert str(row) == str({"d": {"desk": "x", "a": 1}, "o": {"p": {"sym": 2}}}), "in this order"


def test_no_word_of_a_projection_is_taken_for_source():
    made = compiled("SUM(/a) AS /class/import", "/row", "/n0_0 AS /value")
    row = made.document(["x"], [1, 2, 3])
    assert row == {"class": {"import": 1}, "row": 2, "value": 3}


def test_a_grouping_field_without_value_is_absent_and_others_are_null():
    made = compiled("/desk", "/sym", "SUM(/a) AS /a", "SUM(/b) AS /b HINT OPTIONAL")
    assert made.document([None], [None, None, None]) == {"sym": None, "a": None}


def test_a_topic_may_be_said_and_has_to_be_where_there_are_several():
    assert compiled("SUM([orders]./qty) AS /q").inputs == of_orders("desk", "qty")
    assert compiled("[json].[orders].[/desk]").aggregates == ()
    made = compiled(
        "SUM([orders]./qty * [quotes]./px) AS /value",
        "[quotes]./px",
        grouping=["[orders]./desk", "[orders]./desk"],
        topics=BOTH,
    )
    assert made.grouping == of_orders("desk")
    px = TopicPath("quotes", Path(("px",)))
    assert made.inputs == (*of_orders("desk", "qty"), px)
    assert made.arguments[0].values([["a"], [2], [1.5]], 1) == [3.0]
    assert made.targets[1] == Path(("px",))


@all_cases(
    ("field", "position", "words"),
    [
        ("SUM(/qty)", 0, r"write SUM\(/qty\) AS /name"),
        ("1 + SUM(AVG(/qty)) AS /x", 8, "AVG at position 8 is inside SUM"),
        ("SUM(1 + IF(/a > 1, MAX(/qty), 0)) AS /x", 19, "MAX at position 19 is inside SUM"),
        ("1 + [order]./qty AS /x", 4, "did you mean orders"),
        ("[nvfix].[orders]./qty AS /x", 0, "the messages of orders are json"),
        ("SUM(MESSAGE_SIZE()) AS /x", 4, "has no place in a projection"),
        ("MAX(LAST_UPDATED()) AS /x", 4, r"an Enrichment of the topic makes: LAST_UPDATED\(\) AS"),
        ("SOW_KEY() AS /x", 0, r"an Enrichment of the topic makes: SOW_KEY\(\) AS /name"),
        ("BOOKMARK() AS /x", 0, "a row is made of many; project a field"),
        ("UNIX_TIMESTAMP() AS /x", 0, "has no place in a projection"),
        ("/qty OF PREVIOUS AS /x", 5, "OF PREVIOUS"),
        ("/qty[0]", 0, "has an index"),
        ("SUM(/qty AS /x", 9, "AS"),
        ("/a, /b", 2, "','"),
    ],
)
def test_a_mistake_says_where_and_what_to_write(field, position, words):
    with pytest.raises(ClientError, match=words) as caught:
        compiled(field)
    assert caught.value.position == position
    assert caught.value.expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (("/a", "SUM(/b) AS /a"), "/a is projected twice"),
        (("/a", "SUM(/b) AS /a/b"), "inside /a"),
        (("SUM(/b) AS /a/b", "/a"), "inside /a"),
    ],
)
def test_two_fields_have_no_one_place(fields, words):
    with pytest.raises(BadFilter, match=words):
        compiled(*fields)


def test_a_path_is_of_one_of_several_topics():
    with pytest.raises(BadFilter, match=r"names no topic\. .*write for example \[orders\]\./px"):
        compiled("SUM(/px) AS /x", grouping=["[orders]./desk"], topics=BOTH)


@pytest.mark.parametrize("grouping", ["UPPER(/desk)", "1", "/a = 1"])
def test_records_are_grouped_by_fields(grouping):
    with pytest.raises(BadFilter, match="grouped by fields"):
        compiled("COUNT(1) AS /n", grouping=[grouping])


def test_what_is_too_long_is_refused():
    with pytest.raises(TooLarge):
        compiled(f"SUM(/{'x' * 5000}) AS /x")
