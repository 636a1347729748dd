"""`sow doctor`: checks a machine or a running server, and suggests what to do.

By default it checks the configuration and the machine that would run it; with --server a running
server. It changes nothing, except that it writes a small file beside the data to time the disk and
removes it.

A check (`disk_check` and so on) is a pure function: it takes figures and returns a finding, good
ones too, to show what was checked. The command collects the figures.
"""

import os
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sow.cli.connecting import connected, server_command
from sow.cli.measuring import Percentiles, answered, scraped
from sow.cli.options import run, variables_option
from sow.cli.output import printable, show
from sow.cli.tables import terminal_console
from sow.client import Client
from sow.client.http import taken, understood
from sow.config import load
from sow.core.definitions import Configuration, Limits
from sow.core.humanize import counted, duration, size
from sow.core.inner_loops import INNER_LOOPS
from sow.core.media_types import PLAIN_TEXT
from sow.core.security_definitions import Tls
from sow.errors import ConfigError
from sow.store.environment import space

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


def disk_check(
    free_bytes: int, total_bytes: int, reserve_bytes: int, directory: str
) -> HealthCheck:
    """Whether the disk has room for messages."""
    found = f"{size(free_bytes)} of {size(total_bytes)} free for {directory}"
    if free_bytes <= reserve_bytes:
        found += f", which is the reserve for deletes ({size(reserve_bytes)})"
        instead = "free some space: publishes are refused until there is more"
        return HealthCheck("disk", "error", found, instead)
    has_room = free_bytes >= (1 - NEAR) * total_bytes
    return _judged("disk", found, has_room, "free some space, or move the data directory")


def retention_check(kept_bytes: int, used_bytes: int, free_bytes: int) -> HealthCheck:
    """Whether the log may grow to its limit."""
    found = f"the log keeps up to {size(kept_bytes)}, and takes {size(used_bytes)} now"
    has_room = kept_bytes - used_bytes <= free_bytes
    found += "" if has_room else f"; the disk has {size(free_bytes)} left"
    return _judged("retention", found, has_room, "set a smaller RetentionSize, or free some space")


def fsync_check(spread: Percentiles) -> HealthCheck:
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


def inner_loops_check(language: str) -> HealthCheck:
    """Whether the loops of every publish run in C."""
    faster = "" if language == "C" else "with a C compiler, install SOW again: publishes cost less"
    return HealthCheck("loops", "ok", f"inner loops in {language}", faster)


def files_check(hard: int | None, connections_max: int) -> HealthCheck:
    """Whether the process may open files for all connections; `hard` None: unlimited."""
    # Imported here: a check of another server needs none of a server's modules.
    from sow.server.boot.http_server import FILES_KEPT_MAX

    wanted = connections_max + FILES_KEPT_MAX
    limit = "unlimited" if hard is None else f"{hard:,}"
    return _judged(
        "files",
        f"{limit} files for {connections_max:,} connections",
        hard is None or hard >= wanted,
        f"raise ulimit -Hn to {wanted:,}, or lower Limits/Connections",
    )


def clock_check(ahead_s: float) -> HealthCheck:
    """Whether the machine's clock is behind the times of earlier writes."""
    is_behind = ahead_s > CLOCK_AHEAD_S
    return _judged(
        "clock",
        f"{duration(ahead_s)} behind earlier writes" if is_behind else "not behind earlier writes",
        not is_behind,
        "synchronize it with a time server; until then the server's time runs a tenth slower",
    )


def memory_check(used_bytes: float, limit_bytes: float | None) -> HealthCheck:
    """How much of their memory limit records use."""
    if limit_bytes is None or limit_bytes == float("inf"):
        found = f"records take {size(used_bytes)}, without a limit"
        return HealthCheck("memory", "ok", found, "set Limits/Memory to refuse publishes beyond it")
    found = f"records take {size(used_bytes)} of {size(limit_bytes)}"
    level: Level = "error" if used_bytes >= limit_bytes else "warning"
    has_room = used_bytes < NEAR * limit_bytes
    return _judged("memory", found, has_room, "raise Limits/Memory, or delete records", level)


def groups_check(used_bytes: float, limit_bytes: float) -> HealthCheck:
    """How much of their memory limit groups use that clients ask for."""
    found = f"clients' groups take {size(used_bytes)} of {size(limit_bytes)}"
    instead = "raise Limits/GroupMemory, or configure a View, which all can follow"
    return _judged("groups", found, used_bytes < NEAR * limit_bytes or not used_bytes, instead)


def queue_memory_check(used_bytes: float, limit_bytes: float) -> HealthCheck:
    """How much of the bound what waits for sessions uses."""
    found = f"{size(used_bytes)} of {size(limit_bytes)} wait for sessions"
    instead = "raise Limits/QueueMemory, or find who does not read: sow sessions"
    return _judged("queues", found, used_bytes < NEAR * limit_bytes, instead)


def connections_check(used: float, most: float) -> HealthCheck:
    """How many of the allowed connections are in use."""
    instead = "raise Limits/Connections, or list them: sow sessions"
    return _judged("connections", f"{used:,.0f} of {most:,.0f}", used < NEAR * most, instead)


def sessions_check(described: Sequence[Mapping[str, Any]]) -> HealthCheck:
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


def nodes_check(described: Sequence[Mapping[str, Any]]) -> HealthCheck:
    """Whether the nodes of a log that are at the same bookmark have the same state. A chained
    server has none."""
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
    away = [one["url"] for one in described if one["pid"] is None]
    found = f"{len(described) - len(away):,} of {len(described):,} heard, "
    if away:
        return HealthCheck("nodes", "warning", found + f"not {', '.join(away)}", "start them again")
    if len(hashes) > 1:
        found += "at different bookmarks"
        return HealthCheck("nodes", "ok", found, "to compare them, ask when fewer changes come")
    return HealthCheck("nodes", "ok", found + "and the same state")


def actions_check(
    done: Mapping[str, float], failed: Mapping[str, float], left_out: Mapping[str, float]
) -> list[HealthCheck]:
    """Whether runs of actions, by their names, have failed or were left out since the start."""
    if not done:
        return []
    wrong = {name: failed.get(name, 0.0) + left_out.get(name, 0.0) for name in done}
    count = sum(wrong.values())
    found = f"{sum(done.values()):,.0f} runs were done, {count:,.0f} failed or were left out"
    if count:
        found += f", most of {max(wrong, key=wrong.__getitem__)}"
    instead = "see why: sow query /sow/audit --filter \"/deed = 'action' AND /outcome != 'done'\""
    return [_judged("actions", found, not count, instead)]


def steps_check(longest_s: Mapping[str, float]) -> HealthCheck:
    """Whether a step has blocked the loop for long."""
    if not longest_s:
        return HealthCheck("steps", "ok", "no long step")
    name, took_s = max(longest_s.items(), key=lambda one: one[1])
    found = f"the longest since the start took {duration(took_s)}: {name}"
    instead = "see the log for how often; a machine busy with other work causes this too"
    return _judged("steps", found, took_s < STEP_LONG_S, instead)


def certificates_check(expires_s: Mapping[str, float], now_s: float) -> list[HealthCheck]:
    """Whether certificates, each with the Unix time at which it expires, stay valid for a while."""
    return [_certificate(file, ends_s - now_s) for file, ends_s in expires_s.items()]


def _certificate(file: str, left_s: float) -> HealthCheck:
    if left_s <= 0:
        found = f"{file} has ended {duration(-left_s)} ago"
        return HealthCheck("certificate", "error", found, RENEW)
    found = f"{file} ends in {left_s // DAY_S:,.0f} days"
    return _judged("certificate", found, left_s >= CERTIFICATE_DAYS * DAY_S, RENEW)


def topics_check(described: Sequence[Mapping[str, Any]]) -> HealthCheck:
    """Whether every topic works."""
    stopped = [one for one in described if one.get("stopped")]
    if not stopped:
        return HealthCheck("topics", "ok", f"{len(described):,}, and none has stopped")
    found = "; ".join(f"{one['name']}: {one['stopped']}" for one in stopped)
    return HealthCheck("topics", "error", found, "fix the cause, then: sow reload")


def readiness_check(status: int, answer: str) -> list[HealthCheck]:
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


def answers_check(spread: Percentiles) -> HealthCheck:
    """The response time of the server; the reader judges it, because it includes the network."""
    found = f"median {duration(spread.median_s)}, p99 {duration(spread.p99_s)}"
    return HealthCheck("answers", "ok", found)


FLUSHES = 20
"""Enough flushes of a small file to tell a slow disk from a fast one, within a second."""
FLUSHED_BYTES = 4096
"""A disk block: the size of a single publish."""
ANSWERS = 20
"""Requests that measure a server."""
STYLES = {"ok": "green", "warning": "bold yellow", "error": "bold red"}


@server_command("sow doctor", "sow doctor desk.xml", "sow doctor --server")
@click.argument("config", default="config.xml", type=click.Path())
@variables_option
@click.option("--data-dir", metavar="D", type=click.Path(), help="Instead of DataDirectory.")
@click.option("--server", "online", is_flag=True, help="Check a server instead, as --url does.")
@click.pass_context
def doctor(
    ctx: click.Context, config: str, variables: dict[str, str], data_dir: str | None, online: bool
) -> None:
    """Check a machine or a server, and suggest what to do.

    Without --server or --url it reads CONFIG (config.xml) and checks this machine. Exit code 1
    means an error; warnings alone exit with 0.
    """
    # Who names a server means it; what the environment says is for other commands, too.
    is_named = ctx.get_parameter_source("url") is ParameterSource.COMMANDLINE
    found = (
        run(_of_server()) if online or is_named else list(_of_machine(config, variables, data_dir))
    )
    show([asdict(one) for one in found], lambda: _write(found, terminal_console()))
    ctx.exit(1 if any(one.level == "error" for one in found) else 0)


# This machine.


def _of_machine(
    config: str, variables: Mapping[str, str], data_dir: str | None
) -> Iterator[HealthCheck]:
    loaded = load(config, variables, os.environ).checked
    for finding in loaded.findings:
        found = f"{finding.place}: {finding.message}"
        yield HealthCheck("config", finding.severity, found, finding.instead)
    configuration = loaded.configuration
    if configuration is not None and not loaded.findings:
        yield HealthCheck(
            "config", "ok", f"{config}: {counted(len(configuration.topics), 'topic')}"
        )
    if configuration is not None:
        yield from _of_certificates(configuration.security.tls)
    directory = Path(data_dir or (configuration.data_directory if configuration else "data"))
    yield from _of_directory(directory, configuration)
    yield inner_loops_check(INNER_LOOPS.language)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = configuration.limits if configuration is not None else Limits()
    may_have = None if hard == resource.RLIM_INFINITY else hard
    yield files_check(may_have, limits.connections_max)


def _of_certificates(tls: Tls | None) -> Iterator[HealthCheck]:
    if tls is None:
        return
    # Imported here: a configuration without TLS does not need its library.
    from sow.server.http.connections import certificates

    try:
        found = {file: one.expires_s for file, one in certificates(tls).items()}
    except ConfigError as error:
        yield HealthCheck("certificate", "error", str(error))
    else:
        yield from certificates_check(found, time.time())


def _of_directory(directory: Path, configuration: Configuration | None) -> Iterator[HealthCheck]:
    there = next(one for one in (directory, *directory.absolute().parents) if one.is_dir())
    free_bytes, reserve_bytes = space(there)
    yield disk_check(free_bytes, shutil.disk_usage(there).total, reserve_bytes, str(directory))
    files = [one.stat() for one in directory.rglob("*") if one.is_file()]
    if configuration is not None:
        journal = directory / configuration.journal.directory
        taken = sum(one.stat().st_blocks * 512 for one in journal.rglob("*") if one.is_file())
        yield retention_check(configuration.journal.retention_bytes, taken, free_bytes)
    if directory.is_dir() and stat.S_IMODE(directory.stat().st_mode) & 0o077:
        yield HealthCheck(
            "directory",
            "warning",
            f"other users can look into {directory}",
            f"chmod 700 {directory}",
        )
    newest_s = max((one.st_mtime for one in files), default=0.0)
    yield clock_check(newest_s - time.time())
    try:
        yield fsync_check(_flushed(there))
    except OSError as error:
        wrong = f"{there} cannot be written: {error.strerror}"
        yield HealthCheck("fsync", "error", wrong, "run this as the user who runs the server")


def _flushed(directory: Path) -> Percentiles:
    """The time each small durable write takes."""
    taken_s = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(FLUSHES):
            file.write(os.urandom(FLUSHED_BYTES))
            began_s = time.perf_counter()
            os.fsync(file.fileno())
            taken_s.append(time.perf_counter() - began_s)
    return Percentiles.of(taken_s)


# A server.


async def _of_server() -> list[HealthCheck]:
    async with connected() as client:
        found = await _readiness(client)
        found.append(answers_check(await answered(client, ANSWERS)))
        if found[0].level == "error":
            # The other requests may wait until the server is ready.
            return found
        topics = await client.topics()
        sessions = await client.http.json("GET", "/v1/sessions", kind=list)
        status = await client.http.json("GET", "/v1/status")
        with understood(client.url):
            found.append(nodes_check(status["nodes"]))
            found += [topics_check(topics), sessions_check(sessions)]
        found += await _figures(client)
        return found


async def _readiness(client: Client) -> list[HealthCheck]:
    request = client.http.request("GET", "/readyz", accept=PLAIN_TEXT, any_status=True)
    async with request as answer:
        text = (await taken(client.http.url, answer)).decode(errors="replace")
    return readiness_check(answer.status, text.strip())


async def _figures(client: Client) -> list[HealthCheck]:
    known = await scraped(client)
    if known is None:
        found = "the metrics are for administrators"
        instead = "use an administrator's token: --token TOKEN"
        return [HealthCheck("metrics", "warning", found, instead)]

    def figure(name: str) -> float:
        return known.get(name, {}).get("", 0.0)

    return [
        memory_check(figure("sow_memory_bytes"), figure("sow_memory_limit_bytes")),
        groups_check(figure("sow_group_memory_bytes"), figure("sow_group_memory_limit_bytes")),
        queue_memory_check(
            figure("sow_queue_memory_bytes"), figure("sow_queue_memory_limit_bytes")
        ),
        connections_check(figure("sow_connections"), figure("sow_connections_max")),
        clock_check(figure("sow_clock_ahead_seconds")),
        *[
            inner_loops_check(language)
            for language in known.get("sow_build_info", {})
            if language in ("C", "Python")  # an older server has its version alone
        ],
        *actions_check(
            *(known.get(f"sow_action_{name}_total", {}) for name in ("runs", "failures", "dropped"))
        ),
        steps_check(known.get("sow_step_longest_seconds", {})),
        *certificates_check(known.get("sow_certificate_expiry_seconds", {}), time.time()),
    ]


def _write(found: list[HealthCheck], console: Console) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    for one in found:
        finding = Text(printable(one.found))
        if one.instead:
            finding.append(
                f"\n{printable(one.instead)}", style="italic" if one.level == "ok" else "bold"
            )
        table.add_row(Text(one.subject), Text(one.level, style=STYLES[one.level]), finding)
    console.print(table)
    wrong = sum(one.level == "error" for one in found)
    warnings = sum(one.level == "warning" for one in found)
    click.echo(f"{counted(wrong, 'error')}, {counted(warnings, 'warning')}", err=True)
