"""Converts arguments of the client's methods to parameters of requests and commands."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

Paths = Sequence[str] | str
"""A list of paths or expressions, or the same as comma text."""
Interval = str | timedelta
"""``"1s"`` or a timedelta; ``"auto"`` leaves it to the server."""

FLAGS = ("oof", "no_empties", "timestamp", "no_sowkey", "live", "positions")


def given(**arguments: object) -> dict[str, object]:
    """The arguments that are not None."""
    return {name: value for name, value in arguments.items() if value is not None}


def parameters(requested: Mapping[str, object]) -> dict[str, object]:
    """A query or selection as HTTP parameters: lists as comma text, the rest unchanged."""
    found = dict(requested)
    for name in ("keys", "select"):
        if name in found:
            found[name] = _comma(found[name])
    return found | _groups(found)


def _groups(requested: Mapping[str, object]) -> dict[str, object]:
    """Lists of expressions, which may contain commas, as text."""
    found = {name: requested[name] for name in ("projection", "grouping") if name in requested}
    return {
        name: one if one is None or isinstance(one, str) else f"[{_comma(one)}]"
        for name, one in found.items()
    }


def subscription(
    topic: str, focus: Mapping[str, object], snapshot: bool
) -> tuple[str, dict[str, object]]:
    """A subscription's command and its fields (docs/websocket.md).

    `focus` has the arguments of `Client.subscribe` by name; with `snapshot` the current records
    come first.
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
