"""Rendering: how one topic's records look in the lines that subscribers and queries get.

A *shape* says which parts of a record's line are wanted. Bodies are passed on byte for byte unless
a select list or a delta needs less of them. A `Renderer` knows how messages of its topic are
written and nothing of where they are kept: it gets columns and makes lines of them, for batches,
feeds, snapshots and the log alike. The head of a line (the subscription's name) is put in front of
lines that many share.

A subscriber's documents are the *shown* ones, so deltas are differences of these: a field that is
gone below a selected object needs the whole document, one that is not selected is left out.
"""

import operator
from collections.abc import Sequence
from typing import Literal, NamedTuple

import orjson

from sow.core.comma_lists import check_written, common, parse_select
from sow.core.delta import Document, merged
from sow.core.paths import Path
from sow.errors import invalid_options
from sow.messages.base import MessageType
from sow.messages.json import json_text
from sow.protocol.replies import quoted, record_line, record_lines, timestamp

Kind = Literal["sow", "p", "delta", "oof"]
"""The kinds of line: a record of an answer, a publish, the changes of a record, its leaving."""


class Shape(NamedTuple):
    """How a subscription wants its lines. `select` holds the members of its select list.
    `marked`: lines of records that leave carry their bookmarks too, since it has begun at one."""

    sow_keys: bool = True
    timestamps: bool = False
    select: tuple[str, ...] | None = None
    marked: bool = False

    def shown(self, document: Document) -> Document:
        """The selected part of a document."""
        return document if self.select is None else parse_select(self.select).apply(document)

    def within(self, other: "Shape") -> "Shape":
        """This shape, with no more of a document than another one shows."""
        lists = [one.select for one in (self, other) if one.select is not None]
        return self._replace(select=common(lists) if lists else None)


WHOLE = Shape()


class LineColumns(NamedTuple):
    """What lines are made of, one place for each line.

    `bodies` are messages as they are stored; of deltas, what `Renderer.delta` returned. The other
    columns may be empty where the kind of line or the shape does not need them. `places` are the
    positions in a window, if the lines have them. `expires_us` is when records expire, where a row
    says so: 0 where it does not, -1 for never.
    """

    sow_keys: Sequence[str]
    bodies: Sequence[bytes]
    seqs: Sequence[int]
    ts_us: Sequence[int]
    places: Sequence[int] = ()
    expires_us: Sequence[int] = ()


class Renderer:
    """Writes the records of one topic.

    `name` is the topic's, `keys` are its key fields, which every delta carries; () if it has none.
    """

    __slots__ = ("keys", "message_type", "name")

    def __init__(self, name: str, message_type: MessageType, keys: tuple[Path, ...]) -> None:
        self.name = name
        self.message_type = message_type
        self.keys = keys

    def check_select(self, select: Sequence[str]) -> None:
        """Raise ClientError for a select list that cannot be applied to the topic's messages."""
        check_written(select)
        if not self.message_type.partial:
            raise invalid_options(
                f"messages of {self.name} ({self.message_type.name}) are sent whole or not at all; "
                "leave out select"
            )

    # Documents.

    def document(self, body: bytes) -> Document:
        """A stored message, parsed; only for types with fields."""
        document = self.message_type.parse(body)
        assert isinstance(document, dict)
        return document

    def shown(self, shape: Shape, bodies: Sequence[bytes]) -> Sequence[bytes]:
        """Bodies with only the selected fields."""
        if shape.select is None:
            return bodies
        encode, whole = self.message_type.encode, map(self.document, bodies)
        return [encode(self.shown_of(shape, document)) for document in whole]

    def shown_of(self, shape: Shape, document: Document) -> Document:
        """The part of a document that a subscriber is shown, and then holds."""
        return self._rooted(shape.shown(document), document)

    def delta(self, shape: Shape, delta: Document, new: Document) -> bytes:
        """The body of a delta of shown documents: the key fields that are shown, then what changed.

        `new` is the whole document as it is now. Where no message could express that nothing
        changed, everything shown is sent again: merged into itself it stays the same.
        """
        shown = shape.shown(new)
        document = merged(key_fields(self.keys, shown), delta)
        if not document and self.message_type.has_root:
            document = self._rooted(shown, new)
        return self.message_type.encode(document)

    def _rooted(self, shown: Document, whole: Document) -> Document:
        """The document `shown`; its bare root where nothing is and no message goes without one."""
        return {name: {} for name in whole} if not shown and self.message_type.has_root else shown

    # Bodies as JSON.

    def json_documents(self, bodies: Sequence[bytes]) -> Sequence[bytes]:
        """The documents of bodies as JSON texts; of a type without fields, the texts for them."""
        kind = self.message_type
        if kind.name == "json" or not kind.structured:
            return self.json_texts(bodies)
        return [json_text(kind.parse(body)) for body in bodies]

    def json_texts(self, bodies: Sequence[bytes]) -> Sequence[bytes]:
        """Bodies as JSON texts: themselves, or strings that represent them."""
        if self.message_type.name == "json":
            return bodies
        return [self.message_type.to_line(body) for body in bodies]

    def line_bodies(self, bodies: Sequence[bytes]) -> Sequence[bytes]:
        """Bodies as the JSON text of `d`, with `enc` where the type needs it."""
        return self._marked(self.json_texts(bodies))

    def _marked(self, texts: Sequence[bytes]) -> Sequence[bytes]:
        """With `enc` where the texts are base64."""
        if self.message_type.enc:
            return [b'%b,"enc":"%b"' % (text, self.message_type.enc.encode()) for text in texts]
        return texts

    # Lines.

    def head(self, kind: str, subscription: str, **more: str) -> bytes:
        """The start of a record line, up to where the record itself begins."""
        return orjson.dumps({"c": kind, "s": subscription, "t": self.name, **more})[:-1]

    def lines(
        self, kind: Kind, shape: Shape, columns: LineColumns, head: bytes = b""
    ) -> list[bytes]:
        """One line for each place of the columns, behind `head`; without it, all but their heads.

        Lines of a publish or a delta carry the bookmark, `seqs`; those of an answer none, and those
        of an oof where the shape is `marked`.
        """
        bodies = columns.bodies if kind == "delta" else self.shown(shape, columns.bodies)
        return record_lines(
            head,
            quoted(columns.sow_keys) if shape.sow_keys else None,
            self.line_bodies(bodies),
            columns.seqs if kind in ("p", "delta") or (shape.marked and kind == "oof") else None,
            columns.ts_us if shape.timestamps else None,
            kind == "delta",
            columns.places,
        )

    def line(
        self,
        kind: Kind,
        shape: Shape,
        head: bytes,
        key: str,
        body: bytes,
        place: tuple[int, int],
        positions: Sequence[int] = (),
    ) -> bytes:
        """One of these lines, of a record at a bookmark and time."""
        if kind != "delta" and shape.select is not None:
            (body,) = self.shown(shape, (body,))
        (text,) = self.line_bodies((body,))
        has_bookmark = kind in ("p", "delta") or (shape.marked and kind == "oof")
        return record_line(
            head,
            orjson.dumps(key) if shape.sow_keys else None,
            text,
            place[0] if has_bookmark else None,
            place[1] if shape.timestamps else None,
            kind == "delta",
            positions,
        )

    def documents(self, shape: Shape, columns: LineColumns, meta: bool) -> list[bytes]:
        """Records as JSON texts; with `meta` each one wrapped with its key, bookmark and time."""
        texts = self.json_documents(self.shown(shape, columns.bodies))
        if not meta:
            return list(texts)
        if not self.message_type.structured:
            texts = self._marked(texts)
        return self.wrapped(columns, texts)

    @staticmethod
    def wrapped(columns: LineColumns, texts: Sequence[bytes]) -> list[bytes]:
        """JSON texts of records, each wrapped with its key, bookmark and time."""
        heads = Renderer.heads(columns)
        return [b'%b,"d":%b}' % (head, body) for head, body in zip(heads, texts, strict=True)]

    @staticmethod
    def heads(columns: LineColumns) -> list[bytes]:
        """The beginning of JSON objects with the key, bookmark and time of each record, and when it
        expires."""
        rows = zip(quoted(columns.sow_keys), columns.seqs, columns.ts_us, strict=True)
        heads = [
            b'{"k":%b,"bm":"%d","ts":"%b"' % (key, seq, timestamp(ts).encode())
            for key, seq, ts in rows
        ]
        if not columns.expires_us:
            return heads
        return list(map(operator.add, heads, map(_expiry, columns.expires_us)))


def _expiry(expires_us: int) -> bytes:
    if expires_us < 0:
        return b',"expires":null'
    return b',"expires":"%b"' % timestamp(expires_us).encode() if expires_us else b""


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
