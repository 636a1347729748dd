"""The tree of a view's joins: every tree that can be written, and a sentence for all else."""

import pytest

from sow.core.definitions import Join
from sow.core.join_tree import MEETS_NONE, BadJoin, JoinLevel, join_levels


def joins(*texts, **types):
    """`a.x = b.y` as joins; `types` by the place of the join, `t1="inner"`."""
    made = []
    for at, text in enumerate(texts):
        (left, left_field), (right, right_field) = (
            side.strip().split(".") for side in text.split("=")
        )
        kind = types.get(f"t{at}", "left")
        made.append(Join(left, f"/{left_field}", right, f"/{right_field}", kind, at))
    return made


def test_a_join_is_a_root_and_what_meets_it():
    assert join_levels(joins("a.x = b.y", t0="full")) == (
        JoinLevel("a"),
        JoinLevel("b", 0, ("/y",), ("/x",), "full"),
    )


def test_conditions_of_two_topics_hold_together():
    level = join_levels(joins("a.x = b.y", "b.w = a.v", "a.x = b.y"))[1]
    assert (level.fields, level.parent_fields) == (("/y", "/w"), ("/x", "/v"))


@pytest.mark.parametrize(
    ("texts", "order", "parents"),
    [
        (("a.x = b.x", "b.y = c.y", "c.z = d.z"), "abcd", [MEETS_NONE, 0, 1, 2]),
        (("a.x = b.x", "a.y = c.y", "a.z = d.z"), "abcd", [MEETS_NONE, 0, 0, 0]),
        (("a.x = b.x", "c.y = b.y"), "abc", [MEETS_NONE, 0, 1]),
        (("a.x = b.x", "d.y = c.y", "c.z = b.z"), "abcd"[:2] + "cd", [MEETS_NONE, 0, 1, 2]),
    ],
    ids=["chain", "star", "turned", "named-before-it-is-met"],
)
def test_topics_stand_behind_what_they_meet(texts, order, parents):
    levels = join_levels(joins(*texts))
    assert "".join(level.topic for level in levels) == order
    assert [level.parent for level in levels] == parents


@pytest.mark.parametrize(
    ("texts", "types", "reason", "line"),
    [
        (("a.x = a.y",), {}, "joins a with itself; define a View", 0),
        (("a.x = b.x", "c.x = d.x"), {}, "nothing joins c with a, b; add a Join", 1),
        (("a.x = b.x", "b.y = c.y", "c.z = a.z"), {}, "define a View of the join of b and a", 2),
        (("a.x = b.x", "a.y = b.y"), {"t1": "inner"}, "says inner, and another Join of b", 1),
    ],
    ids=["itself", "apart", "circle", "two-types"],
)
def test_what_makes_no_tree_is_said_of_the_join_that_is_to_blame(texts, types, reason, line):
    with pytest.raises(BadJoin, match=reason) as caught:
        join_levels(joins(*texts, **types))
    assert caught.value.join.line == line
