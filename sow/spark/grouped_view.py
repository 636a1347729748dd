"""A view whose engine is Spark: what its definition means for records and for groups.

A record *contributes* to the group that its values name: what it contributes is a text, which can
be taken back later as it was given. A group is what all contributions come to, kept as a text too.
The reading of records, the arithmetic and the writing of rows are those of the server's own views
(`sow.topic.views`), so that rows are the same, byte for byte. Who keeps these texts, and where, is
not known here; nor is Spark.
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
"""Compiled views that each Python of Spark's keeps: a run has one."""
DIGITS = "digits"
"""Under which name a number stands that keeps its digits: JSON has no other way to tell it."""
GROUP_KEY, GROUP_TEXTS, SPELLED, ARGUMENTS = range(4)
"""What a contribution is made of: the group's key, the texts and the values that it is grouped by,
and a value for each argument of the projection."""


@dataclass(frozen=True)
class SparkView:
    """One view, of records of the type `source_type`. Can be pickled; what it compiles it compiles
    where it is used."""

    definition: View
    source_type: str
    kinds: tuple[MessageTypeOptions, ...] = ()

    @property
    def compiled(self) -> "CompiledView":
        """What is made of the definition, once in each process."""
        return _compiled(self)

    def purpose(self, filled_bookmark: str) -> str:
        """What a state has to be made for to be of use: all that contributions depend on, and the
        topic that holds the rows from this bookmark on."""
        one = self.definition
        parts = [one.underlyings, one.projection, one.grouping, one.filter, one.domain]
        kinds = [repr(kind) for kind in self.kinds]
        return json.dumps([*parts, one.message_type, self.source_type, kinds, filled_bookmark])


class CompiledView:
    """What records contribute, and what becomes of groups."""

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
        """What records with these messages contribute; None of one that the view's filter does not
        let in, or whose values to group by are too long."""
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
        """The group of a key as it was kept, or one that nothing has come to."""
        return KeptGroup(self, key, state)

    # For groups.

    def empty(self, texts: Sequence[str]) -> RowGroup:
        """A group of records that have these texts in common."""
        return RowGroup(self._keeping.group(), tuple([text or None for text in texts]))

    def row(self, group: RowGroup) -> str:
        """The row of a group, as text."""
        return text_of(self._kind, self._write([group])[0])

    def sow_key(self, key: str) -> str:
        """The SowKey of a group's row."""
        return str(sow_key(self._domain, key))


class KeptGroup:
    """A group while contributions come and go. It cannot say which of them came first or changed
    last, so it is for aggregates that do not ask (`sow.expressions.aggregates.ORDERLESS`)."""

    def __init__(self, view: CompiledView, key: str, state: str | None) -> None:
        self._view = view
        self._key = key
        self._group: RowGroup | None = None
        self._left: tuple[int, str] = (0, "match")
        """The bookmark by which the last one went that has gone, and why."""
        if state is not None:
            self._texts, kept = _of_text(state)
            self._group = view.empty(self._texts)
            self._group.restore(kept)
        self._before = self.row

    def change(
        self, contribution: Sequence[Any], sign: int, bookmark: int = 0, op: str = "publish"
    ) -> None:
        """A contribution has come (1), or one that came has gone (-1), by the row of the log at a
        bookmark, which has done `op` to its record."""
        if sign < 0 and bookmark > self._left[0]:
            # A record that is there and not in the group has moved, or left by the filter.
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
        """Its row; None without records."""
        group = self._group
        return None if group is None or not group.count else self._view.row(group)

    @property
    def state(self) -> str | None:
        """What is to be kept of it; None: nothing."""
        group = self._group
        if group is None or not group.count:
            return None
        return _as_text((self._texts, group.state()))

    def told(self) -> tuple[str, str, str | None] | None:
        """What has become of its row since it was kept: its SowKey, what is done to it, and its
        text; None: it is as it was."""
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
    """A value as JSON has it, which Python's keeps apart: 1, 1.0, true, NaN and infinities."""
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
