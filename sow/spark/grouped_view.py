"""A view with Spark as its engine: its definition applied to records and groups.

A record *contributes* to the group of its values: a contribution is a text, which can be retracted
later exactly as it was added. A group is the sum of all contributions, stored as a text too.
Reading records, arithmetic and writing rows are those of the server's own views
(`sow.topic.views`), so that rows are the same, byte for byte. This module does not store these
texts, and does not use Spark.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sow.core.definitions import MessageTypeOptions, View
from sow.core.keys import sow_key
from sow.core.lossless_numbers import LosslessNumber
from sow.core.paths import Value
from sow.expressions import compile_filter, compile_projection
from sow.spark.bodies import body_of, kind_of, text_of
from sow.topic.views.accumulators import Keeping
from sow.topic.views.groups import RowGroup, grouped_rows
from sow.topic.views.view import RowWriter

VIEWS_KEPT = 8
"""Compiled views cached in each Python of Spark's: a run has one."""
DIGITS = "digits"
"""The name that marks a number with all its digits, which JSON cannot represent otherwise."""
GROUP_KEY, GROUP_TEXTS, SPELLED, ARGUMENTS = range(4)
"""The parts of a contribution: the group's key, the texts and values to group by, and a value for
each argument of the projection."""


@dataclass(frozen=True)
class SparkView:
    """One view of records of the type `source_type`. Can be pickled; it compiles where it is
    used."""

    definition: View
    source_type: str
    kinds: tuple[MessageTypeOptions, ...] = ()

    @property
    def compiled(self) -> "CompiledView":
        """The compiled view, once in each process."""
        return _compiled(self)

    def purpose(self, filled_bookmark: str) -> str:
        """The identity of a matching state: everything that contributions depend on, and the topic
        that holds the rows from this bookmark on."""
        one = self.definition
        parts = [one.underlyings, one.projection, one.grouping, one.filter, one.domain]
        kinds = [repr(kind) for kind in self.kinds]
        return json.dumps([*parts, one.message_type, self.source_type, kinds, filled_bookmark])


class CompiledView:
    """Computes contributions of records, and groups."""

    def __init__(self, view: SparkView) -> None:
        definition = view.definition
        types = dict.fromkeys(definition.underlyings, view.source_type)
        self._projection = compile_projection(definition.projection, definition.grouping, types)
        self._keeping = Keeping(self._projection)
        self._paths = tuple(source.path for source in self._projection.inputs)
        self._filter = None if definition.filter is None else compile_filter(definition.filter)
        self._source = kind_of(view.source_type, view.kinds)
        self._kind = kind_of(definition.message_type, view.kinds)
        self._write = RowWriter(self._kind, self._projection, self._keeping)
        self._domain = definition.domain

    def contributions(self, texts: Sequence[str]) -> list[str | None]:
        """The contributions of records with these messages; None for a record that the view's
        filter excludes, or whose grouping values are too long."""
        bodies = [body_of(self._source, text) for text in texts]
        if not bodies:
            return []
        rows = grouped_rows(
            self._projection, self._source.decoder(self._paths).columns(bodies), len(bodies)
        )
        grouped = list(zip(*rows.texts, strict=True))
        inside = self._inside(bodies)
        columns = zip(inside, rows.keys, grouped, rows.spelled, rows.values(), strict=True)
        return [
            _as_text((key, texts, spelled, values)) if is_in and key is not None else None
            for is_in, key, texts, spelled, values in columns
        ]

    def _inside(self, bodies: Sequence[bytes]) -> Sequence[bool]:
        """Which messages pass the filter."""
        if self._filter is None:
            return [True] * len(bodies)
        columns = self._source.decoder(self._filter.paths).columns(bodies)
        return self._filter.matches(columns, len(bodies))

    def group(self, key: str, state: str | None) -> "KeptGroup":
        """The group of a key from its stored text, or an empty one."""
        return KeptGroup(self, key, state)

    # For groups.

    def empty(self, texts: Sequence[str]) -> RowGroup:
        """A group of records that share these texts."""
        return RowGroup(self._keeping.group(), tuple([text or None for text in texts]))

    def row(self, group: RowGroup) -> str:
        """The row of a group, as text."""
        return text_of(self._kind, self._write([group])[0])

    def sow_key(self, key: str) -> str:
        """The SowKey of a group's row."""
        return str(sow_key(self._domain, key))


class KeptGroup:
    """A group that contributions enter and leave. It does not know which came first or changed
    last, so it supports only aggregates that ignore order
    (`sow.expressions.aggregates.ORDERLESS`)."""

    def __init__(self, view: CompiledView, key: str, state: str | None) -> None:
        self._view = view
        self._key = key
        self._group: RowGroup | None = None
        self._left: tuple[int, str] = (0, "match")
        """The bookmark and operation of the last removed contribution."""
        if state is not None:
            self._texts, kept = _of_text(state)
            self._group = view.empty(self._texts)
            self._group.restore(kept)
        self._before = self.row

    def change(
        self, contribution: Sequence[Any], sign: int, bookmark: int = 0, op: str = "publish"
    ) -> None:
        """Add (1) or retract (-1) a contribution, by the row of the log at a bookmark, which has
        done `op` to its record."""
        if sign < 0 and bookmark > self._left[0]:
            # A record that exists but is not in the group has moved, or left by the filter.
            self._left = bookmark, "match" if op == "publish" else op
        if self._group is None:
            self._texts = contribution[GROUP_TEXTS]
            self._group = self._view.empty(self._texts)
        spelled = contribution[SPELLED]
        self._group.change(
            contribution[ARGUMENTS], None if spelled is None else tuple(spelled), sign
        )

    @property
    def row(self) -> str | None:
        """The row of the group; None without records."""
        group = self._group
        return None if group is None or not group.count else self._view.row(group)

    @property
    def state(self) -> str | None:
        """The text to store; None: nothing."""
        group = self._group
        if group is None or not group.count:
            return None
        return _as_text((self._texts, group.state()))

    def changed_row(self) -> tuple[str, str, str | None] | None:
        """The change of its row since it was stored: SowKey, operation and text; None if it is
        unchanged."""
        row = self.row
        if row == self._before:
            return None
        return self._view.sow_key(self._key), self._left[1] if row is None else "publish", row


def contributed(text: str) -> Sequence[Any]:
    """The parts of a contribution."""
    parts: list[Any] = _of_text(text)
    return parts


def _as_text(value: Any) -> str:
    return json.dumps(_plain(value), separators=(",", ":"))


def _plain(value: Any) -> Any:
    """A value as JSON, which distinguishes values of Python: 1, 1.0, true, NaN and infinities."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return {DIGITS: value.text} if isinstance(value, LosslessNumber) else value


def _of_text(text: str) -> Any:
    return json.loads(text, object_hook=_digits)


def _digits(found: dict[str, str]) -> Value:
    return LosslessNumber(found[DIGITS])


@lru_cache(maxsize=VIEWS_KEPT)
def _compiled(view: SparkView) -> CompiledView:
    return CompiledView(view)
