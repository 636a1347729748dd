"""The table of elements, continued: `<Actions>`, whose names are those of AMPS.

`FOREIGN_MODULES` are modules of AMPS that do not run here, each with what to write instead: work is
left to the system's scheduler or to a client that subscribes, and files that an action kept small
are bounded by an element. An action with one of them is passed over, with a warning.

An `Every` names moments: an interval, a time of day, that of one day of the week, or five fields of
cron, in UTC. Each is a function of time alone (`moments`): an interval counts from 1970 on, so that
the moments are the same whenever a server starts, and on each node of a log. There is no clock
here.
"""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import get_args

from conflated_topics.user_texts import nearest
from sow.config import value_types
from sow.config.diagnostics import MistakeError
from sow.config.elements import Element, later, leaf, unused
from sow.config.value_types import ValueKind, duration_us
from sow.core.action_definitions import (
    ActionDeed,
    ActionDefinition,
    ActionTrigger,
    DeedKind,
    OofType,
    TriggerKind,
)
from sow.errors import shown

Moments = Callable[[int], int]
"""The first moment after a time, both in microseconds since 1970."""

MINUTE_US = 60_000_000
"""What cron counts in."""
INTERVAL_US_MIN = 1_000_000
"""More often than once a second is what a subscription is for."""
DAYS_MAX = 366 * 9
"""A 29th of February comes after eight years at the latest, around a year like 2100."""
TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
WEEKDAYS = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")
FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("day of the week", 0, 7, DAYS),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WAYS_TO_WRITE = (
    "write an interval such as 4h, a time of day such as 23:30 or Saturday at 23:30, or five "
    "fields of cron in UTC"
)


def moments(text: str) -> Moments:
    """The moments of an `Every`; raises MistakeError."""
    words = text.split()
    if len(words) == len(FIELDS):
        return _cron(words)
    day, is_of_week, time = text.rpartition(" at ")
    if (found := TIME_OF_DAY.fullmatch(time)) and (not is_of_week or _is_day(day)):
        return _cron([found[2], found[1], "*", "*", day[:3] or "*"])
    try:
        interval_us = duration_us(text)
    except MistakeError:
        raise MistakeError(f"{shown(text)} names no moments", WAYS_TO_WRITE) from None
    if interval_us < INTERVAL_US_MIN:
        raise MistakeError(f"{shown(text)} is below the shortest interval", "write 1s or more")
    return lambda after_us: (after_us // interval_us + 1) * interval_us


def _is_day(word: str) -> bool:
    return word.upper() in (*DAYS, *WEEKDAYS)


def _cron(words: Iterable[str]) -> Moments:
    minutes, hours, days, months, weekdays = (
        _numbers(word, *field) for word, field in zip(words, FIELDS, strict=True)
    )
    weekdays = {number % 7 for number in weekdays}
    # As cron has it: of two that are given either is enough.
    either = len(days) < 31 and len(weekdays) < 7

    def is_day(at: datetime) -> bool:
        of_month, of_week = at.day in days, at.isoweekday() % 7 in weekdays
        return of_month or of_week if either else of_month and of_week

    def first(after_us: int) -> int:
        at = EPOCH + timedelta(minutes=after_us // MINUTE_US + 1)
        for _ in range(DAYS_MAX):
            if at.month in months and is_day(at):
                for hour in sorted(one for one in hours if one >= at.hour):
                    for minute in sorted(minutes):
                        if hour > at.hour or minute >= at.minute:
                            found = at.replace(hour=hour, minute=minute) - EPOCH
                            return found // timedelta(microseconds=1)
            at = at.replace(hour=0, minute=0) + timedelta(days=1)
        raise MistakeError("names a day that never comes", "write a day that its months have")

    first(0)
    return first


def _numbers(text: str, name: str, first: int, last: int, words: tuple[str, ...]) -> set[int]:
    """What one field of cron allows."""

    def number(word: str) -> int:
        if word.upper() in words:
            return words.index(word.upper()) + first
        value = int(word) if re.fullmatch(r"\d{1,2}", word, re.ASCII) else -1
        if not first <= value <= last:
            raise MistakeError(
                f"{shown(word)} is no {name}",
                f"write numbers from {first} to {last}, as *, 1,2, 1-5 or */2",
            )
        return value

    found: set[int] = set()
    for part in text.split(","):
        span, has_step, step = part.partition("/")
        low, is_range, high = span.partition("-")
        if span == "*":
            begin, end = first, last
        else:
            begin = number(low)
            end = number(high) if is_range else last if has_step else begin
        by = int(step) if re.fullmatch(r"[1-9]\d?", step, re.ASCII) else 0
        if (has_step and not by) or end < begin:
            raise MistakeError(f"{shown(part)} is no {name}", "write it as */2, 1-5 or 1-5/2")
        found |= {*range(begin, end + 1, by or 1)}
    return found


RETENTION = "RetentionAge and RetentionSize in TransactionLog limit how much of the log is kept"
BY_A_CLIENT = "let a client subscribe and react to each message"
ACTIVITY = "the server's log and /sow/audit note what clients do"
FOREIGN_MODULES: dict[str, dict[str, str]] = {
    "On": {
        "signal": "send SIGTERM or SIGHUP: the server stops, or reads its configuration again",
        "offline": "write amps-action-on-slow-client",
        "on-client": ACTIVITY,
        "on-disconnect-client": ACTIVITY,
        "sow-delete": "write amps-action-on-oof-message with the Type delete",
        "deliver-message": "write amps-action-on-publish-message",
        "message-condition": "write amps-action-on-sow-expire-message",
        "affinity": BY_A_CLIENT,
        "custom-event": BY_A_CLIENT,
        "replication": "there is no replication",
        "minidump": "a Python process writes no minidumps",
        "admin": "an operator's command does it: sow delete, sow publish",
        "alert": "alerts are of the monitoring system: deploy/alerts.yml",
    },
    "Do": {
        "remove-journal": RETENTION,
        "archive-journal": f"{RETENTION}; sow backup copies it",
        "compress-journal": RETENTION,
        "compact-sow": "the server compacts its files by itself",
        "query-sow": "run sow query from a scheduler of the system",
        "extract-values": BY_A_CLIENT,
        "translate-data": BY_A_CLIENT,
        "increment-counter": BY_A_CLIENT,
        "rotate-log": "the system keeps and rotates what the server writes to its standard error",
        "statistics": "GET /metrics has the figures; a monitoring system scrapes and stores them",
        "transport": "there is one address, Listen; sow sessions ID --disconnect ends a session",
        "replication": "there is no replication",
        "security": "sow reload reads Security and its files again",
        "minidump": "a Python process writes no minidumps",
        "shutdown": "the service manager stops the server; a full disk refuses publishes and is "
        "reported by GET /readyz",
    },
}
"""By the element and a part of the module's name, which has several spellings: the alternative."""


def _module(kinds: object, prefix: str) -> ValueKind:
    """The module of a trigger or a deed, read as its name without the prefix."""
    names: tuple[str, ...] = get_args(kinds)

    def written(name: str) -> str:
        return name if name == "webhook" else prefix + name

    def read(text: str) -> str:
        name = text.removeprefix(prefix)
        if name in names:
            return name
        if "execute-system" in text:
            raise MistakeError(
                f"{shown(text)} would run a command of the system, which no action does",
                "write webhook, and let a service of yours do it",
            )
        meant = nearest(name, names)
        instead = f"did you mean {written(meant)}?" if meant else "write one of them"
        raise MistakeError(f"{shown(text)} is not one of {', '.join(map(written, names))}", instead)

    shown_names = " or ".join(f"`{written(name)}`" for name in names)
    return ValueKind(shown_names, read, tuple(map(written, names)))


HOST = re.compile(r"[\w.-]+|\[[0-9A-Fa-f:.]+\]", re.ASCII)


def _every(text: str) -> str:
    moments(text)
    return text


def _hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(one.strip() for one in text.split(","))
    for host in hosts:
        if not HOST.fullmatch(host):
            raise MistakeError(
                f"{shown(host)} is no name of a host",
                "write names or addresses without scheme, port and path, with commas between",
            )
    return tuple(host.strip("[]").lower() for host in hosts)


def _url(text: str) -> str:
    if not re.match(r"https?://[^/?#@\s{}]+(?:[/?#][^\s{}]*)?\Z", text):
        raise MistakeError(
            f"{shown(text)} is no address of a web hook",
            "write one such as https://hooks.example/orders, without variables, user and blanks",
        )
    return text


MESSAGE_TYPE_OPTION = leaf("MessageType", value_types.TEXT)(
    "The format of the topic, to be compared with its own."
)
FILTER_TEXT = ValueKind("filter", lambda text: text)
"""A filter that may have variables: the rules check it."""
ANY_TEXT = ValueKind("text with variables", lambda text: text)

ON = Element(
    name="On",
    required=True,
    fields=("trigger",),
    make=ActionTrigger,
    about="What sets it off.",
    children=(
        leaf("Module", _module(TriggerKind, "amps-action-on-"), required=True, fields=("kind",))(
            "A time, a start or a clean stop of the server, a publish, a record that expires or "
            "leaves, or a client that is too slow."
        ),
        Element(
            name="Options",
            about="What the module needs.",
            children=(
                leaf("Name", value_types.LABEL)("The action's name in the log and the audit."),
                leaf(
                    "Every",
                    ValueKind(
                        "interval, `HH:MM`, `Saturday at HH:MM` or five fields of cron", _every
                    ),
                )("The moments of a schedule, in UTC."),
                leaf("Topic", value_types.TEXT)("The Topic that is watched."),
                MESSAGE_TYPE_OPTION,
                leaf("Filter", value_types.FILTER)(
                    "Only messages that match; of an oof, records that matched before."
                ),
                leaf("Type", value_types.choice(OofType), default="all")(
                    "Why a record leaves: it matches the Filter no more, is deleted, or expires."
                ),
                *unused("MessageSource"),
            ),
        ),
    ),
)
DO = Element(
    name="Do",
    required=True,
    repeated=True,
    fields=("deeds",),
    make=ActionDeed,
    about="What is done then. One that fails ends the run.",
    children=(
        leaf("Module", _module(DeedKind, "amps-action-do-"), required=True, fields=("kind",))(
            "Publish a message, delete records, write a line to the server's log, or call a web "
            "hook by POST."
        ),
        Element(
            name="Options",
            about="What the module needs. `{{AMPS_DATA}}`, `{{AMPS_TOPIC}}` and "
            "`{{AMPS_SOW_KEY}}` stand for the message that has set the action off.",
            children=(
                leaf("Topic", value_types.TEXT)("The Topic to publish to, or to delete from."),
                MESSAGE_TYPE_OPTION,
                leaf("Data", ANY_TEXT)(
                    "The message, or the body of the call; without it, the one "
                    "that has set the action off."
                ),
                leaf("Delta", value_types.FLAG, default="false")(
                    "Whether it is merged into its record."
                ),
                leaf("Filter", FILTER_TEXT)("Which records are deleted; `1=1` for all."),
                leaf("Message", ANY_TEXT)("The line for the log."),
                leaf("Url", ValueKind("address", _url))("Of the web hook, on one of WebhookHosts."),
                leaf(
                    "Timeout",
                    value_types.duration(minimum="100ms", maximum="1m"),
                    default="5s",
                    fields=("timeout_us",),
                )("How long a call may take."),
                leaf("Retries", value_types.count(minimum="0", maximum="20"), default="3")(
                    "How often a call is made again that got no answer from 200 to 299."
                ),
            ),
        ),
    ),
)
ACTION = Element(
    name="Action",
    repeated=True,
    fields=("actions",),
    make=ActionDefinition,
    about="One of them.",
    children=(ON, DO, *later(If="write the condition as the Filter of a trigger")),
)
ALL_ACTIONS = Element(
    name="Actions",
    about="What the server does by itself, where it takes changes.",
    children=(
        leaf("WebhookHosts", ValueKind("hosts with commas between", _hosts))(
            "The hosts that web hooks may be on; none without it, this machine included."
        ),
        ACTION,
    ),
)
