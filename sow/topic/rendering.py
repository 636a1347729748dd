"""Rendering: what a record looks like to a subscriber.

A *shape* says which parts of a record's line a subscriber wants. Bodies are passed on byte for
byte unless a select list or a delta asks for less of them. Lines are made for whole batches; what
stands at their head (the subscription's name) is put in front by the feed.

A subscriber's documents are the *shown* ones, so deltas are differences of these: a field that is
gone below a selected object can only be told with the whole, one that nobody sees not at all.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sow.delta import Document, merged
from sow.errors import ClientError
from sow.paths import Path
from sow.select_list import parse_select
from sow.wire import quoted, record_lines

if TYPE_CHECKING:
    from sow.topic.records import Records


class Shape(NamedTuple):
    """How a subscription wants its lines. `select` holds the members of its select list."""

    sow_keys: bool = True
    timestamps: bool = False
    select: tuple[str, ...] | None = None

    def shown(self, document: Document) -> Document:
        """The selected part of a document."""
        return document if self.select is None else parse_select(self.select).apply(document)


def check_select(topic: "Records", select: Sequence[str]) -> None:
    """Refuse a select list that cannot be applied to a topic's messages."""
    parse_select(select)
    if not topic.message_type.structured:
        raise ClientError(
            f"messages of {topic.name} have no fields ({topic.message_type.name}); leave out "
            "select",
            reason="invalid options",
        )


def shown_bodies(topic: "Records", shape: Shape, bodies: Sequence[bytes]) -> Sequence[bytes]:
    """Bodies with only the selected fields."""
    if shape.select is None:
        return bodies
    kind, select = topic.message_type, parse_select(shape.select)
    return [kind.encode(select.apply(document_of(topic, body))) for body in bodies]


def delta_body(topic: "Records", shape: Shape, delta: Document, new: Document) -> bytes:
    """The body of a delta of shown documents: the key fields that are shown, then what changed."""
    return topic.message_type.encode(merged(key_fields(topic.keys, shape.shown(new)), delta))


def key_fields(paths: Sequence[Path], document: Document) -> Document:
    """The part of a document that its key paths name; an array on the way is taken whole."""
    found: Document = {}
    for path in paths:
        value: object = document
        taken: list[str] = []
        for step in path.steps:
            if not isinstance(value, dict) or step not in value:
                break
            value = value[step]
            taken.append(step)
        if not isinstance(value, dict):
            for step in reversed(taken):
                value = {step: value}
            assert isinstance(value, dict)
            found = merged(found, value)
    return found


def document_of(topic: "Records", body: bytes) -> Document:
    """A stored message of a type with fields, parsed."""
    document = topic.message_type.parse(body)
    assert isinstance(document, dict)
    return document


def line_tails(
    topic: "Records",
    shape: Shape,
    keys: Sequence[str],
    bodies: Sequence[bytes],
    seqs: Sequence[int] | None,
    ts_us: Sequence[int],
    delta: bool = False,
) -> list[bytes]:
    """Lines but for their head, of bodies that are ready to be shown."""
    return record_lines(
        b"",
        quoted(keys) if shape.sow_keys else None,
        topic.line_bodies(bodies),
        seqs,
        ts_us if shape.timestamps else None,
        delta,
    )
