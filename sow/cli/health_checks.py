"""Health checks: judge figures of a machine or a server, and suggest what to do.

Pure functions: each takes figures and returns a finding, good ones too, to show what was checked.
`sow doctor` collects the figures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sow.cli.measuring import Percentiles
from sow.core.humanize import duration, size
from sow.server.net.listening import FILES_KEPT_MAX

Level = Literal["ok", "warning", "error"]

FSYNC_SLOW_S = 0.02
"""Each publish waits for a flush: a few milliseconds on good disks, 10 on slow ones."""
FSYNC_NONE_S = 0.00002
"""No durable disk answers faster."""
CLOCK_AHEAD_S = 1.0
"""Time servers make corrections of this size without effect."""
NEAR = 0.9
"""The part of a limit that warns: the rest may fill before anybody reacts."""
LAG_MS = 1000
"""A session this far behind shows outdated data."""
LAST_ERROR = "last error "
"""The prefix of the last error in the answer of `/readyz`."""
STEP_LONG_S = 0.5
"""Users notice that; the server records steps from a tenth of it on."""

DAY_S = 24 * 3600
"""Renewing a certificate takes days of planning."""
CERTIFICATE_DAYS = 30
"""Most authorities renew certificates this long before they end, and some users wait longer."""
RENEW = "renew it, then: sow reload"


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The finding about one subject; `instead` is what to do about it, if anything."""

    subject: str
    level: Level
    found: str
    instead: str = ""


def _judged(
    subject: str, found: str, is_ok: bool, instead: str, level: Level = "warning"
) -> HealthCheck:
    """A finding that is good, or of this level with what to do."""
    return (
        HealthCheck(subject, "ok", found) if is_ok else HealthCheck(subject, level, found, instead)
    )


def disk(free_bytes: int, total_bytes: int, reserve_bytes: int, directory: str) -> HealthCheck:
    """Whether the disk has room for messages."""
    found = f"{size(free_bytes)} of {size(total_bytes)} free for {directory}"
    if free_bytes <= reserve_bytes:
        found += f", which is the reserve for deletes ({size(reserve_bytes)})"
        instead = "free some space: publishes are refused until there is more"
        return HealthCheck("disk", "error", found, instead)
    has_room = free_bytes >= (1 - NEAR) * total_bytes
    return _judged("disk", found, has_room, "free some space, or move the data directory")


def retention(kept_bytes: int, used_bytes: int, free_bytes: int) -> HealthCheck:
    """Whether the log may grow to its limit."""
    found = f"the log keeps up to {size(kept_bytes)}, and takes {size(used_bytes)} now"
    has_room = kept_bytes - used_bytes <= free_bytes
    found += "" if has_room else f"; the disk has {size(free_bytes)} left"
    return _judged("retention", found, has_room, "set a smaller RetentionSize, or free some space")


def fsync(spread: Percentiles) -> HealthCheck:
    """How long a publish waits for the disk."""
    found = f"median {duration(spread.median_s)}, p99 {duration(spread.p99_s)}"
    if spread.median_s > FSYNC_SLOW_S:
        found += ": every acknowledged publish waits so long"
        instead = "put the data directory on a faster disk, or publish more in a frame"
        return HealthCheck("fsync", "warning", found, instead)
    if spread.median_s < FSYNC_NONE_S:
        found += ": no disk is so fast"
        instead = "use a directory on a disk: this one is in memory, or its flushes are ignored"
        return HealthCheck("fsync", "warning", found, instead)
    return HealthCheck("fsync", "ok", found)


def inner_loops(language: str) -> HealthCheck:
    """Whether the loops of every publish run in C."""
    faster = "" if language == "C" else "with a C compiler, install SOW again: publishes cost less"
    return HealthCheck("loops", "ok", f"inner loops in {language}", faster)


def files(hard: int | None, connections_max: int) -> HealthCheck:
    """Whether the process may open files for all connections; `hard` None: unlimited."""
    wanted = connections_max + FILES_KEPT_MAX
    limit = "unlimited" if hard is None else f"{hard:,}"
    return _judged(
        "files",
        f"{limit} files for {connections_max:,} connections",
        hard is None or hard >= wanted,
        f"raise ulimit -Hn to {wanted:,}, or lower Limits/Connections",
    )


def clock(ahead_s: float) -> HealthCheck:
    """Whether the machine's clock is behind the times of earlier writes."""
    is_behind = ahead_s > CLOCK_AHEAD_S
    return _judged(
        "clock",
        f"{duration(ahead_s)} behind earlier writes" if is_behind else "not behind earlier writes",
        not is_behind,
        "synchronize it with a time server; until then the server's time runs a tenth slower",
    )


def memory(used_bytes: float, limit_bytes: float | None) -> HealthCheck:
    """How much of their memory limit records use."""
    if limit_bytes is None or limit_bytes == float("inf"):
        found = f"records take {size(used_bytes)}, without a limit"
        return HealthCheck("memory", "ok", found, "set Limits/Memory to refuse publishes beyond it")
    found = f"records take {size(used_bytes)} of {size(limit_bytes)}"
    level: Level = "error" if used_bytes >= limit_bytes else "warning"
    has_room = used_bytes < NEAR * limit_bytes
    return _judged("memory", found, has_room, "raise Limits/Memory, or delete records", level)


def groups(used_bytes: float, limit_bytes: float) -> HealthCheck:
    """How much of their memory limit groups use that clients ask for."""
    found = f"clients' groups take {size(used_bytes)} of {size(limit_bytes)}"
    instead = "raise Limits/GroupMemory, or configure a View, which all can follow"
    return _judged("groups", found, used_bytes < NEAR * limit_bytes or not used_bytes, instead)


def queue_memory(used_bytes: float, limit_bytes: float) -> HealthCheck:
    """How much of the bound what waits for sessions uses."""
    found = f"{size(used_bytes)} of {size(limit_bytes)} wait for sessions"
    instead = "raise Limits/QueueMemory, or find who does not read: sow sessions"
    return _judged("queues", found, used_bytes < NEAR * limit_bytes, instead)


def connections(used: float, most: float) -> HealthCheck:
    """How many of the allowed connections are in use."""
    instead = "raise Limits/Connections, or list them: sow sessions"
    return _judged("connections", f"{used:,.0f} of {most:,.0f}", used < NEAR * most, instead)


def sessions(described: Sequence[Mapping[str, Any]]) -> HealthCheck:
    """Whether any session falls behind."""
    slow = [one for one in described if one["lag_ms"] >= LAG_MS]
    if not slow:
        return HealthCheck("sessions", "ok", f"{len(described):,}, and all keep up")
    worst = max(slow, key=lambda one: float(one["lag_ms"]))
    return HealthCheck(
        "sessions",
        "warning",
        f"{len(slow):,} of {len(described):,} are slow; {worst['client'] or worst['id']} is "
        f"{duration(worst['lag_ms'] / 1000)} behind with {worst['queue_messages']:,} messages",
        "subscribe with conflation=1s or a filter; sow sessions lists them",
    )


def nodes(described: Sequence[Mapping[str, Any]]) -> HealthCheck:
    """Whether the nodes of a log that are at the same bookmark have the same state."""
    heard = [one for one in described if one["state_hash"] is not None]
    hashes: dict[str, set[str]] = {}
    for one in heard:
        hashes.setdefault(one["bookmark"], set()).add(one["state_hash"])
    differing = next((at for at, found in hashes.items() if len(found) > 1), None)
    if differing is not None:
        named = "; ".join(
            f"{one['url']} has {one['state_hash']}" for one in heard if one["bookmark"] == differing
        )
        found = f"nodes differ at bookmark {differing}: {named}"
        instead = "keep the primary; remove the data directory of the other one and start it again"
        return HealthCheck("nodes", "error", found, instead)
    away = [one["url"] for one in described if one["state_hash"] is None]
    found = f"{len(heard):,} of {len(described):,} heard, "
    if away:
        return HealthCheck("nodes", "warning", found + f"not {', '.join(away)}", "start them again")
    if len(hashes) > 1:
        found += "at different bookmarks"
        return HealthCheck("nodes", "ok", found, "to compare them, ask when fewer changes come")
    return HealthCheck("nodes", "ok", found + "and the same state")


def steps(longest_s: Mapping[str, float]) -> HealthCheck:
    """Whether a step has blocked the loop for long."""
    if not longest_s:
        return HealthCheck("steps", "ok", "no long step")
    name, took_s = max(longest_s.items(), key=lambda one: one[1])
    found = f"the longest since the start took {duration(took_s)}: {name}"
    instead = "see the log for how often; a machine busy with other work causes this too"
    return _judged("steps", found, took_s < STEP_LONG_S, instead)


def certificates(expires_s: Mapping[str, float], now_s: float) -> list[HealthCheck]:
    """Whether certificates, each with the Unix time at which it expires, stay valid for a while."""
    return [_certificate(file, ends_s - now_s) for file, ends_s in expires_s.items()]


def _certificate(file: str, left_s: float) -> HealthCheck:
    if left_s <= 0:
        found = f"{file} has ended {duration(-left_s)} ago"
        return HealthCheck("certificate", "error", found, RENEW)
    found = f"{file} ends in {left_s // DAY_S:,.0f} days"
    return _judged("certificate", found, left_s >= CERTIFICATE_DAYS * DAY_S, RENEW)


def topics(described: Sequence[Mapping[str, Any]]) -> HealthCheck:
    """Whether every topic works."""
    stopped = [one for one in described if one.get("stopped")]
    if not stopped:
        return HealthCheck("topics", "ok", f"{len(described):,}, and none has stopped")
    found = "; ".join(f"{one['name']}: {one['stopped']}" for one in stopped)
    return HealthCheck("topics", "error", found, "fix the cause, then: sow reload")


def readiness(status: int, answer: str) -> list[HealthCheck]:
    """Whether the server accepts messages, and the last error of its log."""
    state, error, what = answer.partition(f"; {LAST_ERROR}")
    last = f"{LAST_ERROR}{what}" if error else "no error since the start"
    return [
        _judged(
            "ready",
            state,
            status == 200,
            "wait if it is replaying; else follow the message",
            "error",
        ),
        _judged(
            "log",
            last,
            not error,
            "read the log around that time; this stays until the server restarts",
        ),
    ]


def answers(spread: Percentiles) -> HealthCheck:
    """The response time of the server; the reader judges it, because it includes the network."""
    found = f"median {duration(spread.median_s)}, p99 {duration(spread.p99_s)}"
    return HealthCheck("answers", "ok", found)
