"""Declared fields: messages are validated by the types in a topic's `<Schema>`.

Incoming messages of a topic with a Schema are read through this module; the decoder of a topic
without one is not wrapped. A field that is absent or null is valid, and undeclared fields are not
checked. So a delta is validated by its own fields: the others of its record were validated before.

Records that are older than the Schema are not validated: they are kept and shown as they are until
they are published again. Only a typed column cannot hold such a value; the error of a query for it
names the record (`sow.messages.arrow`).

Values are judged by their JSON texts, so that a number is what was written and not what a double
makes of it. A value is of a type if the type holds it exactly; nothing is rounded or converted, but
that a time is a moment, however it is written. NULL is of every type.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache

import msgspec

from conflated_topics.user_texts import nearest
from sow.core.definitions import Declared
from sow.core.paths import Path, parse_path
from sow.errors import BadMessage, ClientError, clipped, shown
from sow.messages.base import Column, Decoder, MessageType
from sow.messages.json import Json
from sow.messages.json_texts import (
    JSON_NULL,
    NUMBER_TEXT,
    FieldTexts,
    Texts,
    fits_decimal,
    fits_double,
    fits_int64,
    json_text,
    text_within,
    value_within,
)

DECIMAL_DIGITS_MAX = 38
"""Digits that fit into 128 bits, the limit of Arrow's and Spark's decimals."""
DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*(?:,\s*(\d{1,3})\s*)?\)", re.ASCII)
TIME = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,6})0*)?(Z|z|[+-]\d\d:?\d\d)?", re.ASCII
)
DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // (datetime.resolution)
LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // (datetime.resolution)
"""The years 1 to 9999, which is what every program shows that reads such times."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """A declared type: its name, what a value of it is, and whether a JSON text is one.

    `precision` and `scale` are those of a decimal.
    """

    name: str
    about: str
    fits: Callable[[bytes], bool] = field(compare=False)
    precision: int = 0
    scale: int = 0


def text_of(text: bytes) -> str | None:
    """The text that a JSON text is; None if it is another value."""
    return msgspec.json.decode(text, type=str) if text[:1] == b'"' else None


def moment_us(text: bytes) -> int | None:
    """The microseconds since 1970 (UTC) of a value; None if it is no time.

    A whole number is just that; a text is a date and time of ISO 8601, in UTC unless it names
    another offset.
    """
    if fits_int64(text):
        time_us = int(text)
        return time_us if FIRST_US <= time_us <= LAST_US else None
    found = TIME.fullmatch(text_of(text) or "")
    if found is None:
        return None
    base, fraction, zone = found.groups()
    try:
        time = datetime.fromisoformat(base + (zone or "Z").upper())
    except ValueError:
        return None
    try:
        time_us = (time - EPOCH) // datetime.resolution
    except OverflowError:
        return None
    time_us += int((fraction or "").ljust(6, "0"))
    return time_us if FIRST_US <= time_us <= LAST_US else None


def day_of(text: bytes) -> date | None:
    """The day in a text, as 2025-01-31; None if there is none."""
    found = text_of(text) or ""
    if not DATE.fullmatch(found):
        return None
    try:
        return date.fromisoformat(found)
    except ValueError:
        return None


def _is_number(text: bytes) -> bool:
    return NUMBER_TEXT.match(text) is not None


VALUE_TYPES = {
    one.name: one
    for one in (
        ValueType("int64", "a whole number of 64 bits, written without a fraction", fits_int64),
        ValueType(
            "float64",
            "a number that a double holds exactly",
            lambda text: _is_number(text) and fits_double(text),
        ),
        ValueType("string", "a text", lambda text: text[:1] == b'"'),
        ValueType("bool", "true or false", lambda text: text in (b"true", b"false")),
        ValueType(
            "timestamp",
            "a date and time such as 2025-01-31T09:30:00.000001Z, or microseconds since 1970",
            lambda text: moment_us(text) is not None,
        ),
        ValueType("date", "a day such as 2025-01-31", lambda text: day_of(text) is not None),
        ValueType("json", "any value", lambda _text: True),
    )
}
"""All but decimals, which have a type for each precision and scale."""


OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("int", "integer", "long", "bigint", "int32"), "int64"),
    **dict.fromkeys(("double", "float", "real", "number", "float32"), "float64"),
    **dict.fromkeys(("numeric", "decimal", "money"), "decimal(18,4)"),
    **dict.fromkeys(("text", "str", "varchar", "char"), "string"),
    **dict.fromkeys(("boolean", "flag"), "bool"),
    **dict.fromkeys(("datetime", "time", "instant"), "timestamp"),
    **dict.fromkeys(("object", "array", "any", "document"), "json"),
}
"""Other products' names for these types."""


def value_type(text: str) -> ValueType:
    """The type of a name such as ``int64`` or ``decimal(18,4)``; raises ClientError."""
    if text in VALUE_TYPES:
        return VALUE_TYPES[text]
    if found := DECIMAL.fullmatch(text):
        return _decimal(int(found[1]), int(found[2] or 0))
    known = [*VALUE_TYPES, "decimal(18,4)"]
    meant = OTHER_NAMES.get(text.lower()) or nearest(text, known)
    raise ClientError(
        f"{shown(text)} is no type of a field; "
        + (f"did you mean {meant}?" if meant else f"write one of {', '.join(known)}")
    )


def _decimal(precision: int, scale: int) -> ValueType:
    if not 1 <= precision <= DECIMAL_DIGITS_MAX or scale > precision:
        raise ClientError(
            f"decimal({precision},{scale}) is no type of a field; write decimal(p,s) with 1 to "
            f"{DECIMAL_DIGITS_MAX} digits in all, and at most all of them behind the point"
        )
    return ValueType(
        f"decimal({precision},{scale})",
        f"a number of at most {precision} digits, {scale} of them behind the point",
        lambda text: _is_number(text) and fits_decimal(text, precision, scale),
        precision,
        scale,
    )


TEXTS = {"Y": b"true", "N": b"false", "true": b"true", "false": b"false"}


def from_text(text: str, kind: ValueType) -> bytes | None:
    """The JSON text of a bare text that is to be of a type: for messages and tables that have only
    texts. None if it is no value of the type."""
    encoded = text.encode()
    if kind.name == "bool":
        return TEXTS.get(text)
    wants_text = kind.name in ("string", "json", "date")
    is_number = not wants_text and NUMBER_TEXT.match(encoded)
    quoted = encoded if is_number else msgspec.json.encode(text)
    return quoted if kind.fits(quoted) else None


SCHEMAS_MAX = 256
"""Schemas that are kept ready, some kilobytes each."""


class DeclaredFields:
    """The declared fields of messages of one type."""

    def __init__(self, kind: MessageType, declared: Sequence[Declared]) -> None:
        self.paths = tuple(parse_path(one.path) for one in declared)
        self.types = tuple(value_type(one.type) for one in declared)
        self._parse = kind.parse
        self._from_text = kind.has_only_texts
        self._outer: FieldTexts | None = None
        """Of JSON: its texts are read, and not what they are parsed to."""
        if isinstance(kind, Json):
            self._outer = FieldTexts(list(dict.fromkeys(path.steps[0] for path in self.paths)))

    def texts(self, bodies: Sequence[bytes]) -> list[Texts]:
        """For each declared field the JSON texts of its values, one for each body."""
        if self._outer is None:
            documents = list(map(self._parse, bodies))
            pairs = list(zip(self.paths, self.types, strict=True))
            return [[self._text(one, path, kind) for one in documents] for path, kind in pairs]
        found = dict(zip(self._outer.names, self._outer(bodies), strict=True))
        return [
            [text_within(text, path.steps[1:]) for text in found[path.steps[0]]]
            if len(path.steps) > 1
            else found[path.steps[0]]
            for path in self.paths
        ]

    def _text(self, document: object, path: Path, kind: ValueType) -> bytes | None:
        value = value_within(document, path.steps)
        if value is None:
            return None
        if self._from_text and isinstance(value, str):
            read = from_text(value, kind)
            if read is not None:
                return read
        return json_text(value)

    def check(self, bodies: Sequence[bytes]) -> None:
        """Raise BadMessage with the index of the first message that does not fit, and the field."""
        wrong: list[tuple[int, Path, ValueType, bytes]] = []
        for path, kind, texts in zip(self.paths, self.types, self.texts(bodies), strict=True):
            fits = kind.fits
            for index, text in enumerate(texts):
                if text is not None and text != JSON_NULL and not fits(text):
                    wrong.append((index, path, kind, text))
                    break
        if wrong:
            index, path, kind, text = min(wrong, key=lambda found: found[0])
            value = clipped(text[:400].decode("utf-8", "replace"))
            raise BadMessage(
                f"message {index}: {path} is {value}, and its type in the Schema is {kind.name}: "
                f"{kind.about}",
                index=index,
                field=str(path),
            )


@lru_cache(maxsize=SCHEMAS_MAX)
def declared_fields(kind: MessageType, declared: tuple[Declared, ...]) -> DeclaredFields:
    """The declarations of a Schema, shared by the topics of a pattern."""
    return DeclaredFields(kind, declared)


class JudgingDecoder:
    """A decoder of what arrives, which takes only what fits."""

    def __init__(self, decoder: Decoder, declared: DeclaredFields) -> None:
        self._decoder = decoder
        self._declared = declared

    def columns(self, bodies: Sequence[bytes]) -> list[Column]:
        """One column for each path, of bodies that were taken."""
        return self._decoder.columns(bodies)

    def read(self, bodies: Sequence[bytes]) -> tuple[list[bytes], list[Column]]:
        """The bodies as they are to be stored, and their columns; raises BadMessage."""
        stored, columns = self._decoder.read(bodies)
        self._declared.check(stored)
        return stored, columns
