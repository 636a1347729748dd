"""`sow init`: writes a first config.xml, from a data file or from a few questions.

It validates the configuration as `sow check` does, and overwrites nothing. `sow serve --topic`
serves the same without a file: a server that was started so can continue with one.

A data file gives the types of its fields and a key. Arrow reads the first rows of Parquet and JSON
lines. A type is suggested if every value of the sample has it; a field with several types, or none,
stays undeclared. CSV is read as the server reads it (`sow.messages.csv_rows`), so that each type
accepts every cell of the sample. The key is a guess for the user to confirm: a column that
identifies rows, or whose name suggests it.
"""

import codecs
import contextlib
import csv
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import click
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq

from sow.cli.options import command
from sow.cli.output import as_json, show
from sow.config import loads
from sow.core.addresses import URL_DEFAULT
from sow.core.humanize import counted
from sow.core.paths import Path, parse_path
from sow.errors import ClientError, shown
from sow.messages.csv_rows import steps_of
from sow.messages.declared import VALUE_TYPES, from_text

SAMPLE_BYTES = 16 * 1024**2
"""Bytes of a file to sample: a second of work, and enough rows to recognize a key."""
SAMPLE_ROWS = 100_000
"""The same for Parquet, whose rows are compressed."""
CALLED_AS_KEY = re.compile(r"(^|_)(id|key|symbol|sym|isin|ticker|code|uuid)$", re.IGNORECASE)
"""Usual names of identifying columns."""

OTHER_COMMAS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""Delimiters of other programs, such as spreadsheets in many countries."""


class Sample(NamedTuple):
    """The inferred topic: its `name`, the type of each field by path, and a key."""

    name: str
    types: dict[str, str]
    keys: list[str]
    rows: int


def sample(path: str) -> Sample:
    """Sample a file; raises ClientError if it holds no usable data."""
    read = _reader(path)
    try:
        found, rows = read(path)
    except (pa.ArrowException, csv.Error, OSError, UnicodeDecodeError) as error:
        problem = str(error).splitlines()[0][:200]
        raise ClientError(f"{path} cannot be read as {_kind(path)}: {problem}") from None
    if not found:
        raise ClientError(f"{path} has no columns that could be fields of a topic")
    columns = {name: column for name, (column, _) in found.items()}
    types = {name: kind for name, (_, kind) in found.items() if kind is not None}
    return Sample(_topic_name(path), types, _key(columns, types), rows)


def _kind(path: str) -> str:
    return {".csv": "CSV", ".parquet": "Parquet"}.get(PurePath(path).suffix.lower(), "JSON lines")


Columns = dict[str, tuple[Any, str | None]]
"""The values of each field by its path, and its suggested type."""


def _reader(path: str) -> Callable[[str], tuple[Columns, int]]:
    readers = {".parquet": _parquet, ".csv": _csv}
    readers |= dict.fromkeys((".ndjson", ".jsonl", ".json"), _json)
    suffix = PurePath(path).suffix.lower()
    if suffix not in readers:
        raise ClientError(
            f"{shown(path)} is not one of {', '.join(readers)}; name the topic instead: "
            "sow init --topic quotes:/symbol"
        )
    return readers[suffix]


def _parquet(path: str) -> tuple[Columns, int]:
    rows = pq.ParquetFile(path).iter_batches(SAMPLE_ROWS)
    first = next(rows, None)
    return _of_table(pa.table({}) if first is None else pa.Table.from_batches([first]))


def _json(path: str) -> tuple[Columns, int]:
    options = pyarrow.json.ReadOptions(block_size=SAMPLE_BYTES)
    text = _beginning(path).removeprefix(codecs.BOM_UTF8)
    return _of_table(pyarrow.json.read_json(io.BytesIO(text), read_options=options))


def _of_table(table: Any) -> tuple[Columns, int]:
    return {name: (column, _type(column)) for name, column in _columns(table)}, table.num_rows


def _csv(path: str) -> tuple[Columns, int]:
    try:
        text = _beginning(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ClientError(
            f"{path} is not UTF-8; save it as UTF-8 (in a spreadsheet: CSV UTF-8)"
        ) from None
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    names = next(rows, [])
    if not names and text.strip():
        raise ClientError(
            f"{path} begins with a blank line; its first line has to name the columns"
        )
    if len(names) == 1 and (apart := next((one for one in OTHER_COMMAS if one in names[0]), "")):
        raise ClientError(
            f"{path} has one column, {shown(names[0])}; if {OTHER_COMMAS[apart]} stand between its "
            "cells, save it with commas"
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ClientError(f"{path} has the column {shown(twice)} twice; rename one")
    read: list[list[str]] = []
    try:
        read += (row for row in rows if row)
    except csv.Error:
        if len(text.encode()) < SAMPLE_BYTES // 2:
            raise
        # The sample may end within a row of several lines.
    if long := next((row for row in read if len(row) > len(names)), None):
        raise ClientError(
            f"{path} has a row of {len(long)} cells, and {len(names)} columns; it begins with "
            f"{shown(long[0])}"
        )
    found: Columns = {}
    for at, name in enumerate(names):
        cells = [row[at] if at < len(row) else "" for row in read]
        path_text = _path_of(steps_of(name))
        if path_text is not None:
            column = pa.array([cell or None for cell in cells], pa.string())
            found[path_text] = (column, _type_of_cells([cell for cell in cells if cell]))
    return found, len(read)


def _type_of_cells(cells: Sequence[str]) -> str | None:
    """The first type that accepts every cell as the server reads it; None without cells."""
    if not cells:
        return None
    if all(cell in ("true", "false") for cell in cells):
        return "bool"
    if all(cell[0] in "[{" and _is_json(cell) for cell in cells):
        return "json"
    for name in ("int64", "float64", "date", "timestamp"):
        kind = VALUE_TYPES[name]
        if all(from_text(cell, kind) is not None for cell in cells):
            return name
    return "string"


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _beginning(path: str) -> bytes:
    """The first complete lines of a file."""
    with open(path, "rb") as file:
        text = file.read(SAMPLE_BYTES)
        return text if len(text) == os.fstat(file.fileno()).st_size else text[: text.rfind(b"\n")]


def _columns(table: Any) -> Iterator[tuple[str, Any]]:
    """Each field by its path; fields of nested objects count one by one."""
    for name in table.schema.names:
        yield from _within((name,), table.column(name).combine_chunks())


def _within(steps: tuple[str, ...], column: Any) -> Iterator[tuple[str, Any]]:
    if pa.types.is_struct(column.type):
        for field in column.type:
            yield from _within((*steps, field.name), pc.struct_field(column, field.name))
        return
    # The name of a column may be a path itself.
    text = _path_of(steps_of(steps[0]) if len(steps) == 1 else steps)
    if text is not None:
        yield text, column


def _path_of(steps: tuple[str, ...]) -> str | None:
    """The path of a field as text; None if no path leads to it."""
    with contextlib.suppress(ClientError):
        path = parse_path(str(Path(steps)))
        if path.index is None and path.steps == steps:
            return str(path)
    return None


def _type(column: Any) -> str | None:
    """The type that a Schema may declare for a column; None if there is none."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return None if pa.types.is_uint64(kind) else "int64"
    if pa.types.is_floating(kind):
        return "float64"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})" if kind.scale >= 0 else None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_date(kind):
        return "date"
    if pa.types.is_timestamp(kind):
        return "timestamp" if _is_of_microseconds(column) else "string"
    if pa.types.is_nested(kind):
        return "json"
    return None


def _is_of_microseconds(column: Any) -> bool:
    try:
        column.cast(pa.timestamp("us", column.type.tz))
    except pa.ArrowInvalid:
        return False
    return True


def _key(columns: dict[str, Any], types: dict[str, str]) -> list[str]:
    """The column that identifies rows, or is named like one; the first of the best."""

    def worth(name: str) -> tuple[bool, bool]:
        return bool(CALLED_AS_KEY.search(name.rpartition("/")[2])), _reports_apart(columns[name])

    fit = [name for name in columns if types.get(name) in ("int64", "string")]
    fit = [name for name in fit if not columns[name].null_count and any(worth(name))]
    # A column named like a key need not identify rows: they may be updates of the same records.
    return [max(fit, key=worth)] if fit else []


def _reports_apart(column: Any) -> bool:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return len(column) > 1 and bool(pc.count_distinct(column).as_py() == len(column))


def _topic_name(path: str) -> str:
    """The name of the file as a valid topic name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", PurePath(path).stem).strip("-") or "topic"


LISTEN = URL_DEFAULT.partition("://")[2]
ORIGIN = "http://localhost:5173"
"""As an example: where a development server of pages is."""
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


def document(
    topics: Sequence[StarterTopic],
    listen: str = LISTEN,
    name: str = "sow",
    origins: Sequence[str] = (),
) -> str:
    """A config.xml with these topics, which pages of these origins may use, with comments where a
    user may want to change something."""
    listed = escape(", ".join(origins or [ORIGIN]))
    security = f"<Security><AllowedOrigins>{listed}</AllowedOrigins></Security>"
    if not origins:
        security = f"<!-- For pages of your own: {security} -->"
    sections = [_topic(one) for one in topics]
    sections += [_conflated(one) for one in topics if one.interval]
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- Check it with "sow check", run it with "sow serve", apply changes with "sow reload".
     All elements: docs/configuration.md. -->
<SOWConfig>
  <Name>{escape(name)}</Name>

  <!-- Without authentication a server listens on this machine only: docs/security.md. -->
  <Listen>{escape(listen)}</Listen>

  {security}

  <!-- All data on disk; a relative path starts at this file. -->
  <DataDirectory>{DATA_DIRECTORY}</DataDirectory>

  <SOW>
{"".join(sections)}  </SOW>
</SOWConfig>
"""


NOTHING_CONFIGURED = "<SOWConfig><Name>sow</Name></SOWConfig>"
"""A server of another one's records, without a file: everything has its default."""


def starter_of(
    config: str,
    is_given: bool,
    named: Sequence[str],
    has_server: bool,
    origins: Sequence[str] = (),
) -> str:
    """The configuration of a server without a file, empty where it has one: that of the topics of
    --topic and the pages of --origin, or, where it `has_server` above, every default."""
    if named:
        if is_given:
            raise click.UsageError("--topic replaces CONFIG; add the topic to the file")
        return document([*map(named_topic, named)], origins=origins)
    if origins:
        raise click.UsageError("--origin goes with --topic; of CONFIG <AllowedOrigins> says it")
    is_absent = not is_given and not os.path.exists(config)
    return NOTHING_CONFIGURED if has_server and is_absent else ""


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
