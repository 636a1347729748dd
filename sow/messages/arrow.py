"""Messages as columns of Arrow, for servers and clients alike.

The type of each column is settled before the first row is looked at: by what the topic's Schema
declares, and for other fields by what the topic has held (`sow.messages.column_types`). So it never
depends on the rows of a query. A field that is null or absent is null. A declared field within
another one has a column of its own, named by its path, beside the column of the whole outer field.

JSON is read by Arrow's own parser if the types leave nothing to infer, otherwise value by value
from the texts in the message. Columns are built in short steps, as those of `sow.core.cooperative`.
Work that takes Arrow long and releases Python's lock is yielded to the caller, which runs it in a
thread or inline.

With a JSON response the server sends one line with the columns of the topic's records
(`SentColumns`), the same as those of a response in Arrow. The client builds them from the JSON
texts that it received (`table_of_rows`): no number is rounded, no second request is needed.
"""

import base64
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.json

from sow.core.cooperative import untracked
from sow.core.definitions import MessageTypeOptions
from sow.core.paths import parse_path
from sow.errors import clipped
from sow.messages.base import MessageType
from sow.messages.column_types import ColumnType, ColumnTypes, documents_of, parts, pieces, type_of
from sow.messages.declared import (
    DeclaredFields,
    ValueType,
    day_of,
    from_text,
    moment_us,
    text_of,
    value_type,
)
from sow.messages.documents import ONLY_FIELD
from sow.messages.json import Json
from sow.messages.json_texts import (
    JSON_NULL,
    FieldTexts,
    Texts,
    json_text,
    text_within,
    value_within,
)

Result = TypeVar("Result")

Apart = Callable[[], object]
Making = Generator[Apart | None, Any, Result]
"""Some steps yield a function and are sent its result: what a thread may do."""


def made(making: Making[Result]) -> Result:
    """All steps, one after the other, and what is to be done apart in its place."""
    sent: object = None
    while True:
        try:
            apart = making.send(sent)
        except StopIteration as over:
            result: Result = over.value
            return result
        sent = None if apart is None else apart()


UTC_US = pa.timestamp("us", tz="UTC")
ARROW_TYPES: Mapping[str, pa.DataType] = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp": UTC_US,
    "date": pa.date32(),
    "binary": pa.binary(),
    "json": pa.string(),
}
"""Of what a topic has held and of what a Schema declares, but for decimals, which have a type for
each precision and scale."""
PATH_OF_COLUMN = "path"
"""Metadata of a column: the path of a field within another one, which has a column, too."""
KIND_OF_COLUMN = "kind"
"""Metadata of a column of strings that are JSON texts: to Arrow both are one type."""
JSON_KIND: ColumnType = "json"
NO_COLUMNS = pa.schema([])
QUICK = ("string", "int64", "float64")
"""Types that Arrow's parser reads as this module does, if it is given the type."""

Maker = Callable[[Sequence[bytes | None], pa.DataType], pa.Array]
"""Makes a column of a type of the JSON texts of values; None is null."""


class UnfitError(Exception):
    """The value of row number `row` is not of the type that its field was declared to have."""

    def __init__(self, row: int, column: "ArrowColumn", text: bytes) -> None:
        value = clipped(text[:400].decode("utf-8", "replace"))
        super().__init__(f"{column.name} is {value}, and its type in the Schema is {column.kind}")
        self.row = row


@dataclass(frozen=True, slots=True)
class ArrowColumn:
    """One column: its name, its type by name, and whether it was declared."""

    name: str
    kind: str
    declared: ValueType | None = None
    path: str = ""
    """Which field within another one it is, if it is one."""

    @property
    def type(self) -> pa.DataType:
        """The type of Arrow; raises ClientError if there is no type of this name."""
        if self.kind in ARROW_TYPES:
            return ARROW_TYPES[self.kind]
        declared = value_type(self.kind)
        return pa.decimal128(declared.precision, declared.scale)

    @property
    def field(self) -> pa.Field:
        """The field of Arrow's schema; metadata have the path of one within another field."""
        metadata = {PATH_OF_COLUMN: self.path} if self.path else {}
        if self.kind == JSON_KIND:
            metadata[KIND_OF_COLUMN] = JSON_KIND
        return pa.field(self.name, self.type, metadata=metadata or None)


class ArrowColumns:
    """The columns of messages of one type, from what is declared and what is known of the rest.

    `wanted` filters the undeclared fields, and the declared paths by their first name; None: all of
    them.
    """

    def __init__(
        self,
        message_type: MessageType,
        types: ColumnTypes,
        declared: DeclaredFields | None = None,
        wanted: Callable[[str], bool] | None = None,
    ) -> None:
        self._message_type = message_type
        self._declared = declared
        self._places: list[int] = []
        """Which of the declared fields are columns."""
        self.columns: list[ArrowColumn] = []
        paths = declared.paths if declared else ()
        outer = {path.steps[0] for path in paths if len(path.steps) == 1}
        for at, path in enumerate(paths):
            if wanted is None or wanted(path.steps[0]):
                assert declared is not None
                name = path.steps[0] if len(path.steps) == 1 else str(path)
                while len(path.steps) > 1 and (name in types.kinds or name in outer):
                    name = f"/{name}"  # a field is called like the path of another one
                kind = declared.types[at]
                self._places.append(at)
                within = str(path) if len(path.steps) > 1 else ""
                self.columns.append(ArrowColumn(name, kind.name, kind, within))
        self._known: dict[str, ColumnType] = {
            name: type_of(kinds)
            for name, kinds in types.kinds.items()
            if name not in outer and (wanted is None or wanted(name))
        }
        self.columns += [ArrowColumn(name, kind) for name, kind in self._known.items()]
        self.schema = pa.schema([column.field for column in self.columns])

    def batch(self, bodies: Sequence[bytes]) -> pa.RecordBatch:
        """Messages as rows."""
        return made(self.making(bodies))

    def making(self, bodies: Sequence[bytes]) -> Making[pa.RecordBatch]:
        """The same in steps; raises UnfitError where a value is not of its column's type."""
        found: dict[str, pa.Array] = {}
        if self._declared is not None and self._places:
            yield from self._making_declared(bodies, found)
        if isinstance(self._message_type, Json):
            yield from self._making_json(bodies, found)
        else:
            yield from self._making_documents(bodies, found)
        arrays = [found[column.name] for column in self.columns]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(bodies), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    # Declared fields.

    def _making_declared(self, bodies: Sequence[bytes], found: dict[str, pa.Array]) -> Making[None]:
        assert self._declared is not None
        texts: list[Texts] = [untracked([]) for _ in self._places]
        for some in pieces(bodies):
            read = self._declared.texts(some)
            for values, at in zip(texts, self._places, strict=True):
                values += read[at]
            yield None
        for column, values in zip(self.columns, texts, strict=False):
            assert column.declared is not None
            yield from self._making_column(column, values, found)

    def _making_column(
        self, column: ArrowColumn, texts: Texts, found: dict[str, pa.Array]
    ) -> Making[None]:
        arrays, start, kind = [], 0, column.type
        for some in parts(texts):
            values = [None if text == JSON_NULL else text for text in some]
            if column.declared is not None:
                _check(column, values, start)
            arrays.append(array_of(column.kind, values, kind))
            start += len(some)
            yield None
        found[column.name] = pa.concat_arrays(arrays) if arrays else pa.array([], kind)

    # JSON.

    def _making_json(self, bodies: Sequence[bytes], found: dict[str, pa.Array]) -> Making[None]:
        quick = {name: kind for name, kind in self._known.items() if kind in QUICK}
        if quick and bodies:
            wanted = pa.schema([(name, ARROW_TYPES[kind]) for name, kind in quick.items()])
            lines = b"\n".join([*bodies, b""])
            table = yield partial(_read, lines, wanted)
            if table is not None and len(table) == len(bodies):
                for name in quick:
                    found[name] = table.column(name).combine_chunks()
        left = [name for name in self._known if name not in found]
        if not left:
            return
        read = FieldTexts(left)
        texts: list[Texts] = [untracked([]) for _ in left]
        for some in pieces(bodies):
            for gathered, values in zip(texts, read(some), strict=True):
                gathered += values
            yield None
        for name, values in zip(left, texts, strict=True):
            yield from self._making_column(ArrowColumn(name, self._known[name]), values, found)

    # Other types.

    def _making_documents(
        self, bodies: Sequence[bytes], found: dict[str, pa.Array]
    ) -> Making[None]:
        documents: list[Mapping[str, object]] = untracked([])
        for some in pieces(bodies):
            documents += documents_of(self._message_type, some)
            yield None
        yield from making_columns_of_documents(documents, self._known, found)


def making_columns_of_documents(
    documents: Sequence[Mapping[str, object]],
    known: Mapping[str, ColumnType],
    found: dict[str, pa.Array],
) -> Making[None]:
    """Fields of documents that were read already, as columns of these types."""
    for name, kind in known.items():
        arrays = []
        for some in parts(documents):
            values: list[object] = [document.get(name) for document in some]
            if kind == "json":
                values = [None if value is None else json_text(value) for value in values]
            elif kind == "float64":
                values = [None if value is None else float(value) for value in values]  # type: ignore[arg-type]
            arrays.append(pa.array(values, ARROW_TYPES[kind]))
            yield None
        found[name] = pa.concat_arrays(arrays) if arrays else pa.array([], ARROW_TYPES[kind])


def table_of_documents(
    documents: Sequence[Mapping[str, object]], schema: pa.Schema = NO_COLUMNS
) -> pa.Table:
    """Python documents as the columns of a schema such as `ArrowColumns` makes.

    Fields that the schema does not have get columns behind those, of types that hold all of their
    values. A column with a value of another type is widened in the same way, as the server would.
    """
    fields, arrays = list(schema), [_column_of(field, documents) for field in schema]
    unfit = {field.name for field, array in zip(fields, arrays, strict=True) if array is None}
    types = ColumnTypes(None)
    types.observe_documents(documents)
    known: dict[str, ColumnType] = dict.fromkeys(unfit, JSON_KIND)
    for name, kinds in types.kinds.items():
        if name not in schema.names:
            known[name] = type_of(kinds)
    found: dict[str, pa.Array] = {}
    made(making_columns_of_documents(documents, known, found))
    columns = {name: ArrowColumn(name, kind).field for name, kind in known.items()}
    fields = [columns.get(field.name, field) for field in fields]
    arrays = [
        found[field.name] if array is None else array
        for field, array in zip(fields, arrays, strict=True)
    ]
    more = [name for name in known if name not in schema.names]
    return pa.Table.from_arrays(
        [*arrays, *[found[name] for name in more]],
        schema=pa.schema([*fields, *[columns[name] for name in more]]),
    )


def _column_of(field: pa.Field, documents: Sequence[Mapping[str, object]]) -> pa.Array | None:
    """The values of one column of a schema; None if they are not all of its type."""
    path = path_of(field)
    steps = parse_path(path).steps if path else (field.name,)
    values = [value_within(document, steps) for document in documents]
    if pa.types.is_binary(field.type):
        return pa.array(values, field.type)
    texts = [None if value is None else json_text(value) for value in values]
    kind = kind_of_column(field)
    if not all(text is None or value_type(kind).fits(text) for text in texts):
        return None
    return array_of(kind, texts, field.type)


def joined_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of several topics: one that is of different types holds JSON texts."""
    found: dict[str, pa.Field] = {}
    for field in (field for schema in schemas for field in schema):
        known = found.setdefault(field.name, field)
        if not known.equals(field, check_metadata=True):
            found[field.name] = ArrowColumn(field.name, JSON_KIND).field
    return pa.schema(list(found.values()))


def is_json_text(field: pa.Field) -> bool:
    """Whether a column of a server's holds JSON texts."""
    return (field.metadata or {}).get(KIND_OF_COLUMN.encode()) == JSON_KIND.encode()


def kind_of_column(field: pa.Field) -> str:
    """The type that a Schema would declare for a column of a server, other than one of bytes."""
    if is_json_text(field):
        return JSON_KIND
    if pa.types.is_decimal(field.type):
        return f"decimal({field.type.precision},{field.type.scale})"
    return next(
        name for name, kind in ARROW_TYPES.items() if kind.equals(field.type) and name != JSON_KIND
    )


def path_of(field: pa.Field) -> str:
    """The path of a column that is a field within another one; empty for others."""
    return str((field.metadata or {}).get(PATH_OF_COLUMN.encode(), b"").decode())


def array_of(kind: str, texts: Sequence[bytes | None], arrow_type: pa.DataType) -> pa.Array:
    """JSON texts that are values of a type, as a column of it."""
    return MAKERS[kind.partition("(")[0]](texts, arrow_type)


def _check(column: ArrowColumn, values: Sequence[bytes | None], start: int) -> None:
    """Raise UnfitError for a value from before the field was declared."""
    assert column.declared is not None
    fits = column.declared.fits
    for at, text in enumerate(values):
        if text is not None and not fits(text):
            raise UnfitError(start + at, column, text)


def _read(lines: bytes, wanted: pa.Schema) -> pa.Table | None:
    """Some fields of JSON lines as Arrow's parser reads them; None where it cannot, as it is for
    names that come twice."""
    try:
        return pyarrow.json.read_json(
            pa.BufferReader(lines),
            pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            pyarrow.json.ParseOptions(wanted, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _as_texts(texts: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    return pa.array(texts, kind)


def _strings(texts: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    there = b",".join([text for text in texts if text is not None])
    values = iter(msgspec.json.decode(b"[%b]" % there, type=list[str]))
    return pa.array([None if text is None else next(values) for text in texts], kind)


def _each(read: Callable[[bytes], object]) -> Maker:
    def maker(texts: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
        return pa.array([None if text is None else read(text) for text in texts], kind)

    return maker


MAKERS: Mapping[str, Maker] = {
    "string": _strings,
    "int64": _each(int),
    "float64": _each(float),
    "bool": _each(lambda text: text == b"true"),
    "decimal": _each(lambda text: Decimal(text.decode())),
    "timestamp": _each(moment_us),
    "date": _each(day_of),
    "json": _as_texts,
}


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
