"""Specifies the conflation of a recorded log: the roles of columns, the interval, the policy.

A spec is checked by itself when it is created, and against columns when it first meets a table.
Every error is a sentence with a way out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from conflated_topics.folds import DOCUMENTS, RECORDED_OPERATIONS, Fold, accumulator, objection
from conflated_topics.user_texts import in_bounds, nearest

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
