"""Which subscriptions of a chained server's clients are equal, and so one upstream.

Shared are those whose members are all in the same position: subscriptions to single changes, and
those with `oof` or deltas that begin with the whole snapshot; to one topic of JSON messages, whose
queues have rules that are known here. All others are their sessions' own.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import orjson

from sow.core.definitions import BackPressure, ConflatedTopic, Definition, Merge, Topic, View
from sow.messages import message_type
from sow.protocol.commands import Command
from sow.topic.records import Records

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
    """What makes two subscriptions equal, beside the client's user."""

    topic: str
    filter: str | None
    select: tuple[str, ...] | None
    oof: bool
    delta: bool
    no_empties: bool
    timestamp: bool
    literal: bool

    @property
    def accounts(self) -> bool:
        """What a line says depends on what was sent before."""
        return self.oof or self.delta or self.no_empties

    def options(self, *more: str) -> str:
        """The options that it has upstream."""
        flags = ("oof", "no_empties", "timestamp")
        found = [name for name in flags if getattr(self, name)]
        found += ["non_regex_topic"] if self.literal else []
        found += [] if self.select is None else [f"select=[{','.join(self.select)}]"]
        return ",".join([*found, *more])

    def line(self, command: str, cid: str, **more: object) -> bytes:
        """A command about it."""
        fields = {"c": command, "cid": cid, "t": self.topic, "filter": self.filter, **more}
        return orjson.dumps({key: value for key, value in fields.items() if value is not None})


def share_key_of(command: Command, is_pattern: bool) -> ShareKey | None:
    """What a command asks for that may be shared; None: it is the session's own."""
    options, begins = command.options, command.name.startswith("sow_and_")
    accounts = options.oof or options.no_empties or command.kind.is_delta
    own = (
        command.bookmark is not None
        or command.subscription is not None
        or command.keys is not None
        or command.key is not None
        or options.replace
        or options.live
        or options.positions
        or options.no_sowkey
        or options.last is not None
        or options.as_of is not None
        or options.conflation is not None
        or options.conflation_key
        or options.projection is not None
        or options.grouping is not None
        or options.skip_n is not None
        or is_pattern
        or (accounts and (not begins or options.top_n is not None))
        or (not begins and (options.top_n is not None or command.order_by is not None))
    )
    if own:
        return None
    return ShareKey(
        command.topic,
        command.filter,
        options.select,
        options.oof,
        command.kind.is_delta,
        options.no_empties,
        options.timestamp,
        options.non_regex_topic,
    )


def records_of(described: dict[str, Any]) -> Records | None:
    """A topic as upstream describes it, without its records, for the rules of its queues; None
    where its subscriptions are not shared: messages that are no JSON, events, queues."""
    shares = described.get("kind") in KINDS and "series" not in described
    if not shares or described.get("message_type") != "json":
        return None
    settings: dict[str, Any] = dict(described.get("queue") or {})
    merges = tuple(Merge(**one) for one in settings.pop("merges", ()))
    settings["match"] = tuple(settings.get("match", ()))
    definition = KINDS[described["kind"]](
        name=described["name"],
        message_type="json",
        merges=merges,
        **{key: settings[key] for key in settings if key in BackPressure.__slots__},
    )
    return Records(definition, message_type("json"), (), definition.name)
