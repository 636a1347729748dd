"""Documents as columns of Arrow, for servers and clients alike.

A column is `string` where all values are texts, `int64` or `float64` where all are numbers and
every one of them fits exactly, `bool` where all are true or false, `binary` where all are bytes.
Where they are of several kinds, nested, or do not fit, it is `string` with the JSON text of each
value, texts in quotes. So no value is changed by what other rows hold, and none is guessed to be
something else. A field that is null or absent is null.

JSON texts are read by Arrow's own parser, which is quick and guesses: it takes texts for times and
rounds integers beside fractions. What it found is therefore kept only where it cannot have erred;
the other columns are made from the texts of their values.
"""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
BLOCK_BYTES = 16 * 1024**2
"""What pyarrow reads of JSON in one go. A field whose type changes between two blocks is an error,
so blocks are large."""
SHORT_NUMBER = 16
"""A number of fewer characters has at most 15 digits, which every double holds."""
LONG_NUMBER = r"[0-9][0-9.]{15,}|[0-9.]*[0-9][eE][+-]?[0-9]{3,}"
"""What a number that may not fit begins with: many digits, or few and a great exponent."""
PLAIN = re.compile(r"\w[\w ]*", re.ASCII)
EXACT = (pa.int64(), pa.string(), pa.bool_())
JSON_NULL = b"null"

Texts = list[bytes | None]
"""The JSON texts of a field's values; None where it is absent."""


def table_of_json(bodies: Sequence[bytes]) -> pa.Table:
    """JSON documents as columns of their fields, in order of first appearance."""
    if not bodies:
        return pa.table({})
    lines = pa.py_buffer(b"\n".join(bodies))
    reading = pyarrow.json.ReadOptions(
        block_size=max(BLOCK_BYTES, max(map(len, bodies)) + len(b"\r\n"))
    )
    try:
        found = pyarrow.json.read_json(lines, reading)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Values of several kinds, or names that come twice.
        return _table_of_texts(bodies)
    columns: dict[str, pa.Array | pa.ChunkedArray] = dict(
        zip(found.column_names, found.columns, strict=True)
    )
    kinds = {field.name: field.type for field in found.schema if field.type not in EXACT}
    if guessed := [name for name, kind in kinds.items() if pa.types.is_temporal(kind)]:
        wanted = pa.schema([(name, pa.string()) for name in guessed])
        parsing = pyarrow.json.ParseOptions(wanted, unexpected_field_behavior="ignore")
        again = pyarrow.json.read_json(lines, reading, parsing)
        columns |= {name: again.column(name) for name in guessed}
    doubles = [name for name, kind in kinds.items() if kind == pa.float64()]
    exact = {*guessed, *_exact(doubles, bodies)}
    doubtful = [name for name in kinds if name not in exact]
    if doubtful:
        texts = _texts_of(bodies, doubtful)
        columns |= {name: column_of_texts(texts[name]) for name in doubtful}
    return pa.table(columns)


def _exact(doubles: Sequence[str], bodies: Sequence[bytes]) -> set[str]:
    """Those of some fields all of whose numbers doubles are."""
    if not doubles:
        return set()
    documents = pa.array(bodies, pa.binary())
    long = LONG_NUMBER
    if all(PLAIN.fullmatch(name) for name in doubles) and not _escapes(documents):
        # Only where it is the number of one of these fields: others are times, often.
        long = rf'"(?:{"|".join(doubles)})"\s*:\s*-?(?:{LONG_NUMBER})'
    places = pc.indices_nonzero(pc.match_substring_regex(documents, long))
    texts = _texts_of([bodies[at] for at in places.to_pylist()], doubles)
    return {name for name in doubles if all(map(_fits, texts[name]))}


def _escapes(documents: pa.Array) -> bool:
    """Whether a name may be spelled in some other way."""
    return bool(pc.any(pc.match_substring(documents, "\\u")).as_py())


def _table_of_texts(bodies: Sequence[bytes]) -> pa.Table:
    decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    documents = [decode(body) for body in bodies]
    names = dict.fromkeys(name for document in documents for name in document)
    return pa.table(
        {
            name: column_of_texts(
                [bytes(document[name]) if name in document else None for document in documents]
            )
            for name in names
        }
    )


def _texts_of(bodies: Sequence[bytes], names: Sequence[str]) -> dict[str, Texts]:
    """The texts of some fields."""
    plain = all(name.isprintable() and not set(name) & set('"\\') for name in names)
    if not plain:
        decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        documents = [decode(body) for body in bodies]
        return {
            name: [bytes(found[name]) if name in found else None for found in documents]
            for name in names
        }
    fields = [(f"f{at}", msgspec.Raw, msgspec.Raw(JSON_NULL)) for at in range(len(names))]
    rename = {f"f{at}": name for at, name in enumerate(names)}
    row = msgspec.defstruct("Row", fields, rename=rename, gc=False)
    rows = list(map(msgspec.json.Decoder(row).decode, bodies))
    return {name: [bytes(getattr(row, at)) for row in rows] for at, name in rename.items()}


def column_of_texts(texts: Texts) -> pa.Array:
    """The column of values whose JSON texts these are."""
    texts = [None if text == JSON_NULL else text for text in texts]
    there = [text for text in texts if text is not None]
    starts = {text[:1] for text in there}
    if starts <= {b'"'}:
        values = iter(msgspec.json.decode(b"[%b]" % b",".join(there), type=list[str]))
        return pa.array([None if text is None else next(values) for text in texts], pa.string())
    if starts <= {b"t", b"f"}:
        return pa.array([None if text is None else text == b"true" for text in texts], pa.bool_())
    column = pa.array(texts, pa.string())
    if not starts & {b'"', b"t", b"f", b"{", b"["}:
        return _numbers(column, there)
    return column


def _numbers(column: pa.Array, there: list[bytes]) -> pa.Array:
    """Texts of numbers as numbers, if a type holds all of them."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column.cast(pa.float64()) if all(map(_fits, there)) else column


def _fits(text: bytes | None) -> bool:
    """Whether a double is the number of a text, and not only near it."""
    if text is None or text == JSON_NULL:
        return True
    short = len(text) < SHORT_NUMBER and b"e" not in text and b"E" not in text
    return short or _is_double(text.decode())


def _is_double(text: str) -> bool:
    """Whether a number is a double, or the shortest text of one."""
    try:
        double = float(text)
        if repr(double) == text:
            return True
        number = Decimal(text)
        return number in (Decimal(double), Decimal(repr(double)))
    except (InvalidOperation, OverflowError, ValueError):
        return False


def table_of_documents(documents: Sequence[Mapping[str, object]]) -> pa.Table:
    """The same of documents that were read already, whatever their message type."""
    names = dict.fromkeys(name for document in documents for name in document)
    return pa.table(
        {name: column_of_values([found.get(name) for found in documents]) for name in names}
    )


def column_of_values(values: Sequence[object]) -> pa.Array:
    """The column of values as Python has them."""
    kinds = {type(value) for value in values if value is not None}
    for kind, of_arrow in ((str, pa.string()), (bool, pa.bool_()), (bytes, pa.binary())):
        if all(issubclass(found, kind) for found in kinds):
            return pa.array(values, of_arrow)
    if kinds <= {int, float}:
        if kinds == {int} and all(INT64_MIN <= value <= INT64_MAX for value in _ints(values)):
            return pa.array(values, pa.int64())
        if all(abs(value) < 2**1023 and float(value) == value for value in _ints(values)):
            floats = [float(value) if isinstance(value, int) else value for value in values]
            return pa.array(floats, pa.float64())
    return pa.array([None if value is None else _json(value) for value in values], pa.string())


def _ints(values: Sequence[object]) -> list[int]:
    return [value for value in values if isinstance(value, int)]


def _json(value: object) -> str:
    """A value's JSON text; the standard library writes integers of any size."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
