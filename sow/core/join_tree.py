"""The tree of a view's joins: which topic meets which of those before it, and by which fields.

Joins are read as one chain: the topic that the view names first stands at the root, and each other
one meets the rows of all that stand before it, by fields of exactly one of them. So a row is found
from any of its records by following fields up and down, and whatever else could be written (two
ways from one topic to another, topics that nothing connects) is an error with an explanation. A
view over views expresses what one tree cannot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sow.errors import ClientError

MEETS_NONE = -1
"""The parent of the topic that stands first."""
JoinType = Literal["left", "inner", "full"]


@dataclass(frozen=True, slots=True)
class Join:
    """A `<Join>` of a view: ``[left_topic].left_field = [right_topic].right_field``.

    Fields are path texts. Several joins of the same two topics hold together. `type` says what
    becomes of records without a match: of the topic that the view names first (``left``), of none
    (``inner``), or of both (``full``). `left_type` and `right_type` are the message types of the
    topics where they were said, ``[json].[orders]./symbol``: another way to write the same join.
    """

    left_topic: str
    left_field: str
    right_topic: str
    right_field: str
    type: JoinType = "left"
    line: int = field(default=0, compare=False)
    left_type: str = field(default="", compare=False)
    right_type: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class JoinLevel:
    """A topic in the tree. `parent` is the place of the level that it meets; the first MEETS_NONE.

    Its records match those whose `parent_fields` have the texts that `fields` have here: path
    texts, as many as these. `type` says which records are kept without a match: those of all
    sources before it (``left``), none (``inner``), or also its own (``full``).
    """

    topic: str
    parent: int = MEETS_NONE
    fields: tuple[str, ...] = ()
    parent_fields: tuple[str, ...] = ()
    type: JoinType = "left"


class BadJoin(ClientError):
    """Joins that make no tree; `join` is the one to look at."""

    def __init__(self, join: Join, detail: str) -> None:
        super().__init__(detail)
        self.join = join


def join_levels(joins: Sequence[Join]) -> tuple[JoinLevel, ...]:
    """The tree that `joins`, one at least, make; raises BadJoin.

    Topics stand in the order in which the joins name them, but for those that meet a topic which is
    named later: these stand behind it.
    """
    for join in joins:
        if join.left_topic == join.right_topic:
            raise BadJoin(
                join, f"joins {join.left_topic} with itself; define a View of it and join that"
            )
    names = list(dict.fromkeys(name for one in joins for name in (one.left_topic, one.right_topic)))
    levels = [JoinLevel(names.pop(0))]
    while names:
        placed = {level.topic: at for at, level in enumerate(levels)}
        name = next((name for name in names if _meeting(name, placed, joins)), None)
        if name is None:
            stray = next(one for one in joins if names[0] in (one.left_topic, one.right_topic))
            raise BadJoin(
                stray,
                f"nothing joins {names[0]} with {', '.join(placed)}; add a Join of a field of "
                f"{names[0]} with one of theirs",
            )
        names.remove(name)
        levels.append(_level(name, placed, _meeting(name, placed, joins)))
    return tuple(levels)


def _meeting(name: str, placed: dict[str, int], joins: Sequence[Join]) -> list[Join]:
    """The joins of a topic with those that stand already."""
    return [
        one
        for one in joins
        if (one.left_topic == name and one.right_topic in placed)
        or (one.right_topic == name and one.left_topic in placed)
    ]


def _level(name: str, placed: dict[str, int], meeting: Sequence[Join]) -> JoinLevel:
    sides: dict[tuple[str, str, str], None] = {}
    first = meeting[0]
    for join in meeting:
        if join.left_topic == name:
            side = join.right_topic, join.right_field, join.left_field
        else:
            side = join.left_topic, join.left_field, join.right_field
        sides[side] = None
        if join.type != first.type:
            raise BadJoin(
                join,
                f"says {join.type}, and another Join of {name} says {first.type}; joins of the "
                "same topics hold together, so write one type",
            )
    others = list(dict.fromkeys(other for other, _, _ in sides))
    if len(others) > 1:
        join = next(one for one in meeting if others[1] in (one.left_topic, one.right_topic))
        raise BadJoin(
            join,
            f"joins {name} with {others[1]}, and it is joined with {others[0]} already, from which "
            f"{others[1]} is reached another way; define a View of the join of {others[0]} and "
            f"{others[1]}, and join {name} with that",
        )
    return JoinLevel(
        name,
        placed[others[0]],
        tuple(own for _, _, own in sides),
        tuple(other for _, other, _ in sides),
        first.type,
    )
