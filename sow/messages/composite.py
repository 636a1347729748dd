"""Composite messages: several messages of other types in one, each after its length.

    [length of part 0, 4 bytes big-endian] [part 0] [length of part 1] [part 1] …

Every part is read, checked and stored as a message of its own type. *Local*: the fields of a part
are below its number, `/0/id`; the bytes after the last part are the *tail*, which is not parsed,
and is the base64 text at the number after the last. A part of length zero is absent, so a message
without some parts is a delta that does not change these, by the general rule for deltas.
*Global*: the fields of all parts are one document, `/id`; a field of several parts has the list of
their values. The part of a value is not known any more, so a delta is the whole message, and the
server writes its own messages into one part.
"""

from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from sow.core.definitions import MessageTypeOptions
from sow.core.paths import Path
from sow.errors import BadMessage, ConfigError, shown
from sow.messages.base import Column, Decoder, MessageType
from sow.messages.bflat import BFlat
from sow.messages.documents import (
    ONLY_FIELD,
    Base64,
    BytesType,
    DocumentColumns,
    DocumentDecoder,
    OneValue,
    of_message,
)
from sow.messages.separated import Fix, Record

LENGTH_BYTES = 4
"""Bytes of the length before a part, as in AMPS: four gigabytes, far more than a message has."""


class _Composite(BytesType):
    """The common base of both: parts are split, checked and joined alike."""

    has_tail: bool

    def __init__(self, options: MessageTypeOptions, kinds: Sequence[MessageType]) -> None:
        if not kinds:
            raise ConfigError(NO_PART, line=options.line, element="Module")
        super().__init__(options)
        self.kinds = tuple(kinds)

    def split(self, body: bytes) -> list[bytes]:
        """The parts in order, and the tail; raises BadMessage."""
        parts, at = [], 0
        for number in range(len(self.kinds)):
            start = at + LENGTH_BYTES
            if start > len(body):
                raise BadMessage(
                    f"the length of part {number} should be in 4 bytes at byte {at}, and the "
                    f"message has {len(body)} bytes"
                )
            end = start + int.from_bytes(body[at:start], "big")
            if end > len(body):
                raise BadMessage(
                    f"part {number} should have {end - start} bytes from byte {start} on, and "
                    f"{len(body) - start} follow"
                )
            parts.append(body[start:end])
            at = end
        if at < len(body) and not self.has_tail:
            raise BadMessage(
                f"{len(body) - at} bytes follow the last part, {len(self.kinds) - 1}, at byte {at}"
            )
        parts.append(body[at:])
        return parts

    def parsed(self, body: bytes) -> list[Any]:
        """The content of the parts, None for an absent one; raises BadMessage. Bytes, such as the
        tail, are base64."""
        *parts, tail = self.split(body)
        found: list[Any] = []
        for number, (kind, part) in enumerate(zip(self.kinds, parts, strict=True)):
            try:
                value = kind.parse(part) if part else None
            except BadMessage as error:
                raise type(error)(f"part {number}: {error.detail}") from None
            found.append(Base64.of(value) if isinstance(value, bytes) else value)
        return [*found, Base64.of(tail) if tail else None]

    def checked(
        self, bodies: Sequence[bytes], decoders: Sequence[Decoder]
    ) -> tuple[list[bytes], list[list[Column]]]:
        """Bodies that just arrived, each part checked by its decoder, as they are to be stored, and
        for each part the columns of its decoder; raises BadMessage with the index of the first bad
        one."""
        mistakes: list[BadMessage] = []
        rows: list[list[bytes]] = []
        for index, body in enumerate(bodies):
            try:
                rows.append(self.split(body))
            except BadMessage as error:
                mistakes.append(of_message(error, index))
                break
        columns: list[list[Column]] = []
        changed: set[int] = set()
        for number, decoder in enumerate(decoders):
            there = _there(rows, number)
            came = [rows[at][number] for at in there]
            try:
                stored, found = decoder.read(came)
            except BadMessage as error:
                mistakes.append(_of_part(error, number, there[error.index]))
                continue
            columns.append([_spread(column, there, len(rows)) for column in found])
            if stored != came:
                for at, part in zip(there, stored, strict=True):
                    rows[at][number] = part
                changed.update(there)
        if mistakes:
            raise min(mistakes, key=lambda mistake: mistake.index)
        stored = [_joined(rows[at]) if at in changed else body for at, body in enumerate(bodies)]
        return stored, columns


class CompositeLocal(_Composite):
    """Fields below the numbers of their parts."""

    partial = True
    has_tail = True

    def decoder(self, paths: tuple[Path, ...]) -> "LocalDecoder":
        """A decoder of these paths."""
        return LocalDecoder(self, paths)

    def parse(self, body: bytes) -> dict[str, Any]:
        """The parts that there are, by number; raises BadMessage."""
        found = enumerate(self.parsed(body))
        return {str(number): value for number, value in found if value is not None}

    def encode(self, document: object) -> bytes:
        """Each part as its type writes it, then the tail; raises BadMessage."""
        if not isinstance(document, dict):
            raise BadMessage(f"a {self.name} message must be an object of parts")
        numbers = [str(number) for number in range(len(self.kinds) + 1)]
        unknown = next((name for name in document if name not in numbers), None)
        if unknown is not None:
            raise BadMessage(
                f"messages of type {self.name} have no part {shown(str(unknown))}; their parts are "
                f"0 to {len(self.kinds) - 1}, and the tail is {len(self.kinds)}"
            )
        parts = []
        for number, kind in zip(numbers, self.kinds, strict=False):
            try:
                parts.append(_part(kind, document.get(number)))
            except BadMessage as error:
                raise type(error)(f"part {number}: {error.detail}") from None
        return _joined([*parts, _bytes_of(document.get(numbers[-1]))])


class LocalDecoder:
    """Reads each part by the decoder of its type, and only the parts that paths lead to."""

    def __init__(self, composite: CompositeLocal, paths: tuple[Path, ...]) -> None:
        self._composite = composite
        self._count = len(paths)
        self._below: list[list[int]] = []
        """By part: which paths lead into it."""
        self._decoders: list[Decoder] = []
        for number, kind in enumerate(composite.kinds):
            into = [at for at, path in enumerate(paths) if _leads_into(path, number)]
            inner = tuple(Path(paths[at].steps[1:], paths[at].index) for at in into)
            self._below.append(into)
            self._decoders.append(kind.decoder(inner))
        # What is no message with fields, bytes for one, has its value at the number itself.
        self._ends = [at for at, path in enumerate(paths) if len(path.steps) == 1]
        self._values = DocumentColumns([paths[at] for at in self._ends])

    def columns(self, bodies: Sequence[bytes]) -> list[Column]:
        """One column per path of bodies that `read` has accepted."""
        rows = list(map(self._composite.split, bodies))
        columns: list[list[Column]] = []
        for number, (into, decoder) in enumerate(zip(self._below, self._decoders, strict=True)):
            found: list[Column] = []
            if into:
                there = _there(rows, number)
                read = decoder.columns([rows[at][number] for at in there])
                found = [_spread(column, there, len(rows)) for column in read]
            columns.append(found)
        return self._gathered(columns, bodies)

    def read(self, bodies: Sequence[bytes]) -> tuple[list[bytes], list[Column]]:
        """The bodies with their parts as those are stored, and their columns; raises BadMessage."""
        stored, columns = self._composite.checked(bodies, self._decoders)
        return stored, self._gathered(columns, stored)

    def _gathered(
        self, of_parts: Sequence[Sequence[Column]], bodies: Sequence[bytes]
    ) -> list[Column]:
        """Columns of the parts in the order of the paths."""
        columns: list[Column] = [[None] * len(bodies)] * self._count
        for into, found in zip(self._below, of_parts, strict=True):
            for at, column in zip(into, found, strict=True):
                columns[at] = column
        if self._ends:
            documents = list(map(self._composite.parse, bodies))
            for at, column in zip(self._ends, self._values(documents), strict=True):
                columns[at] = column
        return columns


class CompositeGlobal(_Composite):
    """The fields of all parts as one document."""

    partial = False
    has_tail = False

    def decoder(self, paths: tuple[Path, ...]) -> "GlobalDecoder":
        """A decoder of these paths."""
        return GlobalDecoder(self, paths)

    def parse(self, body: bytes) -> dict[str, Any]:
        """The fields of all parts; raises BadMessage."""
        return gathered([one for one in self.parsed(body) if isinstance(one, dict)])

    def encode(self, document: object) -> bytes:
        """All fields in the first part whose type can hold them; raises BadMessage if none can."""
        for number, kind in enumerate(self.kinds):
            if isinstance(document, dict) and kind.structured:
                try:
                    part = kind.encode(document)
                except BadMessage:
                    continue
                parts = [part if at == number else b"" for at in range(len(self.kinds))]
                return _joined([*parts, b""])
        raise BadMessage(f"no part of a {self.name} message can hold the fields of this one")


class GlobalDecoder(DocumentDecoder):
    """Parses the parts and looks the paths up in what they make together."""

    def __init__(self, composite: CompositeGlobal, paths: tuple[Path, ...]) -> None:
        super().__init__(composite, paths)
        self._composite = composite
        self._decoders = [kind.decoder(()) for kind in composite.kinds]

    def read(self, bodies: Sequence[bytes]) -> tuple[list[bytes], list[Column]]:
        """The bodies with their parts as those are stored, and their columns; raises BadMessage."""
        stored, _ = self._composite.checked(bodies, self._decoders)
        return stored, self.columns(stored)


def gathered(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The fields of all documents: objects become one, other values that meet become a list."""
    if len(documents) == 1:
        return documents[0]
    values: dict[str, list[Any]] = {}
    for document in documents:
        for name, value in document.items():
            values.setdefault(name, []).append(value)
    return {name: _together(found) for name, found in values.items()}


def _together(values: list[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    if all(isinstance(value, dict) for value in values):
        return gathered(values)
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def missing(kind: MessageType, path: Path) -> str:
    """Why no message of a type can have a value at a path, by the type and its configuration; empty
    if one can."""
    if isinstance(kind, OneValue):
        if path.steps == (ONLY_FIELD,):
            return ""
        return f"a message of type {kind.name} has no field {shown(str(path))}; write /{ONLY_FIELD}"
    if isinstance(kind, Fix | BFlat):
        if len(path.steps) == 1:
            return ""
        return (
            f"a message of type {kind.name} has no field {shown(str(path))}, since there are none "
            f"inside of others; write a path of one name, such as /{path.steps[-1]}"
        )
    if isinstance(kind, Record):
        if kind.reader(path) is not None:
            return ""
        return (
            f"messages of type {kind.name} have no field {shown(str(path))}; their fields are "
            f"{shown(', '.join(kind.fields))}"
        )
    if isinstance(kind, CompositeLocal):
        number, *inner = path.steps
        if number not in map(str, range(len(kind.kinds) + 1)):
            return (
                f"messages of type {kind.name} have no part at {shown(str(path))}; write /0/id for "
                f"a field of the first part; the type has {len(kind.kinds)} parts"
            )
        if not inner or int(number) == len(kind.kinds):
            return ""
        return missing(kind.kinds[int(number)], Path(tuple(inner), path.index))
    if isinstance(kind, CompositeGlobal):
        reasons = [missing(part, path) for part in kind.kinds]
        return reasons[0] if all(reasons) else ""
    return ""


def _leads_into(path: Path, number: int) -> bool:
    return len(path.steps) > 1 and path.steps[0] == str(number)


def _there(rows: Sequence[Sequence[bytes]], number: int) -> list[int]:
    """The messages that have a part."""
    return [at for at, row in enumerate(rows) if row[number]]


def _spread(column: Column, there: Sequence[int], count: int) -> Column:
    """A column of some messages as one of all of them."""
    if len(there) == count:
        return column
    spread: Column = [None] * count
    for at, value in zip(there, column, strict=True):
        spread[at] = value
    return spread


def _of_part(error: BadMessage, number: int, index: int) -> BadMessage:
    """The error of a part's decoder, as one of the whole message."""
    named = f"message {error.index}"
    why = (
        error.detail.removeprefix(named) if error.detail.startswith(named) else f": {error.detail}"
    )
    return type(error)(f"message {index}: part {number}{why}", index=index)


def _joined(parts: Sequence[bytes]) -> bytes:
    """The body of the parts; the last one is the tail, which has no length before it."""
    *sized, tail = parts
    return b"".join(
        [piece for part in sized for piece in (len(part).to_bytes(LENGTH_BYTES, "big"), part)]
        + [tail]
    )


def _part(kind: MessageType, value: object) -> bytes:
    """The encoding of a part's content; empty if it is absent."""
    if value is None:
        return b""
    try:
        return kind.encode(value if kind.structured else _bytes_of(value))
    except BadMessage:
        if value == {}:
            return b""  # a select list has left nothing of a message that is whole or not at all
        raise


def _bytes_of(value: object) -> bytes:
    """The bytes of a base64 text; raises BadMessage."""
    if value is None:
        return b""
    try:
        return b64decode(str(value) if isinstance(value, str) else "?", validate=True)
    except ValueError:
        raise BadMessage("bytes are written as base64") from None


NO_PART = (
    "a composite has no part; define one in MessageTypes that names the types of its parts in "
    "order, as <MessageType>json</MessageType>"
)
