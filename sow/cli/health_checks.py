"""Checkups: what figures of a machine or a server say to who runs it, and what he may do.

Pure judgements: each takes figures and gives a finding, good ones too, so that one sees what was
looked at. `sow doctor` gathers the figures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sow.cli.percentiles import Percentiles
from sow.core.humanize import duration, size
from sow.server.net.listening import FILES_KEPT_MAX

Level = Literal["ok", "warning", "error"]

FSYNC_SLOW_S = 0.02
"""Every acknowledged publish waits for it; good disks take a few milliseconds, a slow one 10."""
FSYNC_NONE_S = 0.00002
"""No disk that keeps what it was given answers so soon."""
CLOCK_AHEAD_S = 1.0
"""Time servers correct as much, and nobody notices."""
NEAR = 0.9
"""Of a bound: the rest is gone before somebody has read the finding twice."""
LAG_MS = 1000
"""A session that is so far behind shows what is no longer so."""
LAST_ERROR = "last error "
"""What stands before it in what `/readyz` says."""
STEP_LONG_S = 0.5
"""People see that; the server names steps from a tenth of it on."""

DAY_S = 24 * 3600
"""Whoever renews a certificate plans in days."""
CERTIFICATE_DAYS = 30
"""Most authorities let a certificate be renewed so long before it ends, and some people wait."""
RENEW = "renew it, then: sow reload"


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """What was found of one thing; `instead` is what to do about it, where there is something."""

    subject: str
    level: Level
    found: str
    instead: str = ""


def disk(free_bytes: int, total_bytes: int, reserve_bytes: int, directory: str) -> HealthCheck:
    """Whether the disk takes messages, and goes on to."""
    found = f"{size(free_bytes)} of {size(total_bytes)} free for {directory}"
    if free_bytes <= reserve_bytes:
        return HealthCheck(
            "disk",
            "error",
            f"{found}, which is the reserve for deletes ({size(reserve_bytes)})",
            "free some space: publishes are refused until there is more",
        )
    if free_bytes < (1 - NEAR) * total_bytes:
        return HealthCheck("disk", "warning", found, "free some space, or move the data directory")
    return HealthCheck("disk", "ok", found)


def retention(kept_bytes: int, used_bytes: int, free_bytes: int) -> HealthCheck:
    """Whether the log may become as long as it is allowed to."""
    found = f"the log keeps up to {size(kept_bytes)}, and takes {size(used_bytes)} now"
    if kept_bytes - used_bytes > free_bytes:
        return HealthCheck(
            "retention",
            "warning",
            f"{found}; the disk has {size(free_bytes)} left",
            "set a smaller RetentionSize, or free some space",
        )
    return HealthCheck("retention", "ok", found)


def fsync(spread: Percentiles) -> HealthCheck:
    """How long what is published waits for the disk."""
    found = f"median {duration(spread.median_s)}, p99 {duration(spread.p99_s)}"
    if spread.median_s > FSYNC_SLOW_S:
        return HealthCheck(
            "fsync",
            "warning",
            f"{found}: every acknowledged publish waits so long",
            "put the data directory on a faster disk, or publish more in a frame",
        )
    if spread.median_s < FSYNC_NONE_S:
        return HealthCheck(
            "fsync",
            "warning",
            f"{found}: no disk is so fast",
            "use a directory on a disk: this one is in memory, or its flushes are ignored",
        )
    return HealthCheck("fsync", "ok", found)


def files(hard: int | None, connections_max: int) -> HealthCheck:
    """Whether there are files for all connections; `hard` None: any number."""
    if hard is None or hard - FILES_KEPT_MAX >= connections_max:
        said = "any number of" if hard is None else f"{hard:,}"
        return HealthCheck("files", "ok", f"{said} files for {connections_max:,} connections")
    return HealthCheck(
        "files",
        "warning",
        f"{hard:,} files for {connections_max:,} connections",
        f"raise ulimit -Hn to {connections_max + FILES_KEPT_MAX:,}, or lower Limits/Connections",
    )


def clock(ahead_s: float) -> HealthCheck:
    """Whether the machine's time has been set back, behind what was written before."""
    if ahead_s <= CLOCK_AHEAD_S:
        return HealthCheck("clock", "ok", "not behind what was written")
    return HealthCheck(
        "clock",
        "warning",
        f"behind what was written by {duration(ahead_s)}",
        "let a time server set it; until then the server's time goes a tenth slower",
    )


def memory(used_bytes: float, limit_bytes: float | None) -> HealthCheck:
    """How much of what records may take they do."""
    if limit_bytes is None or limit_bytes == float("inf"):
        found = f"records take {size(used_bytes)}, and may take any amount"
        return HealthCheck(
            "memory", "ok", found, "set Limits/Memory to have publishes refused instead"
        )
    found = f"records take {size(used_bytes)} of {size(limit_bytes)}"
    if used_bytes < NEAR * limit_bytes:
        return HealthCheck("memory", "ok", found)
    level: Level = "error" if used_bytes >= limit_bytes else "warning"
    return HealthCheck("memory", level, found, "raise Limits/Memory, or delete records")


def connections(used: float, most: float) -> HealthCheck:
    """How many connections of those there may be are taken."""
    found = f"{used:,.0f} of {most:,.0f}"
    if used < NEAR * most:
        return HealthCheck("connections", "ok", found)
    return HealthCheck(
        "connections", "warning", found, "raise Limits/Connections, or see who they are"
    )


def sessions(described: Sequence[Mapping[str, Any]]) -> HealthCheck:
    """Whether somebody does not keep up."""
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


def steps(longest_s: Mapping[str, float]) -> HealthCheck:
    """Whether some work has kept everybody waiting."""
    if not longest_s:
        return HealthCheck("steps", "ok", "none was long")
    name, took_s = max(longest_s.items(), key=lambda one: one[1])
    found = f"the longest since the start took {duration(took_s)}: {name}"
    if took_s < STEP_LONG_S:
        return HealthCheck("steps", "ok", found)
    instead = "see the log for how often; a machine that is busy with other things does this too"
    return HealthCheck("steps", "warning", found, instead)


def certificates(expires_s: Mapping[str, float], now_s: float) -> list[HealthCheck]:
    """Whether certificates, each with the Unix time at which it ends, are good for a while."""
    return [_certificate(file, ends_s - now_s) for file, ends_s in expires_s.items()]


def _certificate(file: str, left_s: float) -> HealthCheck:
    if left_s <= 0:
        found = f"{file} has ended {duration(-left_s)} ago"
        return HealthCheck("certificate", "error", found, RENEW)
    found = f"{file} ends in {left_s // DAY_S:,.0f} days"
    if left_s < CERTIFICATE_DAYS * DAY_S:
        return HealthCheck("certificate", "warning", found, RENEW)
    return HealthCheck("certificate", "ok", found)


def topics(described: Sequence[Mapping[str, Any]]) -> HealthCheck:
    """Whether all of them go on."""
    stopped = [one for one in described if one.get("stopped")]
    if not stopped:
        return HealthCheck("topics", "ok", f"{len(described):,}, and none has stopped")
    said = "; ".join(f"{one['name']}: {one['stopped']}" for one in stopped)
    return HealthCheck("topics", "error", said, "mend the cause, then: sow reload")


def readiness(status: int, said: str) -> list[HealthCheck]:
    """Whether messages are taken, and the last error of the log."""
    state, error, what = said.partition(f"; {LAST_ERROR}")
    if status == 200:
        found = [HealthCheck("ready", "ok", state)]
    else:
        found = [
            HealthCheck("ready", "error", state, "wait if it is replaying; else do what it says")
        ]
    if not error:
        return [*found, HealthCheck("log", "ok", "no error since the start")]
    instead = "read the log around that time; it is told until the server is started again"
    return [*found, HealthCheck("log", "warning", f"{LAST_ERROR}{what}", instead)]


def answers(spread: Percentiles) -> HealthCheck:
    """How long the server takes to answer; for whoever reads to judge, as the way there counts."""
    found = f"median {duration(spread.median_s)}, p99 {duration(spread.p99_s)}"
    return HealthCheck("answers", "ok", found)
