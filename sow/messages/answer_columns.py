"""The columns of a JSON response: their types are sent beside the rows, and the client builds them.

The server sends one line with the columns of the topic's records, the same as those of a response
in Arrow (`sow.messages.arrow`). The client builds these columns from the JSON texts that it
received, so that no number is rounded and no second request is needed.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from sow.core.definitions import MessageTypeOptions
from sow.core.paths import parse_path
from sow.messages.arrow import JSON_KIND, ArrowColumn, array_of, kind_of_column, path_of
from sow.messages.column_types import ColumnTypes, type_of
from sow.messages.declared import from_text, text_of, value_type
from sow.messages.json import Json
from sow.messages.json_texts import JSON_NULL, FieldTexts, Texts, text_within
from sow.messages.scalars import ONLY_FIELD

BUILT_IN = MessageTypeOptions("json", "json")
INT64 = range(-(2**63), 2**63)
SENT_CHARS_MAX = 4_000
"""Size of a header: proxies accept 8 KiB of all of them together, or 4 of one."""


class SentColumns(msgspec.Struct):
    """Columns as they are sent: names and kinds, and the path of a field within another one. `all`:
    they are those of the topic and not only the declared ones."""

    all: bool
    columns: list[list[str]]

    def schema(self) -> pa.Schema:
        """The same as Arrow's schema; raises ClientError for a kind that is not known here."""
        return pa.schema([_field(*column) for column in self.columns])


def _field(name: str, kind: str, path: str = "") -> pa.Field:
    return ArrowColumn(name, kind, path=path).field


def sent_columns(columns: Sequence[ArrowColumn], are_all: bool) -> str:
    """Columns as a text in ASCII; empty if it would be too long for a header."""
    rows = [[one.name, one.kind, *([one.path] if one.path else [])] for one in columns]
    text = msgspec.json.encode(SentColumns(are_all, rows)).decode()
    escaped = "".join(char if char.isascii() else _escaped(char) for char in text)
    return escaped if len(escaped) <= SENT_CHARS_MAX else ""


def _escaped(char: str) -> str:
    pairs = char.encode("utf-16-be").hex()
    return "".join(f"\\u{pairs[at : at + 4]}" for at in range(0, len(pairs), 4))


read_sent = msgspec.json.Decoder(SentColumns).decode
"""Decodes such a text; raises msgspec.MsgspecError."""


def table_of_rows(
    rows: Sequence[bytes], records: Sequence[Any], schema: pa.Schema | None = None
) -> pa.Table:
    """JSON texts, and the same `records` decoded, as the columns of a topic's schema.

    A field that the schema does not have is a column behind those, of a type that holds all of its
    values; a column with a value of another type holds JSON texts. Texts that are no objects
    are in the column ``value``. Raises TooLarge for more fields than there may be columns.
    """
    fields = list(schema or ())
    if records and not isinstance(records[0], dict):
        rows = [b'{"%b":%b}' % (ONLY_FIELD.encode(), row) for row in rows]
        records = [{ONLY_FIELD: record} for record in records]
    known = {field.name for field in fields if not path_of(field)}
    if not set().union(*records) <= known:
        types = ColumnTypes(Json(BUILT_IN))
        types.observe(rows)
        types.check("this answer")
        more = [(name, type_of(held)) for name, held in types.kinds.items() if name not in known]
        fields += [ArrowColumn(name, kind).field for name, kind in more]
    columns = _AnswerColumns(rows, records)
    made = [columns.made(field) for field in fields]
    if not made:
        return pa.Table.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    return pa.Table.from_arrays(
        [array for _, array in made], schema=pa.schema([field for field, _ in made])
    )


class _AnswerColumns:
    """Makes columns of rows, of their texts where the type of the column has to be judged by
    them."""

    def __init__(self, rows: Sequence[bytes], records: Sequence[Mapping[str, object]]) -> None:
        self._rows = rows
        self._records = records

    def made(self, field: pa.Field) -> tuple[pa.Field, pa.Array]:
        """The field and its values: of the type that was sent, or JSON texts."""
        array = self._of_values(field)
        if array is not None:
            return field, array
        path = path_of(field)
        steps = parse_path(path).steps if path else (field.name,)
        (texts,) = FieldTexts([steps[0]])(self._rows)
        texts = [text_within(text, steps[1:]) for text in texts]
        texts = [None if text == JSON_NULL else text for text in texts]
        if pa.types.is_binary(field.type):
            bodies = [None if text is None else text_of(text) for text in texts]
            values = [None if body is None else base64.b64decode(body) for body in bodies]
            return field, pa.array(values, field.type)
        kind = kind_of_column(field)
        fitting = _fitting(texts, kind)
        if fitting is not None:
            return field, array_of(kind, fitting, field.type)
        widened = ArrowColumn(field.name, JSON_KIND, path=path).field
        return widened, array_of(JSON_KIND, texts, widened.type)

    def _of_values(self, field: pa.Field) -> pa.Array | None:
        """The column of the decoded values if they are all texts or integers of 64 bits, which
        decoding does not change."""
        is_text = field.type == pa.string() and not field.metadata
        if path_of(field) or not (is_text or field.type == pa.int64()):
            return None
        values = [record.get(field.name) for record in self._records]
        kinds = {type(value) for value in values} - {type(None)}
        if is_text and kinds <= {str}:
            return pa.array(values, field.type)
        if not is_text and kinds <= {int} and all(_is_int64(value) for value in values):
            return pa.array(values, field.type)
        return None


def _is_int64(value: object) -> bool:
    return value is None or value in INT64


def _fitting(texts: Texts, name: str) -> Texts | None:
    """The texts as values of a type; bare texts are allowed for types without a JSON form. None if
    one of them is not of the type."""
    kind = value_type(name)
    found: Texts = []
    for text in texts:
        if text is None or kind.fits(text):
            found.append(text)
            continue
        bare = text_of(text)
        read = None if bare is None else from_text(bare, kind)
        if read is None:
            return None
        found.append(read)
    return found
