"""`sow init`: writes a first config.xml, from a data file or from a few questions.

It validates the configuration as `sow check` does, and overwrites nothing. `sow serve --topic`
serves the same without a file: a server that was started so can continue with one.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

import click

from sow.cli.options import command
from sow.cli.output import as_json, show
from sow.cli.schema_inference import Sample, sample
from sow.config import loads
from sow.core.humanize import counted
from sow.core.origin_parsing import URL_DEFAULT
from sow.core.paths import parse_path
from sow.errors import ClientError, shown

LISTEN = URL_DEFAULT.partition("://")[2]
DATA_DIRECTORY = "data"
"""The default data directory: beside the file, or in the working directory of `sow serve`."""
COPY = "{}-C"
"""The name of the conflated topic of a topic, as in the shipped config.xml."""


@dataclass(frozen=True, slots=True)
class StarterTopic:
    """A json topic with these paths as its key, and fields of these types by path.

    `interval` is that of its conflated topic; "" means none.
    """

    name: str
    keys: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    interval: str = ""


def named_topic(text: str) -> StarterTopic:
    """The topic that ``quotes:/symbol`` or ``orders:/desk,/id`` describes; ``notes`` is a topic
    without a Key. Raises ClientError, and BadFilter for an invalid path."""
    name, colon, key = text.partition(":/")
    if not name or (":" in name and not colon) or name.startswith("/:"):
        raise ClientError(f"{shown(text)} is no topic; write its name and key, as quotes:/symbol")
    keys = [str(parse_path(one)) for one in f"/{key}".split(",")] if colon else []
    return StarterTopic(name, keys)


def document(topics: Sequence[StarterTopic], listen: str = LISTEN, name: str = "sow") -> str:
    """A config.xml with these topics, with comments where a user may want to change something."""
    sections = [_topic(one) for one in topics]
    sections += [_conflated(one) for one in topics if one.interval]
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- Check it with "sow check", run it with "sow serve", apply changes with "sow reload".
     All elements: docs/configuration.md. -->
<SOWConfig>
  <Name>{escape(name)}</Name>

  <!-- Without authentication a server listens on this machine only: docs/security.md. -->
  <Listen>{escape(listen)}</Listen>

  <!-- All data on disk; a relative path starts at this file. -->
  <DataDirectory>{DATA_DIRECTORY}</DataDirectory>

  <SOW>
{"".join(sections)}  </SOW>
</SOWConfig>
"""


def _topic(topic: StarterTopic) -> str:
    lines = ["<Topic>", f"  <Name>{escape(topic.name)}</Name>", "  <MessageType>json</MessageType>"]
    if topic.keys:
        lines.append("  <!-- Messages with equal values in these fields update one record. -->")
        lines += [f"  <Key>{escape(key)}</Key>" for key in topic.keys]
    else:
        lines.append("  <!-- No Key: the publisher names the record. -->")
    if topic.types:
        lines.append("  <!-- The server refuses values of another type. -->")
        lines.append("  <Schema>")
        lines += [
            f"    <Field type={quoteattr(kind)}>{escape(path)}</Field>"
            for path, kind in topic.types.items()
        ]
        lines.append("  </Schema>")
    return _indented([*lines, "</Topic>"])


def _conflated(topic: StarterTopic) -> str:
    return _indented(
        [
            "<!-- The newest state of each of these records, at most once an Interval. -->",
            "<ConflatedTopic>",
            f"  <Name>{escape(COPY.format(topic.name))}</Name>",
            "  <MessageType>json</MessageType>",
            f"  <UnderlyingTopic>{escape(topic.name)}</UnderlyingTopic>",
            f"  <Interval>{escape(topic.interval)}</Interval>",
            "</ConflatedTopic>",
        ]
    )


def _indented(lines: Sequence[str]) -> str:
    return "".join(f"    {line}\n" for line in lines)


NONE = "none"
INTERVAL = "1s"
"""The proposed interval of a conflated topic: how often a person looks."""


@command("sow init", "sow init orders.csv --yes", "sow init --topic quotes:/symbol --yes")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--topic",
    "named",
    multiple=True,
    metavar="NAME:KEY",
    help="A topic, such as quotes:/symbol; repeated. With FILE: the name of its topic.",
)
@click.option(
    "--conflated",
    "interval",
    metavar="1s",
    help=f"A conflated topic of each, with at most one update of a record per interval; or {NONE}.",
)
@click.option("--config", default="config.xml", show_default=True, metavar="PATH",
              type=click.Path(), help="The file to write.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Accept all proposals without questions.")
def init(
    file: str | None, named: tuple[str, ...], interval: str | None, config: str, yes: bool
) -> None:
    """Write a first config.xml.

    Its topic comes from FILE (Parquet, CSV or JSON lines), with the key and types that the data
    suggests, or from --topic, or from your answers. An existing file is kept.
    """
    _refuse_there(config)
    prompts = not yes and not as_json() and sys.stdin.isatty()
    topics = _topics(file, named, prompts)
    interval = interval or (_prompt_interval() if prompts else INTERVAL)
    if interval != NONE:
        topics = [StarterTopic(one.name, one.keys, one.types, interval) for one in topics]
    text = document(topics)
    _check(text)
    _write(config, text)
    names = [one.name for one in topics]
    written = f"{config}: written ({', '.join(names)})"
    show({"config": config, "topics": names}, f"{written}\n{_next(config, file, topics[0])}")


def _refuse_there(config: str) -> None:
    if os.path.lexists(config):
        raise ClientError(f"{config} exists, and is not overwritten; name another by --config")


def _topics(file: str | None, named: Sequence[str], prompts: bool) -> list[StarterTopic]:
    if file is not None:
        if len(named) > 1:
            raise click.UsageError("FILE makes one topic; give --topic once, or leave FILE out")
        return [_of_file(sample(file), named_topic(named[0]) if named else None, prompts)]
    if named:
        return [*map(named_topic, named)]
    if not prompts:
        raise click.UsageError(
            "there is no terminal for questions; name a FILE of data, or --topic quotes:/symbol"
        )
    name = click.prompt("Name of the topic", default="orders", err=True)
    key = click.prompt("Key field of a record", default="/id", err=True)
    return [named_topic(f"{name}:{key if key.startswith('/') else f'/{key}'}")]


def _of_file(found: Sample, named: StarterTopic | None, prompts: bool) -> StarterTopic:
    """The topic of a file, as named by the user or proposed."""
    name = named.name if named is not None else found.name
    keys = list(named.keys) if named is not None and named.keys else found.keys
    if prompts and (named is None or not named.keys):
        proposed = ",".join(keys) or None
        click.echo(f"{counted(found.rows, 'row')} with {', '.join(found.types)}", err=True)
        key = click.prompt("Key fields of a record", default=proposed, err=True)
        keys = list(named_topic(f"x:/{key.removeprefix('/')}").keys)
    if not keys:
        raise ClientError(f"no column identifies records; name the key: --topic {name}:/FIELD")
    if strange := [key for key in keys if key not in found.types]:
        known = ", ".join(found.types)
        raise ClientError(f"the file has no column {shown(strange[0])} for the key; it has {known}")
    return StarterTopic(name, keys, found.types)


def _prompt_interval() -> str:
    answer: str = click.prompt(
        f"Interval of its conflated topic, one update of a record each (or {NONE})",
        default=INTERVAL,
        err=True,
    )
    return answer


def _check(text: str) -> None:
    """Refuse a configuration that would not start a server, with the messages of `sow check`."""
    errors = [found for found in loads(text).findings if found.severity == "error"]
    if errors:
        raise ClientError("; ".join(one.advice for one in errors))


def _write(config: str, text: str) -> None:
    """Write the whole file, or none; never overwrite a file created meanwhile."""
    try:
        with open(config, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        _refuse_there(config)
        raise


def _next(config: str, file: str | None, topic: StarterTopic) -> str:
    """The next commands to run."""
    serve = "sow serve" if config == "config.xml" else f"sow serve {config}"
    steps = [serve, f"sow publish {topic.name} {file or 'FILE'}"]
    if file is not None and file.endswith(".csv"):
        steps[1] += " --format csv"
    if file is not None and file.endswith(".parquet"):
        steps[1] = f"sow replay {file} --topic {topic.name} --speed max"
    steps.append(f"sow watch {COPY.format(topic.name) if topic.interval else topic.name}")
    return "next:\n" + "\n".join(f"  {step}" for step in steps)
