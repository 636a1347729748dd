"""The fold of a recorded log: roles of columns, interval and policy, and each column's operation.

A window's records become one row. Most operations choose: the row of the group whose value stands
for all (the last, the first, the last that is not null, the least). A choice is an array of row
numbers, so it takes a value of any type as it is. `sum` adds from left to right, and a partial sum
continues as if it were a first record: a window that is folded in two parts has the same result to
the last bit. `count` is a sum of ones. Documents and callables are folded value by value, in
Python.

Folding has no notion of keys, times or windows. Null means no value, except to `latest`. Floats
have Spark's order: NaN is a value like any, and greater than all others.

A `Spec` is checked by itself when it is created, and against columns when it first meets a table.
Every error is a sentence with a way out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from conflated_topics.documents import merged
from conflated_topics.user_texts import in_bounds, nearest

Fold = Callable[[Any, Any], Any]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# The operation `merge` on a column of documents; a spec chooses it, users do not write it.
DOCUMENTS = "documents"
EXACT_MAX = 2**62
"""How far a sum of integers may be from the same sum in doubles: far more than the rounding of 64
bits, far less than the 2^64 of an overflow."""


@dataclass(frozen=True)
class Groups:
    """Groups of rows to fold, and the order of the wanted results.

    `rows` are row numbers, group after group, none empty, each in the order of folding; `starts` is
    the place in `rows` at which each group begins.
    """

    rows: Ints
    starts: Ints
    wanted: Ints

    @cached_property
    def lasts(self) -> Ints:
        """The place in `rows` of each group's last row."""
        return np.append(self.starts[1:], len(self.rows))[: len(self.starts)] - 1

    @cached_property
    def sizes(self) -> Ints:
        """Rows in each group."""
        return self.lasts - self.starts + 1


def fold(column: Any, operation: str | Fold, groups: Groups) -> Any:
    """One value for each wanted group of an Arrow column."""
    if not len(groups.wanted):
        return column.slice(0, 0)
    if operation in ("sum", "count"):
        return _total(column, groups)
    if operation == DOCUMENTS:
        return _one_by_one(column, _merge_documents, groups)
    if callable(operation):
        return _one_by_one(column, partial(reduce, operation), groups)
    return column.take(pa.array(CHOICES[operation](column, groups)[groups.wanted]))


def accumulator(kind: Any, operation: str | Fold) -> Any:
    """The type in which an operation on a column of type `kind` adds, and its result's."""
    if operation == "count":
        return pa.int64()
    if operation == "sum":
        if pa.types.is_floating(kind):
            return pa.float64()
        return kind if pa.types.is_uint64(kind) else pa.int64()
    return kind


def objection(kind: Any, operation: str | Fold) -> str | None:
    """Why an operation cannot work on a column of type `kind`, and what to do; None: it can."""
    if operation == "sum" and not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return "sum adds integers and floats; cast it to one of them or choose another operation"
    if operation in ("min", "max") and not _is_orderable(kind):
        return f"{operation} compares numbers, times and text; choose latest, first or merge"
    return None


def sortable(column: Any) -> NDArray[Any]:
    """Numbers that sort as the values of a column do, nulls first."""
    if not column.null_count:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        if _is_number(column.type):
            return np.asarray(column)
    ranks = pc.rank(column, "ascending", tiebreaker="dense")
    return np.where(column.is_valid(), ranks, 0)


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_orderable(kind: Any) -> bool:
    types = pa.types
    tests = (
        types.is_boolean, types.is_date, types.is_decimal, types.is_duration, types.is_time,
        types.is_timestamp, types.is_string, types.is_large_string, types.is_binary,
        types.is_large_binary,
    )  # fmt: skip
    return _is_number(kind) or any(test(kind) for test in tests)


def _valid(column: Any, groups: Groups) -> Flags:
    return np.asarray(column.is_valid())[groups.rows]


def _latest(_column: Any, groups: Groups) -> Ints:
    return groups.rows[groups.lasts]


def _last_value(column: Any, groups: Groups) -> Ints:
    """The last row with a value; the last row if there is none."""
    if not column.null_count:
        return _latest(column, groups)
    valid = np.where(_valid(column, groups), np.arange(len(groups.rows)), -1)
    found = np.maximum.reduceat(valid, groups.starts)
    return groups.rows[np.where(found < 0, groups.lasts, found)]


def _first_value(column: Any, groups: Groups) -> Ints:
    if not column.null_count:
        return groups.rows[groups.starts]
    return _first_of(_valid(column, groups), groups)


def _first_of(flags: Flags, groups: Groups) -> Ints:
    """The first row that is flagged; the last row if there is none."""
    count = len(groups.rows)
    found = np.minimum.reduceat(np.where(flags, np.arange(count), count), groups.starts)
    return groups.rows[np.where(found == count, groups.lasts, found)]


def _least(column: Any, groups: Groups) -> Ints:
    return _extreme(column, groups, np.minimum)


def _greatest(column: Any, groups: Groups) -> Ints:
    return _extreme(column, groups, np.maximum)


def _extreme(column: Any, groups: Groups, better: np.ufunc) -> Ints:
    """The first row of the least or greatest value, in Spark's order."""
    filled = column.fill_null(0) if _is_number(column.type) else column
    values = sortable(filled)[groups.rows]
    if values.dtype.kind == "f":
        values = _ordered(values)
    counts = _valid(column, groups)
    bounds = np.iinfo(values.dtype)
    worst = bounds.max if better is np.minimum else bounds.min
    values = np.where(counts, values, values.dtype.type(worst))
    best = better.reduceat(values, groups.starts)
    return _first_of(counts & (values == np.repeat(best, groups.sizes)), groups)


def _ordered(values: NDArray[Any]) -> Ints:
    """Floats as integers of the same order: NaN is one value, above all others, and -0.0 is 0.0."""
    bits = np.where(np.isnan(values), np.nan, values.astype(np.float64) + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)


CHOICES: dict[Any, Callable[[Any, Groups], Ints]] = {
    "latest": _latest,
    "merge": _last_value,
    "first": _first_value,
    "min": _least,
    "max": _greatest,
}
RECORDED_OPERATIONS = (*CHOICES, "sum", "count")


def _total(column: Any, groups: Groups) -> Any:
    valid = _valid(column, groups)
    values = np.asarray(column.fill_null(0))[groups.rows]
    if values.dtype.kind == "f":
        # bincount adds one value after the other in their order; add.reduceat adds in pairs.
        group = np.repeat(np.arange(len(groups.starts)), groups.sizes)
        totals = np.bincount(group, weights=values, minlength=len(groups.starts))
    else:
        totals = np.add.reduceat(values, groups.starts)
        _refuse_overrun(values, totals, groups)
    nothing = ~np.logical_or.reduceat(valid, groups.starts)
    wanted = groups.wanted
    return pa.chunked_array([pa.array(totals[wanted], column.type, mask=nothing[wanted])])


def _refuse_overrun(values: NDArray[Any], totals: NDArray[Any], groups: Groups) -> None:
    # Integers wrap silently; a total in floating point shows which did.
    rough = np.add.reduceat(values.astype(np.float64), groups.starts)
    if np.any(np.abs(rough - totals.astype(np.float64)) > EXACT_MAX):
        raise ValueError("a sum of integers does not fit 64 bits; cast the column to float64")


def _one_by_one(column: Any, folded: Callable[[list[Any]], Any], groups: Groups) -> Any:
    """A function of the values that are not null, if there is more than one."""
    valid = _valid(column, groups)
    choice = _last_value(column, groups)
    counts = np.add.reduceat(valid, groups.starts, dtype=np.int64)
    several = counts > 1
    rows = groups.rows[valid & np.repeat(several, groups.sizes)]
    values = column.take(pa.array(rows)).to_pylist()
    stops = np.cumsum(counts[several])
    starts = stops - counts[several]
    results = [folded(values[i:j]) for i, j in zip(starts.tolist(), stops.tolist(), strict=True)]
    # Folded values are appended to the column, so that one take finds both kinds.
    choice[several] = len(column) + np.arange(len(results))
    longer = pa.chunked_array([*column.chunks, pa.array(results, column.type)])
    return longer.take(pa.array(choice[groups.wanted]))


def _merge_documents(texts: list[bytes | str]) -> bytes:
    """JSON values, merging documents path by path; null is no value.

    docs/semantics.md, Rule 8.
    """
    return orjson.dumps(reduce(_newer, map(_parse, texts)))


def _newer(current: Any, new: Any) -> Any:
    if not isinstance(new, dict):
        return current if new is None else new
    return merged(current if isinstance(current, dict) else {}, new, "ignore")


def _parse(text: bytes | str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise ValueError(
            f"{text[:60]!r} is not JSON ({error}), so it cannot be merged; "
            "use the policy latest, or a callable that merges such values"
        ) from None


Policy = str | Fold | Mapping[str, str | Fold]

VALUE = "value"
WINDOW_START = "window_start"
WINDOW_END = "window_end"


@dataclass(frozen=True)
class Spec:
    """The roles of columns, and how records of one window become one.

    `keys` names the columns that identify records, at least one; `time` a column of timestamp[us];
    `interval_us` is the window's length in microseconds. `policy` is one operation for all value
    columns, a mapping from column to operation (the others take their latest value) or a callable
    `fold(current, new)` for the column `value`. `order` names columns that break ties of `time`;
    records that remain equal keep their order. `delete` names a boolean column: a record where it
    is true ends its key. Raises ValueError, with a way out, for a contradiction within itself;
    `operations` checks it against the columns of a table.
    """

    keys: tuple[str, ...]
    time: str
    interval_us: int
    policy: Policy = "latest"
    order: tuple[str, ...] = ()
    delete: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.keys, str) or isinstance(self.order, str):
            raise ValueError('keys and order are tuples of column names; write ("key",)')
        if not self.keys:
            raise ValueError("conflation is per key; name at least one key column")
        in_bounds(self.interval_us, f"interval_us={self.interval_us}")
        named = [*self.keys, self.time, *filter(None, [self.delete])]
        if twice := {name for name in named if named.count(name) > 1}:
            raise ValueError(
                f"the column {min(twice)!r} is named twice among keys, time and delete; "
                "a column is one of them"
            )
        operations = self.policy.values() if isinstance(self.policy, Mapping) else [self.policy]
        for operation in operations:
            if operation not in RECORDED_OPERATIONS and not callable(operation):
                meant = _nearest(str(operation), RECORDED_OPERATIONS)
                raise ValueError(f"{operation!r} is not an operation{meant}")

    def operations(self, schema: Any) -> dict[str, str | Fold]:
        """The operation of every column of an Arrow schema.

        Raises ValueError, with a way out, if the spec does not fit it: a missing column, a type
        that an operation does not support, a name that the result needs.
        """
        self._check(schema)
        chosen: dict[str, str | Fold] = dict.fromkeys(schema.names, "latest")
        for name, operation in self._policy(schema):
            kind = schema.field(name).type
            if operation == "merge" and name == VALUE and _is_text(kind):
                operation = DOCUMENTS
            if reason := objection(kind, operation):
                raise ValueError(f"the column {name!r} is {kind}, but {reason}")
            chosen[name] = operation
        return chosen

    def folded_schema(self, schema: Any) -> Any:
        """The columns of folded records: sums widen and counts are whole numbers."""
        operations = self.operations(schema)
        fields = [(field.name, accumulator(field.type, operations[field.name])) for field in schema]
        return pa.schema(fields)

    def output_schema(self, schema: Any) -> Any:
        """The columns of the result for a table of this schema: those of `folded_schema`, then
        `window_start` and `window_end`, of the type of the time column."""
        kind = schema.field(self.time).type
        folded = self.folded_schema(schema)
        return folded.append(pa.field(WINDOW_START, kind)).append(pa.field(WINDOW_END, kind))

    def fingerprint(self) -> dict[str, Any]:
        """The settings that a stored state must share to be read again, as JSON."""
        policy: Any = self.policy
        if isinstance(policy, Mapping):
            policy = {name: _name_of(policy[name]) for name in sorted(policy)}
        return {
            "keys": list(self.keys),
            "time": self.time,
            "interval_us": self.interval_us,
            "policy": policy if isinstance(policy, dict) else _name_of(policy),
            "order": list(self.order),
            "delete": self.delete,
        }

    def _roles(self) -> set[str]:
        return {*self.keys, self.time, *self.order, *filter(None, [self.delete])}

    def _policy(self, schema: Any) -> Iterable[tuple[str, str | Fold]]:
        """The columns that the policy names, with their operations."""
        roles = self._roles()
        if isinstance(self.policy, Mapping):
            for name in self.policy:
                _require(name, schema, "policy")
                if name in roles:
                    raise ValueError(
                        f"the policy names the column {name!r}, which is a key, time, order or "
                        "delete column; those are always the last record's"
                    )
            return self.policy.items()
        if callable(self.policy):
            _require(VALUE, schema, "a callable policy")
            return [(VALUE, self.policy)]
        return [(name, self.policy) for name in schema.names if name not in roles]

    def _check(self, schema: Any) -> None:
        if len(set(schema.names)) != len(schema.names):
            raise ValueError("two columns have the same name; rename one of them")
        for name in (WINDOW_START, WINDOW_END):
            if name in schema.names:
                raise ValueError(f"{name!r} is a column of the result; rename the input's")
        for role in ("keys", "order"):
            for name in getattr(self, role):
                _require(name, schema, role)
                kind = schema.field(name).type
                if pa.types.is_nested(kind):
                    raise ValueError(
                        f"the column {name!r} of {role} is {kind}; make columns of its fields"
                    )
        _require(self.time, schema, "time")
        kind = schema.field(self.time).type
        if not (pa.types.is_timestamp(kind) and kind.unit == "us"):
            raise ValueError(f"the time column {self.time!r} is {kind}; cast it to timestamp[us]")
        if self.delete is not None:
            _require(self.delete, schema, "delete")
            kind = schema.field(self.delete).type
            if not pa.types.is_boolean(kind):
                raise ValueError(f"the delete column {self.delete!r} is {kind}; make it boolean")


def _require(name: str, schema: Any, role: str) -> None:
    if name not in schema.names:
        raise ValueError(
            f"there is no column {name!r}, which {role} names{_nearest(name, schema.names)}"
        )


def _nearest(name: str, names: Iterable[str]) -> str:
    names = list(names)
    meant = nearest(name, names)
    return f"; did you mean {meant!r}?" if meant else f"; use one of {', '.join(names)}"


def _is_text(kind: Any) -> bool:
    types = pa.types
    tests: list[Callable[[Any], Any]] = [
        types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    ]  # fmt: skip
    return any(test(kind) for test in tests)


def _name_of(operation: str | Fold) -> str:
    if isinstance(operation, str):
        return operation
    named = operation if hasattr(operation, "__qualname__") else type(operation)
    return f"{named.__module__}:{named.__qualname__}"
