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

import re
from collections.abc import Sequence
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from sow.messages.json_texts import JSON_NULL, FieldTexts, Texts, members
from sow.messages.making import PART_ROWS, Making, made, parts, pieces
from sow.messages.numbers import fits_double
from sow.untracked import untracked

BLOCK_BYTES = 16 * 1024**2
"""What pyarrow reads of JSON in one go. A field whose type changes between two blocks is an error,
so blocks are large."""
LONG_NUMBER = r"[0-9][0-9.]{15,}|[0-9.]*[0-9][eE][+-]?[0-9]{3,}"
"""What a number that may not fit begins with: many digits, or few and a great exponent."""
PLAIN = re.compile(r"\w[\w ]*", re.ASCII)
EXACT = (pa.int64(), pa.string(), pa.bool_())


def table_of_json(bodies: Sequence[bytes]) -> pa.Table:
    """JSON documents as columns of their fields, in order of first appearance."""
    return made(making_table_of_json(bodies))


def making_table_of_json(bodies: Sequence[bytes]) -> Making[pa.Table]:
    """The same in steps."""
    if not bodies:
        return pa.table({})
    lines, longest = yield from _lines(bodies)
    reading = pyarrow.json.ReadOptions(block_size=max(BLOCK_BYTES, longest + len(b"\r\n")))
    found = yield partial(_read, lines, reading)
    if found is None:
        return (yield from _table_of_texts(bodies))
    columns: dict[str, pa.Array | pa.ChunkedArray] = dict(
        zip(found.column_names, found.columns, strict=True)
    )
    kinds = {field.name: field.type for field in found.schema if field.type not in EXACT}
    if guessed := [name for name, kind in kinds.items() if pa.types.is_temporal(kind)]:
        wanted = pa.schema([(name, pa.string()) for name in guessed])
        parsing = pyarrow.json.ParseOptions(wanted, unexpected_field_behavior="ignore")
        again = yield partial(pyarrow.json.read_json, lines, reading, parsing)
        columns |= {name: again.column(name) for name in guessed}
    doubles = [name for name, kind in kinds.items() if kind == pa.float64()]
    exact = {*guessed, *(yield from _exact(doubles, bodies))}
    doubtful = [name for name in kinds if name not in exact]
    if doubtful:
        texts = yield from _texts_of(bodies, doubtful)
        for name in doubtful:
            columns[name] = yield from _column_of_texts(texts[name])
    return pa.table(columns)


def _lines(bodies: Sequence[bytes]) -> Making[tuple[pa.Buffer, int]]:
    """The bodies as lines, and how long the longest is."""
    size = longest = 0
    for some in parts(bodies):
        sizes = list(map(len, some))
        size, longest = size + sum(sizes) + len(sizes), max(longest, *sizes)
        yield None
    # At once in its full size: what grows is copied, a gigabyte in one step.
    lines = pa.allocate_buffer(size)
    sink = pa.FixedSizeBufferWriter(lines)
    for some in pieces(bodies):
        sink.write(b"\n".join([*some, b""]))
        yield None
    return lines, longest


def _read(lines: pa.Buffer, reading: pyarrow.json.ReadOptions) -> pa.Table | None:
    """What Arrow's parser makes of JSON lines; None for values of several kinds in a field, or
    names that come twice."""
    try:
        return pyarrow.json.read_json(lines, reading)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _exact(doubles: Sequence[str], bodies: Sequence[bytes]) -> Making[set[str]]:
    """Those of some fields all of whose numbers doubles are."""
    if not doubles:
        return set()
    made_parts = []
    for some in pieces(bodies):
        made_parts.append(pa.array(some, pa.binary()))
        yield None
    documents = pa.chunked_array(made_parts)
    long = LONG_NUMBER
    if all(PLAIN.fullmatch(name) for name in doubles) and not (yield partial(_escapes, documents)):
        # Only where it is the number of one of these fields: others are times, often.
        long = rf'"(?:{"|".join(doubles)})"\s*:\s*-?(?:{LONG_NUMBER})'
    places = yield partial(_matching, documents, long)
    matching: list[bytes] = untracked([])
    for start in range(0, len(places), PART_ROWS):
        matching += [bodies[at] for at in places[start : start + PART_ROWS].to_pylist()]
        yield None
    texts = yield from _texts_of(matching, doubles)
    exact = set()
    for name in doubles:
        if (yield from _all_fit(texts[name])):
            exact.add(name)
    return exact


def _escapes(documents: pa.ChunkedArray) -> bool:
    """Whether a name may be spelled in some other way."""
    return bool(pc.any(pc.match_substring(documents, "\\u")).as_py())


def _matching(documents: pa.ChunkedArray, pattern: str) -> pa.Array:
    """The places of the documents that a pattern matches."""
    return pc.indices_nonzero(pc.match_substring_regex(documents, pattern))


def _all_fit(texts: Texts) -> Making[bool]:
    for some in parts(texts):
        if not all(map(_fits, some)):
            return False
        yield None
    return True


def _table_of_texts(bodies: Sequence[bytes]) -> Making[pa.Table]:
    names: dict[str, None] = {}
    for some in pieces(bodies):
        names |= dict.fromkeys(name for document in map(members, some) for name in document)
        yield None
    texts = yield from _texts_of(bodies, list(names))
    columns = {}
    for name in names:
        columns[name] = yield from _column_of_texts(texts.pop(name))
    return pa.table(columns)


def _texts_of(bodies: Sequence[bytes], names: Sequence[str]) -> Making[dict[str, Texts]]:
    """The texts of some fields."""
    read = FieldTexts(names)
    texts: dict[str, Texts] = {name: untracked([]) for name in names}
    for some in pieces(bodies):
        for name, found in zip(names, read(some), strict=True):
            texts[name] += found
        yield None
    return texts


def _column_of_texts(texts: Texts) -> Making[pa.ChunkedArray]:
    """The column of values whose JSON texts these are."""
    starts: set[bytes] = set()
    for some in parts(texts):
        starts |= {text[:1] for text in some if text is not None and text != JSON_NULL}
        yield None
    make, kind = _texts_as_they_are, pa.string()
    if starts <= {b'"'}:
        make = _strings
    elif starts <= {b"t", b"f"}:
        make, kind = _truths, pa.bool_()
    made_parts = []
    for some in parts(texts):
        made_parts.append(make([None if text == JSON_NULL else text for text in some]))
        yield None
    column = pa.chunked_array(made_parts, kind)
    if make is _texts_as_they_are and not starts & {b'"', b"t", b"f", b"{", b"["}:
        return (yield from _numbers(column, texts))
    return column


def _texts_as_they_are(texts: Sequence[bytes | None]) -> pa.Array:
    return pa.array(texts, pa.string())


def _strings(texts: Sequence[bytes | None]) -> pa.Array:
    there = b",".join([text for text in texts if text is not None])
    values = iter(msgspec.json.decode(b"[%b]" % there, type=list[str]))
    return pa.array([None if text is None else next(values) for text in texts], pa.string())


def _truths(texts: Sequence[bytes | None]) -> pa.Array:
    return pa.array([None if text is None else text == b"true" for text in texts], pa.bool_())


def _numbers(column: pa.ChunkedArray, texts: Texts) -> Making[pa.ChunkedArray]:
    """Texts of numbers as numbers, if a type holds all of them."""
    integers = yield partial(_integers, column)
    if integers is not None:
        return integers
    if (yield from _all_fit(texts)):
        return (yield partial(column.cast, pa.float64()))
    return column


def _integers(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def _fits(text: bytes | None) -> bool:
    """Whether a double is the number of a text."""
    return text is None or text == JSON_NULL or fits_double(text)
