"""`sow tutorial`: the first five minutes with SOW, in a terminal and with real commands.

A scratch server runs in a process of its own, with an empty directory that is removed at the end.
Each step says what comes, shows a command as its user would type it, and runs it: what stands there
afterwards is what the command writes today. A terminal waits for Enter between steps.

It has no other server, credential or file of the user's: commands see the address of the scratch
server, whatever the environment says.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click
import orjson

from sow.cli.options import command
from sow.cli.output import as_json, show
from sow.errors import ClientError

CONFIG = """<SOWConfig><Name>tutorial</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic><Interval>1s</Interval></ConflatedTopic>
</SOW></SOWConfig>
"""
PYTHON = (sys.executable, "-P", "-m", "sow")
"""The `sow` that this is, whatever the path has."""


class Step(NamedTuple):
    """A command, what it shows, and what it reads."""

    says: str
    words: tuple[str, ...]
    reads: str = ""

    @property
    def typed(self) -> str:
        """The command as a user would type it."""
        shown = [word if word.replace("-", "").isalnum() else f'"{word}"' for word in self.words]
        line = " ".join(["sow", *shown])
        lines = self.reads.rstrip("\n").split("\n")
        return f"{line} << END\n" + "\n".join([*lines, "END"]) if self.reads else line


STEPS = (
    Step(
        "A topic keeps the newest record of each key. orders has the key /id. Publish three:",
        ("publish", "orders"),
        '{"id":1,"symbol":"IBM","qty":100,"px":101.5}\n{"id":2,"symbol":"ACME","qty":50,"px":12}\n'
        '{"id":3,"symbol":"IBM","qty":7,"px":101.7}\n',
    ),
    Step(
        "They are durable now. A query returns them as they are at one moment:", ("query", "orders")
    ),
    Step(
        "A filter is an expression over fields, which are paths. There are orders and pages, too:",
        ("query", "orders", "--filter", "/symbol = 'IBM'", "--order-by", "/qty DESC"),
    ),
    Step(
        "Rows can be made of groups of records:",
        ("query", "orders", "--projection", "/symbol, SUM(/qty) AS /qty", "--grouping", "/symbol"),
    ),
    Step(
        "A misspelt field is no error, but you hear of it:",
        ("query", "orders", "--filter", "/symbl = 'IBM'"),
    ),
    Step(
        "A message of the same key is an update; with --delta it has only what changes:",
        ("publish", "orders", "--delta"),
        '{"id":3,"qty":70}\n{"id":3,"qty":71}\n{"id":3,"qty":72}\n',
    ),
    Step(
        "A watch gets the records, then each update as it happens. Here it ends after three lines:",
        ("watch", "orders", "--format", "ndjson", "--count", "3"),
    ),
    Step(
        "The log has each change. From a bookmark on it is sent again, so nobody misses any:",
        ("watch", "orders", "--format", "ndjson", "--bookmark", "3", "--count", "3"),
    ),
    Step(
        "orders-C is conflated: at most one update of a record in a second. Three became one. Why?",
        ("why", "orders-C", "3"),
    ),
    Step("Every topic, with its size and what conflation saves:", ("topics",)),
    Step(
        "Records leave by a filter or key. At a terminal that is confirmed, unless you say --yes:",
        ("delete", "orders", "--filter", "/symbol = 'IBM'", "--yes"),
    ),
)
WHAT_NEXT = (
    "That was it; the scratch server and its data are gone. What next?",
    "  sow demo                a live market, and the console in a browser",
    "  sow init FILE           a configuration for data of your own",
    "  sow use NAME --address  give a server a name",
    "  sow COMMAND --help      options and examples of a command",
)


@command("sow tutorial", "sow tutorial --no-wait")
@click.option("--no-wait", is_flag=True, help="Do not wait for Enter between steps.")
def tutorial(no_wait: bool) -> None:
    """Show in five minutes what SOW does, with real commands on a scratch server.

    Nothing of yours is touched: the server has an empty directory, which is removed at the end. A
    terminal waits for Enter between steps; Ctrl-C ends.
    """
    waits = not no_wait and not as_json() and sys.stdin.isatty() and sys.stdout.isatty()
    with (
        tempfile.TemporaryDirectory(prefix="sow-tutorial-") as directory,
        scratch_server(Path(directory)) as url,
    ):
        report = [_run(number, step, url, waits) for number, step in enumerate(STEPS, 1)]
    show({"steps": report}, WHAT_NEXT)


def _run(number: int, step: Step, url: str, waits: bool) -> dict[str, object]:
    """Show and run a step; raises ClientError if its command fails."""
    if not as_json():
        click.secho(f"\n{number}/{len(STEPS)}  {step.says}", bold=True)
        click.echo("$ " + step.typed)
    if waits:
        click.prompt("Enter", default="", show_default=False, prompt_suffix=" ", err=True)
    done = subprocess.run(
        [*PYTHON, *step.words],
        input=step.reads.encode() if step.reads else b"",
        env=environment(url, os.environ),
        stdout=subprocess.PIPE if as_json() else None,
        stderr=subprocess.PIPE if as_json() else None,
        check=False,
    )
    if done.returncode:
        raise ClientError(f"step {number} has failed: {step.typed.splitlines()[0]}")
    return {"command": step.typed, "output": (done.stdout or b"").decode(errors="replace")}


def environment(url: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of commands: no address and no credential but of the scratch server."""
    kept = {name: value for name, value in inherited.items() if not name.startswith("SOW_")}
    return {**kept, "SOW_URL": url}


@contextmanager
def scratch_server(directory: Path) -> Iterator[str]:
    """A server in a process of its own while this is open; gives its address."""
    (directory / "config.xml").write_text(CONFIG)
    words = ("serve", str(directory / "config.xml"), "--port", "0", "--json", "--until-input-ends")
    process = subprocess.Popen(
        [*PYTHON, *words, "--data-dir", str(directory / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment("", os.environ),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise ClientError("the scratch server has not started; sow doctor says what is wrong")
        yield str(orjson.loads(line)["url"])
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()
