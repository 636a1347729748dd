"""Flat texts with separators: FIX and NVFIX messages, and records.

    FIX      8=FIX.4.4␁55=ACME␁44=10.50␁
    record   7␂ACME␂10.50          trades: id, symbol, price

FIX has numbers for tags and NVFIX names; to this server they are the same. A tag may hold anything
but ``=`` and the separator, a value anything but the separator, and both are UTF-8. A tag that
comes more than once has the list of its values. All values are text; header and trailer fields are
fields like any other, and checksums are not verified.

A record has the values of the configured fields, in order, without names. A separator is between
two values, and U+0001 ends each record of a sequence. An empty value is an absent field, and so are
those that are missing at the end. So a record with some empty values is a delta that changes the
others, by the general rule for deltas. A field holds text, a whole number of any size, or a decimal
number that keeps its digits (`sow.core.lossless_numbers`). Bodies are kept as received, without a
final U+0001.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from sow.core.definitions import MessageTypeOptions, RecordFieldType
from sow.core.lossless_numbers import NUMBER_CHARS_MAX, number, written
from sow.core.paths import Path, Scalar
from sow.errors import BadMessage, ConfigError, shown
from sow.messages.base import Column, MessageType, bytes_of, text_of
from sow.messages.documents import VALUES_MAX, DocumentDecoder, TextType

Fields = dict[str, str | list[str]]


class Fix(TextType):
    """The FIX and NVFIX message types; the separator comes from the configuration."""

    has_only_texts = True

    def __init__(self, options: MessageTypeOptions) -> None:
        separator = options.field_separator
        if len(separator) != 1 or separator == b"=" or separator >= b"\x80":
            raise ConfigError(
                f"a field separator cannot be {separator!r}; write the code of one ASCII"
                " character other than '=', such as 1 (SOH) or 124 (|)",
                line=options.line,
                element="FieldSeparator",
            )
        super().__init__(options)
        self._separator = separator.decode()

    def arriving(self, body: bytes) -> Fields:
        """The fields of a message that has not too many; raises BadMessage."""
        if body.count(self._separator.encode()) > VALUES_MAX:
            raise BadMessage(
                f"it has more than {VALUES_MAX:,} fields, which are all read in one step; send "
                "several messages"
            )
        return self.parse(body)

    def parse(self, body: bytes) -> Fields:
        """The fields in order; raises BadMessage with the offset of a bad one."""
        text = text_of(body)
        fields = text.split(self._separator)
        if not fields[-1]:
            del fields[-1]
        try:
            pairs = [field.split("=", 1) for field in fields]
            document: Fields = {tag: value for tag, value in pairs}  # noqa: C416  (checks pairs)
        except ValueError:
            raise self._bad_field(fields) from None
        if "" in document:
            raise self._bad_field(fields)
        return document if len(document) == len(pairs) else _gathered(pairs)

    def _bad_field(self, fields: list[str]) -> BadMessage:
        """The error for the first field without ``=`` or without a tag."""
        offset = 0
        for field in fields:
            if field.find("=") < 1:
                break
            offset += len(field.encode()) + 1
        shown = field if len(field) <= 40 else field[:40] + "…"
        return BadMessage(
            f"the field {shown!r} at byte {offset} is not tag=value"
            f" (fields end with {self._separator!r})"
        )

    def stored(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Bodies with their final separator, which publishers may leave out."""
        separator = self._separator.encode()
        return [one if not one or one.endswith(separator) else one + separator for one in bodies]

    def encode(self, document: object) -> bytes:
        """A field for each value; null is left out, true and false are Y and N."""
        if not isinstance(document, dict):
            raise BadMessage(f"a {self.name} message must be an object of tags and values")
        fields = [
            self._field(tag, value)
            for tag, values in document.items()
            for value in (values if isinstance(values, list) else [values])
            if value is not None
        ]
        return bytes_of("".join(fields))

    def _field(self, tag: object, value: object) -> str:
        if isinstance(value, bool):
            value = "Y" if value else "N"
        if not isinstance(value, str | int | float):
            raise BadMessage(f"tag {shown(str(tag))}: a {self.name} field holds text or a number")
        field = f"{tag}={value}{self._separator}"
        if not tag or "=" in str(tag) or field.index(self._separator) != len(field) - 1:
            raise BadMessage(
                f"tag {shown(str(tag))}: a tag cannot be empty or hold '=', and neither tag nor "
                f"value can hold the separator {self._separator!r}"
            )
        return field


def _gathered(pairs: list[list[str]]) -> Fields:
    """The document of fields, some of them repeated."""
    lists: dict[str, list[str]] = {}
    for tag, value in pairs:
        lists.setdefault(tag, []).append(value)
    return {tag: values if len(values) > 1 else values[0] for tag, values in lists.items()}


RECORD_END = "\x01"
"""The separator of records in one text."""
FIELDS_MAX = 1000
"""Fields of one type: every message is compared with them, and real tables have fewer columns."""
IN_NUMBERS = "+-."
"""Separators that a number could hold."""


def mistakes(options: MessageTypeOptions) -> Iterator[ConfigError]:
    """All that is wrong with the fields and the separator of a record, each with its line."""

    def mistake(detail: str, element: str, line: int = options.line) -> ConfigError:
        return ConfigError(detail, line=line, element=element)

    if not options.fields:
        yield mistake(
            "a record has no field; define one in MessageTypes that names its fields in order, as "
            "<Field>id</Field>",
            "Module",
        )
    if len(options.fields) > FIELDS_MAX:
        yield mistake(
            f"a record has {len(options.fields)} fields, and {FIELDS_MAX} are the most; "
            "make it a message type that names its fields, such as json",
            "Field",
            options.fields[FIELDS_MAX].line,
        )
    lines: dict[str, int] = {}
    for field in options.fields:
        if field.name in lines:
            yield mistake(
                f"names the field {shown(field.name)} a second time, first in line "
                f"{lines[field.name]}; every field has one place, so give this one another name",
                "Field",
                field.line,
            )
        lines.setdefault(field.name, field.line)
    separator = options.field_separator.decode("latin-1")
    if len(separator) != 1 or separator >= "\x80" or separator in (RECORD_END, *IN_NUMBERS):
        yield mistake(
            f"{separator!r} cannot separate the fields of a record: U+0001 ends records, and "
            "numbers hold + - and .; write the code of another ASCII character, such as 2 "
            "(U+0002, which is the default) or 124 (|)",
            "FieldSeparator",
        )


class Record(TextType):
    """The record message type; its fields come from the configuration."""

    def __init__(self, options: MessageTypeOptions) -> None:
        for mistake in mistakes(options):
            raise mistake
        super().__init__(options)
        self.fields = tuple(field.name for field in options.fields)
        self._kinds = [field.type for field in options.fields]
        self._readers = [READERS[kind] for kind in self._kinds]
        # Without its only field nothing would be left of a record.
        self.partial = len(self.fields) > 1
        self._places = {name: place for place, name in enumerate(self.fields)}
        self._numbers = [place for place, kind in enumerate(self._kinds) if kind != "string"]
        self._separator = options.field_separator.decode()

    def decoder(self, paths: tuple[Path, ...]) -> "RecordDecoder":
        """A decoder of these paths."""
        return RecordDecoder(self, paths)

    def parse(self, body: bytes) -> dict[str, Scalar]:
        """The fields that have a value, in order; raises BadMessage."""
        document: dict[str, Scalar] = {}
        for place, text in enumerate(self._texts(body)):
            if text:
                value = self._readers[place](text)
                if value is None:
                    raise BadMessage(
                        f"{self.fields[place]} is {shown(text)}, which is no "
                        f"{NUMBERS[self._kinds[place]]} of at most {NUMBER_CHARS_MAX} digits"
                    )
                document[self.fields[place]] = value
        return document

    def _texts(self, body: bytes) -> list[str]:
        """The values as they are written, as far as there are some; raises BadMessage."""
        text = text_of(body)
        if not text:
            raise BadMessage("a record is not empty: write one value, or one separator")
        if RECORD_END in text:
            raise BadMessage(
                f"U+0001 at character {text.index(RECORD_END)} ends a record, and a message is "
                "one; send each by itself, or all of them as text/plain"
            )
        # One value too many is enough to see: there could be millions.
        texts = text.split(self._separator, len(self.fields))
        if len(texts) > len(self.fields):
            count = text.count(self._separator) + 1
            raise BadMessage(
                f"{count} values for the {len(self.fields)} fields of {self.name}, the last of "
                f"them {shown(self.fields[-1])}; values are separated by {self._separator!r}"
            )
        return texts

    def rows(self, bodies: Sequence[bytes]) -> list[list[str]]:
        """The values as they are written, of records that were found good."""
        separator = self._separator
        return [str(body, "utf-8").split(separator) for body in bodies]

    def plain_rows(self, bodies: Sequence[bytes]) -> list[list[str]] | None:
        """The same of records that have just come, read and checked as one text; None where that
        raises any doubt."""
        try:
            lines = RECORD_END.encode().join(bodies).decode().split(RECORD_END)
        except UnicodeDecodeError:
            return None
        if len(lines) != len(bodies) or "" in lines:
            return None
        separator, most = self._separator, len(self.fields)
        rows = [line.split(separator, most) for line in lines]
        if max(map(len, rows)) > most:
            return None
        for place in self._numbers:
            texts = texts_at(rows, place)
            are_numbers = PLAIN_NUMBERS[self._kinds[place]]
            if not are_numbers.match(RECORD_END.join(texts)):
                return None
            if max(map(len, texts)) > NUMBER_CHARS_MAX:
                return None
        return rows

    def reader(self, path: Path) -> tuple[int, Callable[[str], Scalar]] | None:
        """The index of the value of a path, and its parser; None if there never is one."""
        if len(path.steps) > 1 or path.index or path.steps[0] not in self._places:
            return None
        place = self._places[path.steps[0]]
        return place, self._readers[place]

    def stored(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Bodies without a final U+0001, which writers of many records put behind the last."""
        end = RECORD_END.encode()
        return [body.removesuffix(end) for body in bodies]

    def encode(self, document: object) -> bytes:
        """The values in order, up to the last there is; raises BadMessage for another field.

        Where there is none a separator is written: no record is empty.
        """
        if not isinstance(document, dict):
            raise BadMessage(f"a {self.name} message must be an object of fields and values")
        unknown = next((name for name in document if name not in self._places), None)
        if unknown is not None:
            raise BadMessage(
                f"messages of type {self.name} have no field {shown(str(unknown))}; their fields "
                f"are {shown(', '.join(self.fields))}"
            )
        texts = [self._text(place, document.get(name)) for place, name in enumerate(self.fields)]
        while texts and not texts[-1]:
            del texts[-1]
        return bytes_of(self._separator.join(texts) or self._separator * self.partial)

    def _text(self, place: int, value: object) -> str:
        """The bytes of a value; empty for None."""
        if value is None:
            return ""
        name, kind = self.fields[place], self._kinds[place]
        if isinstance(value, float):
            text = written(value)
        elif isinstance(value, str | int) and not isinstance(value, bool):
            text = str(value)
        else:
            raise BadMessage(f"{name}: a field of a record holds one text or number")
        if text and self._readers[place](text) is None:
            raise BadMessage(f"{name}: {shown(text)} is no {NUMBERS[kind]}")
        if self._separator in text or RECORD_END in text:
            raise BadMessage(
                f"{name}: a value can hold neither the separator {self._separator!r} nor U+0001"
            )
        return text


class RecordDecoder(DocumentDecoder):
    """Reads the values at a few places and leaves the others as text."""

    def __init__(self, record: Record, paths: tuple[Path, ...]) -> None:
        super().__init__(record, ())
        self._record = record
        self._readers = [record.reader(path) for path in paths]

    def columns(self, bodies: Sequence[bytes]) -> list[Column]:
        """One column per path of bodies that `read` has accepted."""
        return self._columns(self._record.rows(bodies))

    def read(self, bodies: Sequence[bytes]) -> tuple[list[bytes], list[Column]]:
        """The bodies without a final U+0001, and their columns; raises BadMessage."""
        stored = self._record.stored(bodies)
        rows = self._record.plain_rows(stored)
        if rows is None:
            self.checked(stored)
            rows = self._record.rows(stored)
        return stored, self._columns(rows)

    def _columns(self, rows: Sequence[list[str]]) -> list[Column]:
        nothing: Column = [None] * len(rows)
        columns: list[Column] = []
        for found in self._readers:
            if found is None:
                columns.append(nothing)
                continue
            place, read = found
            columns.append([read(text) if text else None for text in texts_at(rows, place)])
        return columns


def texts_at(rows: Sequence[list[str]], place: int) -> list[str]:
    """The values at one place; empty where a row ends before it."""
    try:
        return [row[place] for row in rows]
    except IndexError:
        return [row[place] if place < len(row) else "" for row in rows]


def records_of(kind: MessageType, lines: list[bytes]) -> list[bytes]:
    """The messages that the lines of a text hold: each one is a message, or several records."""
    if not isinstance(kind, Record):
        return lines
    end = RECORD_END.encode()
    return [record for line in lines for record in line.split(end) if record]


def _integer(text: str) -> int | None:
    value = number(text)
    return value if isinstance(value, int) else None


PLAIN_NUMBERS: dict[RecordFieldType, re.Pattern[str]] = {
    "int": re.compile(r"(?:(?:0|-?[1-9][0-9]*+)?(?:\x01|\Z))*+\Z"),
    "decimal": re.compile(r"(?:(?:-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?)?(?:\x01|\Z))*+\Z"),
}
"""The values of many records at one place, with U+0001 between them. Those with exponents,
which may be too large, are looked at one by one."""
READERS: dict[RecordFieldType, Callable[[str], Scalar]] = {
    "string": str,
    "int": _integer,
    "decimal": number,
}
"""Parses a value; gives None if the text is not of that kind."""
NUMBERS: dict[RecordFieldType, str] = {
    "int": "whole number such as 42 or -7",
    "decimal": "number such as 42, -1.50 or 6.02e23",
}
