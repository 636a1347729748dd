"""Records as CSV (RFC 4180), and CSV as records, some rows at a time.

Out: a header, then a line for each record. A record is a row of text cells (`cells`): columns are
top-level fields, nested ones named like /a/b. Values keep their stored spelling (1.10 stays 1.10);
arrays stay JSON text. The name of a nested field is a JSON pointer (RFC 6901), and so is that of a
field whose own name begins with a slash; so names are unique, and `steps_of` maps a name back to
its field. The columns are those that the topic declares, and those of the first `HEADER_ROWS`
records: the header of a stream cannot change. A field that occurs only later has no column.

In: each row becomes a message of the fields with cells that are not empty. A declared field is read
by its type. In others, numbers, true and false and the JSON texts of arrays and objects are read as
such, and all else is text, such as a number beyond every double. So a text that looks like a number
stays a text only if it is declared.

Input is bounded row by row: the csv module does not limit a row of many lines, and a short row may
name long columns.
"""

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from sow.core.cooperative import Task
from sow.core.lossless_numbers import number
from sow.errors import BadMessage, ClientError, TooLarge, clipped, shown
from sow.messages.base import MessageType
from sow.messages.declared import VALUE_TYPES, DeclaredFields, ValueType, from_text
from sow.messages.documents import ONLY_FIELD
from sow.messages.json import Json, read_document
from sow.messages.json_texts import NUMBER_TEXT
from sow.messages.separated import Record

FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
TEXT_DECODER = msgspec.json.Decoder(str)

Cells = dict[str, str]


def cells(record: bytes, whole: Collection[str] = ()) -> Cells:
    """One record, given as JSON text, as text by column; null and absent are both empty.

    Objects in the columns `whole` are not looked into.
    """
    found: Cells = {}
    if record.lstrip().startswith(b"{"):
        _add_fields(found, (), record, whole)
    else:
        found[ONLY_FIELD] = _cell(record)
    return found


def _add_fields(found: Cells, above: tuple[str, ...], text: bytes, whole: Collection[str]) -> None:
    for name, raw in FIELDS.decode(text).items():
        value = bytes(raw).strip()
        column = column_of((*above, name))
        if value.startswith(b"{") and value != b"{}" and column not in whole:
            _add_fields(found, (*above, name), value, whole)
        else:
            found[column] = _cell(value)


def _cell(value: bytes) -> str:
    if value.startswith(b'"'):
        return TEXT_DECODER.decode(value)
    return "" if value == b"null" else value.decode()


def column_of(steps: Sequence[str]) -> str:
    """The name of a field's column; `steps` are the names that lead to it."""
    if len(steps) == 1 and not steps[0].startswith("/"):
        return steps[0]
    return "".join([f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps])


def steps_of(column: str) -> tuple[str, ...]:
    """The names that lead to the field of a column."""
    if not column.startswith("/"):
        return (column,)
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in column[1:].split("/"))


def columns(rows: Iterable[Cells]) -> list[str]:
    """The union of all rows' columns, in the order in which they are met."""
    return list(dict.fromkeys(column for row in rows for column in row))


HEADER_ROWS = 1_000
"""Records that are looked at for names before the first line is written."""
CELLS_AT_ONCE = 20_000
"""Cells that are written in one step: a millisecond or two."""
READ_AT_ONCE = 250
"""Rows of one step: a millisecond with some ten cells each."""
STEPS_AT_ONCE = 20_000
"""Cells that are read in one step, each as many times as its column names objects within each
other: some milliseconds. A row of a few thousand characters may have 200,000."""
BLANK_LINES_MAX = 1_000_000
"""The same as messages: each is parsed, and 64 MiB of them take most of a minute."""
LINE_STEPS = 4
"""The weight of a line beside its cells: a step reads 5,000 of them, in a millisecond or two."""
CHARS_AT_ONCE = 256 * 1024
"""Characters that are read in one step, or a row that has more."""
CSV_COLUMNS_MAX = 2_000
"""Columns of a table, as of an answer in Arrow."""
CSV_LEVELS_MAX = 100
"""Objects within each other that a column may name: no message has half as many."""
CSV_ROW_CHARS_MAX = 1024 * 1024
"""Characters of one row: csv reads it in one step, a hundred million a second."""
CSV_ROW_LINES_MAX = 50_000
"""Lines of one row, within quotes: each is handed to csv, and all of them in one step of some 7 ms.
A million of nothing but line breaks took 150."""
DOUBLE_DIGITS = 300
"""A number of fewer characters, without an exponent, is below the largest double."""
csv.field_size_limit(CSV_ROW_CHARS_MAX)


def declared_columns(declared: DeclaredFields | None) -> dict[str, ValueType]:
    """The columns that a topic declares, and their types."""
    if declared is None:
        return {}
    pairs = zip(declared.paths, declared.types, strict=True)
    return {column_of(path.steps): kind for path, kind in pairs}


def header(first: Iterable[str], chunks: Iterable[Sequence[Cells]]) -> Task[list[str]]:
    """The names of the columns, in steps: those of `first`, and those that the first rows have.
    Raises TooLarge for too many."""
    names = dict.fromkeys(first)
    count = 0
    for chunk in chunks:
        for row in chunk[: HEADER_ROWS - count]:
            names |= dict.fromkeys(row)
        count += len(chunk)
        if len(names) > CSV_COLUMNS_MAX:
            raise TooLarge(
                f"the records have {len(names)} different fields, and a table {CSV_COLUMNS_MAX} "
                "columns at most; select some, or request JSON"
            )
        if count >= HEADER_ROWS:
            break
        yield
    return list(names)


def csv_pieces(names: Sequence[str], chunks: Iterable[Sequence[Cells]]) -> Iterator[bytes]:
    """Rows as CSV after a line with the names, piece by piece; without names there is nothing."""
    if not names:
        return
    yield _written([names])
    rows_max = max(1, CELLS_AT_ONCE // len(names))
    for chunk in chunks:
        for start in range(0, len(chunk), rows_max):
            some = chunk[start : start + rows_max]
            yield _written([[row.get(name, "") for name in names] for row in some])


def fixed_pieces(
    names: Sequence[str], chunks: Iterable[Iterable[Sequence[str]]]
) -> Iterator[bytes]:
    """Rows that all have these columns, as CSV."""
    yield _written([names])
    for chunk in chunks:
        yield _written(chunk)


def _written(rows: Iterable[Sequence[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()


class CsvReader:
    """Reads the messages of a CSV body in UTF-8, for a topic with these declared fields.

    `size_max` bounds the bytes of all messages that are made of it.
    """

    def __init__(
        self, message_type: MessageType, declared: DeclaredFields | None, body: bytes, size_max: int
    ) -> None:
        self._message_type = message_type
        self._types = _texts_of(message_type) | declared_columns(declared)
        self._size_max = size_max
        self._row_chars = self._row_lines = 0
        # A mark at the beginning is what spreadsheets write, and no part of the first name.
        self._text = io.TextIOWrapper(io.BytesIO(body), "utf-8-sig", newline="")
        self._rows = csv.reader(self._counted(), strict=True)
        self._count = 0
        self._blank = 0
        self._size = 0

    def pieces(self) -> Iterator[list[bytes]]:
        """Messages, as many at a time as one step makes; raises BadMessage with the index of the
        first bad row, TooLarge and ClientError."""
        names = self._next()
        if names is None:
            return
        fields = self._fields(names)
        deepest = max((len(steps) for steps, _ in fields), default=1)
        ended = False
        while not ended:
            some: list[bytes] = []
            chars = work = 0
            while len(some) < READ_AT_ONCE and chars < CHARS_AT_ONCE and work < STEPS_AT_ONCE:
                row = self._next()
                if row is None:
                    ended = True
                    break
                chars += sum(map(len, row))
                work += LINE_STEPS * self._row_lines + min(len(row), len(fields)) * deepest
                if not row:
                    self._pass_blank()
                else:
                    some.append(self._message(fields, row))
                    self._size += len(some[-1])
                    self._count += 1
                    if self._size > self._size_max:
                        raise TooLarge(
                            f"the rows come to more than {self._size_max} bytes of messages "
                            "(Limits/FrameSize); send fewer at a time"
                        )
            yield some

    def _pass_blank(self) -> None:
        """A blank line is no message, and not to be had in any number."""
        self._blank += 1
        if self._blank > BLANK_LINES_MAX:
            raise TooLarge(f"the CSV has more than {BLANK_LINES_MAX:,} blank lines; leave them out")

    def _counted(self) -> Iterator[str]:
        """The lines, with a bound on the size of one row."""
        while line := self._text.readline(CSV_ROW_CHARS_MAX + 1):
            self._row_chars += len(line)
            self._row_lines += 1
            if self._row_lines > CSV_ROW_LINES_MAX:
                raise TooLarge(
                    f"row {self._count} of the CSV has more than {CSV_ROW_LINES_MAX} lines; is a "
                    "quote open? Send such messages as JSON"
                )
            if self._row_chars > CSV_ROW_CHARS_MAX:
                raise TooLarge(
                    f"row {self._count} of the CSV has more than {CSV_ROW_CHARS_MAX} characters; "
                    "send such messages as JSON"
                )
            yield line

    def _next(self) -> list[str] | None:
        self._row_chars = self._row_lines = 0
        try:
            return next(self._rows, None)
        except UnicodeDecodeError:
            raise BadMessage(
                f"message {self._count}: the CSV is not UTF-8 from there on; save the table as "
                "UTF-8",
                index=self._count,
            ) from None
        except csv.Error as error:
            raise BadMessage(
                f"message {self._count}: the CSV cannot be read: {clipped(str(error))}; write "
                'UTF-8 with commas, and quotes doubled within "quotes"',
                index=self._count,
            ) from None

    def _fields(self, names: Sequence[str]) -> list[tuple[tuple[str, ...], ValueType | None]]:
        if not self._message_type.structured:
            raise ClientError(
                f"messages of type {self._message_type.name} have no fields, so no CSV can hold "
                "them; send them as they are"
            )
        if len(names) > CSV_COLUMNS_MAX:
            raise TooLarge(f"the CSV has {len(names)} columns, over {CSV_COLUMNS_MAX}")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ClientError(f"the CSV has the column {shown(twice)} twice")
        # A declared field is the same under each name that leads to it: a, /a.
        fields = [steps_of(name) for name in names]
        found = [(steps, self._types.get(column_of(steps))) for steps in fields]
        if any(len(steps) > CSV_LEVELS_MAX for steps, _ in found):
            raise ClientError(f"a column is nested more than {CSV_LEVELS_MAX} levels deep")
        return found

    def _message(
        self, fields: Sequence[tuple[tuple[str, ...], ValueType | None]], row: Sequence[str]
    ) -> bytes:
        if len(row) > len(fields):
            raise self._bad(f"it has {len(row)} cells, and there are {len(fields)} columns")
        document: dict[str, Any] = {}
        for (steps, kind), cell in zip(fields, row, strict=False):
            if not cell:
                continue
            level = document
            for step in steps[:-1]:
                level = level.setdefault(step, {})
                if not isinstance(level, dict):
                    break
            if not isinstance(level, dict) or steps[-1] in level:
                raise self._bad(f"{column_of(steps)} is a value and has fields, too")
            level[steps[-1]] = msgspec.Raw(_value(cell, kind, self._message_type.has_only_texts))
        text = msgspec.json.encode(document)
        if isinstance(self._message_type, Json):
            return text
        try:
            return self._message_type.encode(read_document(text, self._message_type.has_only_texts))
        except BadMessage as error:
            raise self._bad(error.detail) from None

    def _bad(self, what: str) -> BadMessage:
        return BadMessage(f"message {self._count}: {what}", index=self._count)


def _texts_of(message_type: MessageType) -> dict[str, ValueType]:
    """The columns that a type of messages has by itself: it reads the texts of their cells."""
    names = message_type.fields if isinstance(message_type, Record) else ()
    return {column_of((name,)): VALUE_TYPES["string"] for name in names}


def _value(cell: str, kind: ValueType | None, has_only_texts: bool) -> bytes:
    """The JSON text of a cell's value, of a message type that may have only texts as scalars."""
    if kind is not None and kind.name != "json":
        # A text that is not of the type is passed on, and refused by the Schema.
        return from_text(cell, kind) or msgspec.json.encode(cell)
    text = cell.encode()
    if _is_number(text) or cell in ("true", "false"):
        return msgspec.json.encode(cell) if has_only_texts else text
    if text[:1] in (b"{", b"["):
        try:
            msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            pass
        else:
            return text.replace(b"\r", b" ").replace(b"\n", b" ")
    return msgspec.json.encode(cell)


def _is_number(text: bytes) -> bool:
    """Whether a text is a number that a message may have: a short hash such as 7e10234 is none."""
    if not NUMBER_TEXT.match(text):
        return False
    is_small = len(text) < DOUBLE_DIGITS and b"e" not in text and b"E" not in text
    return is_small or number(text.decode()) is not None
