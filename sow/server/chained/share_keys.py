"""Which subscriptions of a chained server's clients are equal, and so one upstream.

Shared are those whose members are all in the same position: subscriptions to single changes, and
those with `oof` or deltas that begin with the whole snapshot; to records or to groups of them.
What can be done with upstream's lines is done here, for each client: conflation in time, and the
SowKeys that are left out (`FeedKey`). All others are their sessions' own.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import orjson

from sow.core.definitions import (
    BackPressure,
    ConflatedTopic,
    Definition,
    Merge,
    MessageTypeOptions,
    Topic,
    View,
)
from sow.messages import message_type
from sow.protocol.commands import Command
from sow.streaming.update_encoder import FeedKey, WindowKey
from sow.topic.records import Records
from sow.topic.rendering import Shape

NO_RECORD = "0"
"""A SowKey of no record: a query for it has the bookmark of the moment and nothing else."""
KINDS: dict[str, Callable[..., Definition]] = {
    "topic": Topic,
    "conflated": partial(ConflatedTopic, underlying=""),
    "view": partial(View, underlyings=(), projection=(), grouping=()),
}
"""Kinds of topics whose subscriptions are shared: definitions that have nothing but the rules of
their queues."""


class ShareKey(NamedTuple):
    """What makes two subscriptions equal upstream, beside the client's user. `bodies`: what was
    sent of each record is kept here, since lines are made of it."""

    topic: str
    filter: str | None = None
    select: tuple[str, ...] | None = None
    oof: bool = False
    delta: bool = False
    no_empties: bool = False
    timestamp: bool = False
    literal: bool = False
    bodies: bool = False
    projection: tuple[str, ...] | None = None
    grouping: tuple[str, ...] | None = None
    window: WindowKey | None = None

    @property
    def accounts(self) -> bool:
        """What a line says depends on what was sent before."""
        return self.oof or self.delta or self.no_empties

    @property
    def aggregated(self) -> bool:
        """It is about groups of records, which begin with the present alone."""
        return self.projection is not None or self.grouping is not None

    @property
    def begins(self) -> bool:
        """It begins with a snapshot, else with the next change."""
        return self.accounts or self.aggregated

    def options(self, *flags: str) -> str:
        """The options that it has upstream, and its queries with these of its flags."""
        found = [name for name in flags if getattr(self, name)]
        found += ["non_regex_topic"] if self.literal else []
        found += ["live", "positions"] if self.window is not None else []
        found += ["withdrawn"] if flags and not self.oof and self.window is None else []
        for name in ("select", "projection", "grouping"):
            if (members := getattr(self, name)) is not None:
                found.append(f"{name}=[{','.join(members)}]")
        return ",".join(found)

    def line(self, command: str, cid: str, **more: object) -> bytes:
        """A command about it."""
        fields = {"c": command, "cid": cid, "t": self.topic, "filter": self.filter, **more}
        if self.window is not None:
            fields["order_by"] = self.window.order_by
        return orjson.dumps({key: value for key, value in fields.items() if value is not None})


SHARED_FLAGS = ("oof", "no_empties", "timestamp")
"""The options of a subscription that are flags."""


def share_key_of(command: Command, is_pattern: bool) -> tuple[ShareKey, FeedKey] | None:
    """What a command asks for that may be shared, and how its client is sent it; None: it is the
    session's own."""
    options, begins = command.options, command.name.startswith("sow_and_")
    if (is_window := options.live or None not in (options.top_n, options.skip_n)) and begins:
        return None if is_pattern else _window_key_of(command)
    accounts = options.oof or options.no_empties or command.kind.is_delta
    groups = options.projection is not None or options.grouping is not None
    is_cut = options.top_n is not None
    own = (
        command.bookmark is not None
        or command.keys is not None
        or command.key is not None
        or is_window
        or options.positions
        or options.last is not None
        or options.as_of is not None
        or options.skip_n is not None
        or is_pattern
        or (options.no_empties and not command.kind.is_delta)
        or (bool(options.conflation_key) and _is_hidden(options.conflation, options.select))
        or ((accounts or groups) and not begins)
        or (accounts and bool(options.conflation_key))
        or ((accounts or groups or options.conflation is not None) and is_cut)
        or (not begins and (is_cut or command.order_by is not None))
    )
    if own:
        return None
    by_record = options.conflation is not None and not options.conflation_key
    wanted = ShareKey(
        command.topic,
        command.filter,
        options.select,
        # What comes and goes within a window is not sent, so it has to be known here.
        options.oof or by_record,
        command.kind.is_delta,
        options.no_empties,
        options.timestamp,
        options.non_regex_topic,
        command.kind.is_delta or by_record or groups,
        options.projection,
        options.grouping,
    )
    return wanted, FeedKey(
        command.filter,
        options.oof,
        command.kind.is_delta,
        options.no_empties,
        interval_us=options.conflation if isinstance(options.conflation, int) else None,
        auto=options.conflation == "auto",
        conflation_key=options.conflation_key,
        shape=Shape(not options.no_sowkey, options.timestamp),
        withdrawn=options.withdrawn,
    )


def _window_key_of(command: Command) -> tuple[ShareKey, FeedKey] | None:
    """The same of a live window, whose lines are made here of what it shows."""
    options = command.options
    own = (
        command.keys is not None
        or command.key is not None
        or options.top_n is None
        or options.as_of is not None
        or options.last is not None
        or options.projection is not None
        or options.grouping is not None
        or (options.no_empties and not command.kind.is_delta)
        or bool(options.conflation_key)
    )
    if own or options.top_n is None:
        return None
    window = WindowKey(command.order_by, options.skip_n or 0, options.top_n, positions=True)
    wanted = ShareKey(
        command.topic,
        command.filter,
        options.select,
        timestamp=True,
        literal=options.non_regex_topic,
        window=window,
    )
    return wanted, FeedKey(
        command.filter,
        True,
        command.kind.is_delta,
        options.no_empties,
        interval_us=options.conflation if isinstance(options.conflation, int) else None,
        auto=options.conflation == "auto",
        shape=Shape(not options.no_sowkey, options.timestamp),
        window=window._replace(positions=options.positions),
    )


def _is_hidden(conflation: object, select: Sequence[str] | None) -> bool:
    """The fields by which updates are conflated may be missing in upstream's lines; without an
    interval upstream says what is wrong."""
    return conflation is None or select is not None


def records_of(
    described: Mapping[str, Any], types: Mapping[str, MessageTypeOptions]
) -> Records | None:
    """A topic as upstream describes it, without its records, for the rules of its queues; None
    where its subscriptions are not shared: events, queues."""
    if described.get("kind") not in KINDS or "series" in described:
        return None
    settings: dict[str, Any] = dict(described.get("queue") or {})
    merges = tuple(Merge(**one) for one in settings.pop("merges", ()))
    settings["match"] = tuple(settings.get("match", ()))
    definition = KINDS[described["kind"]](
        name=described["name"],
        message_type=described["message_type"],
        merges=merges,
        **{key: settings[key] for key in settings if key in BackPressure.__slots__},
    )
    kind, keys = message_type(described["message_type"], types), described.get("keys", ())
    return Records(definition, kind, keys, definition.name, makes_keys=False)
