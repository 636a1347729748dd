"""Guards: conditions with a user's values, what is hidden, and what several give together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.paths import parse_path
from sow.errors import BadFilter
from sow.expressions import compile_filter, compile_term, parse, parse_order_by
from sow.security.row_level_security import (
    DENY_ALL,
    Condition,
    RowPolicy,
    read_condition,
    row_policy_of,
)

DESK = Condition("/desk = ${user.desk}")


def of_desk(name):
    return DESK.bind({"desk": name})


@given(st.text(min_size=1))
def test_a_value_is_a_literal_whatever_it_says(claim):
    node = of_desk(claim)
    assert node.right.value == claim
    assert compile_term(node).holds([claim])
    assert parse(str(node)) == node


def test_a_missing_or_empty_value_gives_nothing():
    assert DESK.bind({}) is None
    assert DESK.bind({"desk": ""}) is None


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("/desk = ${users.desk}", 8, r"write \$\{user.NAME\}"),
        ("/a = 1 AND /desk = ${user.}", 19, r"write \$\{user.NAME\}"),
        ("SOW_KEY() = '1'", 0, "reads fields only"),
        ("/desk = ", 8, "end of the filter"),
        ("/desk LIKE ${user.desk}", 11, "regular expression"),
    ],
)
def test_a_mistake_has_a_place_and_a_sentence(text, position, words):
    with pytest.raises(BadFilter, match=words) as found:
        read_condition(text)
    assert found.value.position == position


def test_a_client_has_no_parameters():
    with pytest.raises(BadFilter, match="no place in this filter; write the value"):
        compile_filter("/desk = ${user.desk}")


def test_rows_are_ored_and_fields_united_in_whatever_order_they_come():
    a, b = of_desk("a"), of_desk("b")
    both = row_policy_of([a, b], [("-/x",), ("-/x", "-/y")])
    assert both == row_policy_of([b, a, b], [("-/x", "-/y"), ("-/x",), ("-/x",)])
    assert both.text == "/desk = 'a' OR /desk = 'b'\n+/,-/x,+/y"
    assert row_policy_of([a, None], [None, None]) is None
    assert row_policy_of([], []) is DENY_ALL


def test_what_is_hidden_is_null_to_the_user_and_not_to_the_guard():
    guard = RowPolicy(of_desk("a"), ("-/desk", "-/client"))
    own = compile_filter("/desk IS NULL AND /client/name IS NULL AND MESSAGE_SIZE() IS NULL")
    condition = guard.condition(own)
    assert condition.holds(["a"])
    assert not condition.holds(["b"])
    assert [str(path) for path in condition.paths] == ["/desk"]


def test_a_filter_is_joined_once_for_as_long_as_somebody_has_it():
    guard, own = RowPolicy(of_desk("a")), compile_filter("/px > 1")
    assert guard.condition(own) is guard.condition(own)
    assert guard.condition(None) is guard.rows


def test_a_moment_is_that_of_the_question():
    guard, own = RowPolicy(of_desk("a")), compile_filter("/at < UNIX_TIMESTAMP()")
    early, late = guard.condition(own.at(1_000_000)), guard.condition(own.at(9_000_000))
    assert (early.holds(["a", 5]), late.holds(["a", 5])) == (False, True)


def test_an_order_by_what_is_hidden_orders_nothing():
    guard = RowPolicy(None, ("-/client",))
    terms = guard.order(parse_order_by("/client, CONCAT(/client, /a) DESC, /px"))
    assert [str(term.value) for term in terms] == ["CONCAT(NULL, /a)", "/px"]


def test_an_order_by_how_long_a_message_is_reports_nothing_of_what_is_hidden():
    order = parse_order_by("MESSAGE_SIZE() DESC, MESSAGE_SIZE() + /px, /px")
    terms = RowPolicy(None, ("-/client",)).order(order)
    assert [str(term.value) for term in terms] == ["(NULL + /px)", "/px"]
    assert RowPolicy(of_desk("a")).order(order) == order


def test_what_is_requested_of_a_group_by_hidden_fields_is_requested_of_nothing():
    guard = RowPolicy(None, ("-/client",))
    assert guard.projection(("COUNT(/client) AS /n", "GROUP_CONCAT(/client, ' ') AS /all")) == (
        "COUNT(NULL) AS /n",
        "GROUP_CONCAT(NULL, ' ') AS /all",
    )


def test_select_lists_join():
    guard = RowPolicy(None, ("-/client",))
    assert guard.shape(None) == ("-/client",)
    assert guard.shape(("/px", "/client")) == ("-/", "-/client", "+/px")
    assert RowPolicy(of_desk("a")).shape(("/px",)) == ("/px",)
    assert guard.hides(parse_path("/client/name"))
    assert not guard.hides(parse_path("/px"))


def test_projections_and_groupings_are_of_what_may_be_seen():
    guard = RowPolicy(None, ("-/client",))
    assert guard.projection(("SUM(/px) AS /px", "/client")) == (
        "SUM(/px) AS /px",
        "NULL AS /client",
    )
    assert guard.grouping(("/client", "/desk")) == ("/desk",)
    assert guard.grouping(("/client",)) == ("[/no field]",)
    assert RowPolicy(of_desk("a")).projection(("/client",)) == ("/client",)


def test_equalities_of_one_field_are_one_test():
    texts = [*(f"/desk = '{at}'" for at in range(1_000)), "/px > 5", "/book = 'a'", "/desk = ''"]
    policy = row_policy_of([read_condition(text) for text in texts], [None] * len(texts))
    assert policy.rows.expression.contents.tests == 4
    for record, may in (
        ({"desk": "7"}, True),
        ({"desk": 7}, True),
        ({"desk": "x"}, False),
        ({"px": 6}, True),
        ({"book": "a", "desk": None}, True),
        ({}, False),
    ):
        row = [record.get(str(path).strip("/")) for path in policy.paths]
        alone = (row_policy_of([read_condition(text)], [None]) for text in texts)
        each = any(one.holds([record.get(str(p).strip("/")) for p in one.paths]) for one in alone)
        assert policy.holds(row) is each is may, record
