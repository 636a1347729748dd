"""The table of elements, continued: `<View>`, and its value types.

A field of a view is written as everywhere, ``/price``, or qualified by its topic,
``[orders]./price``, and by that topic's message type, ``[json].[orders].[/price]``. Only the rules
know the topics (`sow.config.rules.view_rules`).
"""

import re
from dataclasses import replace
from typing import Literal

from sow.config import value_types
from sow.config.diagnostics import MistakeError
from sow.config.elements import Element, leaf, listing
from sow.config.elements.topic import BACK_PRESSURE_ELEMENTS, INDEXES, MESSAGE_TYPE, NAME_ELEMENT
from sow.config.value_types import ValueKind
from sow.core.definitions import Engine, View, ViewConflation
from sow.core.join_tree import Join, JoinType
from sow.errors import ClientError
from sow.expressions import Identifier, parse_projected

JOIN_EXAMPLE = "write [orders]./symbol = [quotes]./symbol"
NAMED = re.compile(r"(?:\[(?P<type>[^][]+)\]\s*\.\s*)?\[(?P<name>[^][]+)\]")
"""A topic as AMPS writes it: in brackets, perhaps with its message type before it."""
ENDS = 2
"""A join is of two fields."""


def _source_field(text: str) -> Identifier:
    """A field, of a topic or not."""
    try:
        node = parse_projected(text).value
    except ClientError as error:
        if _is_expression(text):
            raise _no_field() from None
        raise value_types.mistake(error) from None
    if not isinstance(node, Identifier):
        raise _no_field()
    return node


def _no_field() -> MistakeError:
    return MistakeError(
        "is no field, and an expression is not taken here",
        "write a path, such as /symbol or [orders]./symbol",
    )


def _is_expression(text: str) -> bool:
    """Whether it could be projected, under a name, and is no field."""
    try:
        return not isinstance(parse_projected(f"{text} AS /field").value, Identifier)
    except ClientError:
        return False


def _grouping(text: str) -> str:
    return str(_source_field(text))


def _join(text: str) -> tuple[str, str, str, str, str, str]:
    """Topic and path of both sides of ``[a]./x = [b]./y``, and the message types if given."""
    sides = text.split("=")
    if len(sides) != ENDS:
        raise MistakeError("does not equate two fields", JOIN_EXAMPLE)
    if any(map(NAMED.fullmatch, map(str.strip, sides))):
        raise MistakeError("names a topic without a field of it", JOIN_EXAMPLE)
    left, right = (_source_field(side.strip()) for side in sides)
    if not left.topic or not right.topic:
        raise MistakeError("does not name the topic of each field", JOIN_EXAMPLE)
    if left.topic == right.topic:
        raise MistakeError(
            f"joins {left.topic!r} with itself", "name another topic on one side of the ="
        )
    return (
        left.topic,
        str(left.path),
        right.topic,
        str(right.path),
        left.message_type,
        right.message_type,
    )


def _underlying(text: str) -> tuple[str, str]:
    """The name of a topic, and the message type before it, if given: ``[json].[orders]``."""
    found = NAMED.fullmatch(text.strip())
    if found is None:
        return str(value_types.TEXT.read(text)), ""
    return found["name"].strip(), (found["type"] or "").strip()


GROUPING_FIELD = ValueKind("path, or `[topic].`path", _grouping)
JOIN_FIELDS = ValueKind("`[topic]./path = [topic]./path`", _join)
PROJECTED_FIELD = value_types.expression("expression `AS` path, or path", parse_projected)
UNDERLYING_NAME = ValueKind("name, or `[type].[name]`", _underlying)
SWITCH = value_types.switch(Literal["enabled", "disabled"])

UNDERLYING = Element(
    name="UnderlyingTopic",
    required=True,
    text_child="Topic",
    about="The Topic, ConflatedTopic or View that its rows are made of, defined above it; or "
    "several of them, by a Join each.",
    children=(
        leaf("Topic", UNDERLYING_NAME, fields=("underlyings", "underlying_type"))(
            "The name of the one topic; UnderlyingTopic may hold it without this element."
        ),
        Element(
            name="Join",
            repeated=True,
            fields=("joins",),
            make=Join,
            text_child="On",
            about="Two fields that have to be equal, as texts, for records of two topics to meet: "
            "`<Join>[orders]./symbol = [quotes]./symbol</Join>`. Several hold together.",
            children=(
                leaf(
                    "On",
                    JOIN_FIELDS,
                    required=True,
                    fields=(
                        "left_topic",
                        "left_field",
                        "right_topic",
                        "right_field",
                        "left_type",
                        "right_type",
                    ),
                )("The two fields; Join may hold them without this element."),
                leaf("type", value_types.choice(JoinType), "left", attribute=True)(
                    "Which records are kept without a match: those of the topic that "
                    "is named first, none, or those of both."
                ),
            ),
        ),
    ),
)

VIEW = Element(
    name="View",
    synonyms=("ViewDefinition",),
    repeated=True,
    fields=("topics",),
    make=View,
    about="A topic derived from the records of others: one row for each group of them, "
    "current at the end of each turn.",
    children=(
        NAME_ELEMENT,
        replace(
            MESSAGE_TYPE,
            about="The format of its rows, one that has fields. It may differ from that of the "
            "underlying topics.",
        ),
        UNDERLYING,
        leaf("JoinNullEquivalency", SWITCH, "disabled", fields=("null_equivalency",))(
            "Whether NULL, an empty text and a missing field equal each other in a Join."
        ),
        listing(
            "Projection",
            "The fields of a row; there are no others.",
            "Field",
            PROJECTED_FIELD,
            "`SUM(/price * /qty) / SUM(/qty) AS /vwap`, of the group; a path outside of an "
            "aggregate is the value by which records are grouped, or else that of the record that "
            "changed last.",
            required=True,
        ),
        listing(
            "Grouping",
            "The fields that define a group; NULL, missing and empty are one value.",
            "Field",
            GROUPING_FIELD,
            "A field of the underlying topic.",
            required=True,
        ),
        leaf("KeyDomain", value_types.TEXT)(
            "What the SowKeys of rows are made with, besides the values that are grouped by. "
            "By default the view's name."
        ),
        leaf("Filter", value_types.FILTER)(
            "Only records that match are used; not allowed with joined topics."
        ),
        leaf("Conflation", value_types.choice(ViewConflation), "none")(
            "Taken as AMPS has it, and both do the same here: of a row that waits for the "
            "end of its turn, its current state is sent."
        ),
        *INDEXES,
        leaf("Engine", value_types.choice(Engine), "embedded")(
            "What computes the rows: the server, or Spark in a process of its own that reads "
            "the log of the underlying topic (COUNT, SUM, AVG, MIN and MAX, of one logged topic)."
        ),
        Element(
            name="FileName", status="no effect", about="since rows are computed again at start"
        ),
        *BACK_PRESSURE_ELEMENTS,
    ),
)
