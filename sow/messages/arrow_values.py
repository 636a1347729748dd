"""Values as Python has them as columns of Arrow, of the types that `sow.messages.arrow` says."""

import json
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from sow.messages.making import Making, made, parts

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def table_of_documents(documents: Sequence[Mapping[str, object]]) -> pa.Table:
    """Documents that were read already as columns of their fields, whatever their message type."""
    return made(making_table_of_documents(documents))


def making_table_of_documents(documents: Sequence[Mapping[str, object]]) -> Making[pa.Table]:
    """The same in steps."""
    names: dict[str, None] = {}
    for some in parts(documents):
        names |= dict.fromkeys(name for document in some for name in document)
        yield None
    columns = {}
    for name in names:
        values: list[object] = []
        for some in parts(documents):
            values += [found.get(name) for found in some]
            yield None
        columns[name] = yield from making_column_of_values(values)
    return pa.table(columns)


def column_of_values(values: Sequence[object]) -> pa.ChunkedArray:
    """The column of values as Python has them."""
    return made(making_column_of_values(values))


def making_column_of_values(values: Sequence[object]) -> Making[pa.ChunkedArray]:
    """The same in steps."""
    kinds: set[type] = set()
    fits_int = fits_double = True
    for some in parts(values):
        kinds |= {type(value) for value in some if value is not None}
        if kinds <= {int, float}:
            fits_int = fits_int and all(INT64_MIN <= n <= INT64_MAX for n in _ints(some))
            fits_double = fits_double and all(
                abs(n) < 2**1023 and float(n) == n for n in _ints(some)
            )
        yield None
    make, kind = _made_of(kinds, fits_int, fits_double)
    made_parts = []
    for some in parts(values):
        made_parts.append(pa.array(make(some), kind))
        yield None
    return pa.chunked_array(made_parts, kind)


Values = Callable[[Sequence[object]], Sequence[object]]


def _made_of(kinds: set[type], fits_int: bool, fits_double: bool) -> tuple[Values, pa.DataType]:
    """What is made of values of some kinds, and the type that holds it."""
    for kind, of_arrow in ((str, pa.string()), (bool, pa.bool_()), (bytes, pa.binary())):
        if all(issubclass(found, kind) for found in kinds):
            return list, of_arrow
    if kinds <= {int, float}:
        if kinds == {int} and fits_int:
            return list, pa.int64()
        if fits_double:
            return _floats, pa.float64()
    return _jsons, pa.string()


def _floats(values: Sequence[object]) -> list[object]:
    return [float(value) if isinstance(value, int) else value for value in values]


def _jsons(values: Sequence[object]) -> list[object]:
    return [None if value is None else _json(value) for value in values]


def _ints(values: Sequence[object]) -> list[int]:
    return [value for value in values if isinstance(value, int)]


def _json(value: object) -> str:
    """A value's JSON text; the standard library writes integers of any size."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
