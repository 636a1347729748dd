"""The keyword arguments of the client's methods: what may be asked, by name."""

from collections.abc import Mapping, Sequence
from typing import TypedDict


class Selection(TypedDict, total=False):
    """Which records: those that match `filter`, those of these SowKeys."""

    filter: str | None
    keys: Sequence[str] | None


class Question(Selection, total=False):
    """A query: which records, in which order, how many of them after the first `skip_n`."""

    order_by: str | None
    top_n: int | None
    skip_n: int | None


class Focus(TypedDict, total=False):
    """What a subscription hears: updates that match `filter`; with `oof` what stops matching."""

    filter: str | None
    oof: bool


class SnapshotFocus(Focus, total=False):
    """The same after a snapshot, which may be ordered and limited."""

    order_by: str | None
    top_n: int | None


def parameters(asked: Mapping[str, object]) -> dict[str, object]:
    """A selection or question as HTTP parameters: keys as comma text."""
    found = dict(asked)
    keys = asked.get("keys")
    if isinstance(keys, Sequence) and not isinstance(keys, str):
        found["keys"] = ",".join(map(str, keys))
    return found


def fields(topic: str, focus: Mapping[str, object]) -> dict[str, object]:
    """A subscription's focus as the fields of its command."""
    found = {"t": topic, **focus}
    if found.pop("oof", False):
        found["opts"] = "oof"
    return found
