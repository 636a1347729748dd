"""The keyword arguments of the client's methods: what may be asked, by name."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TypedDict

FLAGS = ("oof", "no_empties", "timestamp", "no_sowkey", "live", "positions")


class Selection(TypedDict, total=False):
    """Which records: those that match `filter`, those of these SowKeys."""

    filter: str | None
    keys: Sequence[str] | None


class Question(Selection, total=False):
    """A query: which records, in which order, how many of them after the first `skip_n`, and
    which of their fields; with `as_of`, a bookmark or a time, as they were then. With `projection`
    and `grouping` the rows that are made of groups of them."""

    order_by: str | None
    top_n: int | None
    skip_n: int | None
    select: Sequence[str] | str | None
    as_of: str | None
    projection: Sequence[str] | str | None
    grouping: Sequence[str] | str | None


class Pacing(TypedDict, total=False):
    """A subscription's pace: at most one update of a record in so long (``1s``, a timedelta), or
    ``auto``; what counts as the same record for that."""

    conflation: str | timedelta | None
    conflation_key: Sequence[str] | None


class Focus(Pacing, total=False):
    """What a subscription hears: updates that match `filter`; with `oof` what stops matching,
    with `delta` what has changed instead of whole records, unless nothing has (`no_empties`). With
    `projection` and `grouping` these are rows of groups of records; a snapshot comes first."""

    filter: str | None
    oof: bool
    delta: bool
    no_empties: bool
    timestamp: bool
    no_sowkey: bool
    select: Sequence[str] | str | None
    projection: Sequence[str] | str | None
    grouping: Sequence[str] | str | None


class LiveFocus(Focus, total=False):
    """The same from a bookmark on."""

    bookmark: str | None


class SnapshotFocus(Focus, total=False):
    """The same after a snapshot, which may be ordered and limited; with `live` or `skip_n` it keeps
    to that window, and with `positions` says where records stand in it."""

    order_by: str | None
    top_n: int | None
    skip_n: int | None
    live: bool
    positions: bool


def parameters(asked: Mapping[str, object]) -> dict[str, object]:
    """A selection or question as HTTP parameters: lists as comma text, the rest as it is."""
    found = dict(asked)
    for name in ("keys", "select"):
        if name in found:
            found[name] = _comma(found[name])
    return found | _groups(found)


def _groups(asked: Mapping[str, object]) -> dict[str, object]:
    """Lists of expressions, in which a comma may stand, as text."""
    found = {name: asked[name] for name in ("projection", "grouping") if name in asked}
    return {
        name: one if one is None or isinstance(one, str) else f"[{_comma(one)}]"
        for name, one in found.items()
    }


def subscription(
    topic: str, focus: Mapping[str, object], snapshot: bool
) -> tuple[str, dict[str, object]]:
    """A subscription's command and its fields (docs/websocket.md).

    `focus` has the arguments of `Client.subscribe` by name; with `snapshot` the records as they
    stand come first.
    """
    given = dict(focus)
    command = "delta_subscribe" if given.pop("delta", False) else "subscribe"
    options = [flag for flag in FLAGS if given.pop(flag, False)]
    conflation, key = given.pop("conflation", None), given.pop("conflation_key", None)
    if conflation is not None:
        options.append(f"conflation={_interval(conflation)}")
    if key is not None:
        options.append(f"conflation_key=[{_comma(key)}]")
    fields: dict[str, object] = {"t": topic, **given, **_groups(given)}
    if "select" in fields:
        fields["select"] = _comma(fields["select"])
    if "bookmark" in fields:
        fields["bm"] = fields.pop("bookmark")
    if options:
        fields["opts"] = ",".join(options)
    return f"sow_and_{command}" if snapshot else command, fields


def _comma(value: object) -> object:
    """A list as comma text; text as it is."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return value


def _interval(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)}us"
    return str(value)
