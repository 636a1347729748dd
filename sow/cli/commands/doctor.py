"""`sow doctor`: checks a machine or a running server, and suggests what to do.

By default it checks the configuration and the machine that would run it; with --server a running
server. It changes nothing, except that it writes a small file beside the data to time the disk and
removes it.
"""

import os
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sow.cli import health_checks
from sow.cli.connecting import connected, server_command
from sow.cli.health_checks import HealthCheck
from sow.cli.measuring import Percentiles, answered, scraped
from sow.cli.options import run, variables_option
from sow.cli.output import printable, show
from sow.cli.tables import terminal_console
from sow.client import Client
from sow.client.http import taken, understood
from sow.config import load
from sow.core.definitions import Configuration, Limits
from sow.core.humanize import counted
from sow.core.inner_loops import INNER_LOOPS
from sow.core.media_types import PLAIN_TEXT
from sow.core.security_definitions import Tls
from sow.errors import ConfigError
from sow.store.environment import space

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
@click.option("--server", "online", is_flag=True, help="Check the server at --url instead.")
@click.pass_context
def doctor(
    ctx: click.Context,
    config: str,
    variables: dict[str, str],
    data_dir: str | None,
    online: bool,
) -> None:
    """Check a machine or a server, and suggest what to do.

    Without --server it reads CONFIG (config.xml) and checks this machine. Exit code 1 means an
    error; warnings alone exit with 0.
    """
    if not online and ctx.get_parameter_source("url") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--url names a server to check; add --server")
    found = run(_of_server()) if online else list(_of_machine(config, variables, data_dir))
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
    yield health_checks.inner_loops(INNER_LOOPS.language)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = configuration.limits if configuration is not None else Limits()
    may_have = None if hard == resource.RLIM_INFINITY else hard
    yield health_checks.files(may_have, limits.connections_max)


def _of_certificates(tls: Tls | None) -> Iterator[HealthCheck]:
    if tls is None:
        return
    # Imported here: a configuration without TLS does not need its library.
    from sow.server.http.tls import certificates

    try:
        found = {file: one.expires_s for file, one in certificates(tls).items()}
    except ConfigError as error:
        yield HealthCheck("certificate", "error", str(error))
    else:
        yield from health_checks.certificates(found, time.time())


def _of_directory(directory: Path, configuration: Configuration | None) -> Iterator[HealthCheck]:
    there = next(one for one in (directory, *directory.absolute().parents) if one.is_dir())
    free_bytes, reserve_bytes = space(there)
    yield health_checks.disk(
        free_bytes, shutil.disk_usage(there).total, reserve_bytes, str(directory)
    )
    files = [one.stat() for one in directory.rglob("*") if one.is_file()]
    if configuration is not None:
        journal = directory / configuration.journal.directory
        taken = sum(one.stat().st_blocks * 512 for one in journal.rglob("*") if one.is_file())
        yield health_checks.retention(configuration.journal.retention_bytes, taken, free_bytes)
    if directory.is_dir() and stat.S_IMODE(directory.stat().st_mode) & 0o077:
        yield HealthCheck(
            "directory",
            "warning",
            f"other users can look into {directory}",
            f"chmod 700 {directory}",
        )
    newest_s = max((one.st_mtime for one in files), default=0.0)
    yield health_checks.clock(newest_s - time.time())
    try:
        yield health_checks.fsync(_flushed(there))
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
        found.append(health_checks.answers(await answered(client, ANSWERS)))
        if found[0].level == "error":
            # The other requests may wait until the server is ready.
            return found
        topics = await client.topics()
        sessions = await client.http.json("GET", "/v1/sessions", kind=list)
        status = await client.http.json("GET", "/v1/status")
        with understood(client.url):
            found.append(health_checks.nodes(status["nodes"]))
            found += [health_checks.topics(topics), health_checks.sessions(sessions)]
        found += await _figures(client)
        return found


async def _readiness(client: Client) -> list[HealthCheck]:
    request = client.http.request("GET", "/readyz", accept=PLAIN_TEXT, any_status=True)
    async with request as answer:
        text = (await taken(client.http.url, answer)).decode(errors="replace")
    return health_checks.readiness(answer.status, text.strip())


async def _figures(client: Client) -> list[HealthCheck]:
    known = await scraped(client)
    if known is None:
        found = "the metrics are for administrators"
        instead = "use an administrator's token: --token TOKEN"
        return [HealthCheck("metrics", "warning", found, instead)]

    def figure(name: str) -> float:
        return known.get(name, {}).get("", 0.0)

    return [
        health_checks.memory(figure("sow_memory_bytes"), figure("sow_memory_limit_bytes")),
        health_checks.groups(
            figure("sow_group_memory_bytes"), figure("sow_group_memory_limit_bytes")
        ),
        health_checks.queue_memory(
            figure("sow_queue_memory_bytes"), figure("sow_queue_memory_limit_bytes")
        ),
        health_checks.connections(figure("sow_connections"), figure("sow_connections_max")),
        health_checks.clock(figure("sow_clock_ahead_seconds")),
        *[
            health_checks.inner_loops(language)
            for language in known.get("sow_build_info", {})
            if language in ("C", "Python")  # an older server has its version alone
        ],
        health_checks.steps(known.get("sow_step_longest_seconds", {})),
        *health_checks.certificates(known.get("sow_certificate_expiry_seconds", {}), time.time()),
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
