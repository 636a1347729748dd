"""Definitions of pipelines, which Spark runs, and the options of `format("sow")`.

The options are here because the data source reads them (`sow.spark.http`) and the rules of
`<Pipelines>` check their names and values before Spark is started. Plain data like the topics'
(`sow.core.definitions`); `sow.config` makes them and `sow.spark.pipelines` runs them.
"""

import os.path
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, get_args

from conflated_topics.user_texts import interval_us, parse_interval
from sow.core.comma_lists import comma_list
from sow.errors import ClientError

Use = Literal[
    "a read of records", "a read of the log", "a stream read", "a batch write", "a stream write"
]
RECORDS: Use = "a read of records"
LOG: Use = "a read of the log"
STREAM: Use = "a stream read"
WRITE: Use = "a batch write"
STREAM_WRITE: Use = "a stream write"
READS = (RECORDS, LOG, STREAM)
WRITES = (WRITE, STREAM_WRITE)
USES: dict[str, tuple[Use, ...]] = {
    "url": READS + WRITES,
    "topic": READS + WRITES,
    "token": READS + WRITES,
    "tokenFile": READS + WRITES,
    "ca": READS + WRITES,
    "filter": READS,
    "columns": READS,
    "asOf": (RECORDS,),
    "last": (RECORDS,),
    "projection": (RECORDS,),
    "grouping": (RECORDS,),
    "inferSchema": READS,
    "partitions": READS,
    "pushdown": (RECORDS, LOG),
    "startingBookmark": (LOG, STREAM),
    "endingBookmark": (LOG,),
    "maxRowsPerTrigger": (STREAM,),
    "readMode": (LOG, STREAM),
    "changeFormat": (LOG, STREAM),
    "failOnDataLoss": (LOG, STREAM),
    "consumer": (STREAM,),
    "closesWithin": (STREAM,),
    "mode": WRITES,
    "writer": WRITES,
    "allowEmpty": (WRITE,),
    "epoch": (WRITE,),
    "rerun": WRITES,
    "batchRows": WRITES,
    "deadLetterPath": WRITES,
    "keyColumn": WRITES,
    "opColumn": WRITES,
    "retryTimeout": READS + WRITES,
}
"""Every option, and where it means something."""
INSTEAD = {
    "endingBookmark": "a read of the log has it, with startingBookmark",
    "failOnDataLoss": "a read of the log has it, with startingBookmark",
    "changeFormat": "changes are read from the log, with startingBookmark",
    "asOf": "it is of one moment; leave out startingBookmark",
    "last": "the log has every event; leave out startingBookmark, or last",
    "projection": "rows of groups are of one moment; leave out startingBookmark, or group in Spark",
    "grouping": "rows of groups are of one moment; leave out startingBookmark, or group in Spark",
    "allowEmpty": "a batch write has it, with mode replace",
    "epoch": "a stream counts its own batches",
}


def plain(name: str) -> str:
    """A name as it is compared: `asOf`, `as_of` and `ASOF` are one."""
    return name.lower().replace("_", "")


NAMES = {plain(name): name for name in USES}
"""The options by their plain names."""
OF_OTHERS = {
    **dict.fromkeys(("subscribe", "dbtable"), "topic"),
    "kafka.bootstrap.servers": "url",
    "kafka.group.id": "consumer",
    **{f"starting{end}": "startingBookmark" for end in ("offsets", "version", "timestamp")},
    **{f"ending{end}": "endingBookmark" for end in ("offsets", "version", "timestamp")},
    **dict.fromkeys(("maxoffsetspertrigger", "maxfilespertrigger"), "maxRowsPerTrigger"),
    **dict.fromkeys(("minpartitions", "numpartitions"), "partitions"),
    **dict.fromkeys(("versionasof", "timestampasof"), "asOf"),
    "readchangefeed": "changeFormat",
    "txnappid": "writer",
    "txnversion": "epoch",
}
"""Plain names of the options of other connectors (Kafka's, JDBC's, Delta's), and what they are
called here."""


def called_here(name: str) -> str:
    """The name of an option, or what is called so elsewhere."""
    return OF_OTHERS.get(plain(name), name)


def misuse(name: str, use: Use) -> str:
    """Why an option means nothing in what it is used for, and where it does; empty if it means
    something."""
    if use in USES[name]:
        return ""
    instead = INSTEAD.get(name) or f"it belongs to {' or '.join(USES[name])}"
    return f"the option {name} means nothing in {use}: {instead}"


WriteMode = Literal["publish", "delta", "delete", "replace"]
NEVER_EMPTY = (
    "url", "ca", "tokenFile", "asOf", "projection", "grouping", "startingBookmark",
    "endingBookmark", "consumer",
    "writer", "deadLetterPath", "keyColumn", "opColumn",
)  # fmt: skip
"""Options that may not be empty; a `filter` without text lets every row through."""


def check_together(requested: Mapping[str, str], use: Use | None) -> None:
    """Refuse values that do not apply to their use, or need others."""
    if use == LOG and requested.get("startingBookmark") == "snapshot":
        raise ClientError(
            "startingBookmark snapshot is for streams, where the log follows the records; to read "
            "the records alone leave it out"
        )
    if use == LOG and requested.get("readMode") == "latest":
        raise ClientError(
            "readMode latest is for streams, which have batches; a read of the log has all changes"
        )
    if requested.get("changeFormat") == "cdc":
        _check_changes(requested)
    if {"projection", "grouping"} & requested.keys() and {
        "partitions",
        "pushdown",
    } & requested.keys():
        raise ClientError(
            "rows of groups are made by the server and come in one piece: leave out partitions and "
            "pushdown"
        )
    if "last" in requested and {"asOf", "projection", "grouping"} & requested.keys():
        raise ClientError(
            "last reads the events of records as they are now: leave out asOf, projection and "
            "grouping, and group in Spark"
        )
    replaces = requested.get("mode") == "replace"
    if use == STREAM_WRITE and replaces:
        raise ClientError(
            "mode replace is for batch writes: each batch of a stream would remove what those "
            "before it wrote; remove records by rows whose op is delete"
        )
    if use == WRITE and "allowEmpty" in requested and not replaces:
        raise ClientError("the option allowEmpty needs mode replace: remove it")


def _check_changes(requested: Mapping[str, str]) -> None:
    """Refuse what has no meaning for rows of changes."""
    if requested.get("readMode") == "latest":
        raise ClientError(
            "changeFormat cdc has every change, before and after, and readMode latest the last one "
            "of each key: leave one of them out"
        )
    if "closesWithin" in requested:
        raise ClientError(
            "closesWithin adds rows that are no changes: leave it out, or changeFormat cdc"
        )
    if requested.get("pushdown", "false").lower() == "true":
        raise ClientError(
            "pushdown would make an insert of a change that enters a filter of Spark's: leave it "
            "out with changeFormat cdc; the option filter does that knowingly"
        )


def _text(_name: str, text: str) -> str:
    return text


def _list(_name: str, text: str) -> tuple[str, ...]:
    return tuple(comma_list(text))


def _flag(name: str, text: str) -> bool:
    return _choice(name, text.lower(), "true", "false") == "true"


def _choice(name: str, text: str, *choices: str) -> str:
    if text not in choices:
        raise ClientError(f"{name} is {text!r}; it must be {' or '.join(choices)}")
    return text


def _count(name: str, text: str, minimum: int = 1) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= minimum):
        raise ClientError(f"{name} is {text!r}; it must be a whole number, {minimum} or more")
    return int(text)


RETRY_S_MAX = 10**9
"""Sockets wait no longer than some hundred years."""


def _seconds(name: str, text: str) -> float:
    """How long requests are retried: an interval, or a number of seconds."""
    try:
        seconds = interval_us(text) / 1e6 if text[-1:].isalpha() else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= RETRY_S_MAX:
        raise ClientError(f"{name} is {text!r}; write seconds, such as 60 or 1m")
    return seconds


def _interval_us(name: str, text: str) -> int:
    try:
        return parse_interval(text)
    except ValueError as error:
        raise ClientError(f"{name}: {error}") from None


OPTION_VALUES: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "retryTimeout": ("retry_s", _seconds),
    "columns": ("columns", _list),
    "asOf": ("as_of", _text),
    "last": ("last", _count),
    "inferSchema": ("infer_schema", _flag),
    "partitions": ("partitions", _count),
    "pushdown": ("pushdown", _flag),
    "startingBookmark": ("starting", _text),
    "endingBookmark": ("ending", _text),
    "maxRowsPerTrigger": ("rows_max", _count),
    "readMode": ("latest", lambda name, text: _choice(name, text, "changes", "latest") == "latest"),
    "changeFormat": ("cdc", lambda name, text: _choice(name, text, "rows", "cdc") == "cdc"),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "closesWithin": ("closes_within_us", _interval_us),
    "mode": ("mode", lambda name, text: _choice(name, text, *get_args(WriteMode))),
    "allowEmpty": ("allow_empty", _flag),
    "epoch": ("epoch", partial(_count, minimum=0)),
    "rerun": ("rerun", lambda name, text: _choice(name, text, "fail", "skip")),
    "batchRows": ("batch_rows", _count),
    "deadLetterPath": ("dead_letter_path", _text),
    "keyColumn": ("key_column", _text),
    "opColumn": ("op_column", _text),
}
"""The field of an option, and its parser; the others are texts under their own names."""


def option_value(name: str, text: str) -> Any:
    """The value of an option; raises ClientError for a text that is none."""
    if name in NEVER_EMPTY and not text.strip():
        raise ClientError(f"the option {name} is empty; give it a value, or leave it out")
    return OPTION_VALUES.get(name, (name, _text))[1](name, text)


def option_field(name: str) -> str:
    """The field of the data source that an option sets."""
    return OPTION_VALUES.get(name, (name, _text))[0]


PLACE_IN_LOG = re.compile(r"(?:[0-9a-f]{16}-)?[0-9]{1,19}(?:\.[0-9]{1,19})?|0\|1\|")
"""A bookmark, as the server reads it."""


def bookmark_problem(text: str, *words: str) -> str:
    """Why a text is no place in the log: neither one of `words`, nor bookmarks or times (the
    oldest counts); empty if it may be one."""
    if text in words or all(map(_is_place, text.split(","))):
        return ""
    named = "".join(f"{word}, " for word in words)
    return f"{text!r} is no place in the log; write {named}a bookmark, or a time such as {A_TIME}"


def _is_place(text: str) -> bool:
    """Whether it is a bookmark or a time."""
    if PLACE_IN_LOG.fullmatch(text):
        return True
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


A_TIME = "2026-11-21T09:30:00Z"
OutputMode = Literal["append", "update"]
NullKeys = Literal["refuse", "drop"]
FoldPolicy = Literal["latest", "merge", "sum", "min", "max", "first", "count"]

TimeUnit = Literal["s", "ms", "us", "ns"]
UNITS: tuple[TimeUnit, ...] = get_args(TimeUnit)

TRIGGER_US = 1_000_000
"""Spark's default trigger interval: about the shortest that it sustains with state."""
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
ARROW_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfs",
    "hdfs": "hdfs",
    "file": "file",
}
"""The schemes of places to which tasks write files of their own, and what Arrow calls them."""
FILES = ("parquet", "csv", "json")
KNOWN_FORMATS = (*FILES, "kafka", "sow", "rate")
"""The formats that have rules here; any other is Spark's, as it is written."""
SPARKS_FORMATS = (
    "orc", "text", "xml", "avro", "binaryFile", "jdbc", "console", "memory", "noop", "delta",
    "iceberg", "hudi", "rate-micro-batch", "socket", "protobuf",
)  # fmt: skip
"""Formats of Spark's and of packages that many use."""
UNTOLD = "***"
"""How the value of an option is described."""
SOURCE_VIEW = "source"
"""The view of a source that has no name."""
TIME_COLUMNS = {"sow": "ts", "kafka": "timestamp", "rate": "timestamp"}
"""The columns that hold the time where the source itself says when."""


def has_scheme(path: str) -> bool:
    """Whether a path says itself where it is (`s3a://bucket/x`, `file:/x`), so that it is handed
    on to Spark as it is."""
    return SCHEME.match(path) is not None


def located(path: str, directory: str) -> str:
    """A path of a pipeline as it is passed to Spark: a relative one starts at `directory`."""
    return path if has_scheme(path) else os.path.join(directory, path)


@dataclass(frozen=True, slots=True)
class PipelineOption:
    """An option of Spark's for a source or a sink."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What is read: a format of Spark's with its options. `schema` is Spark's DDL."""

    format: str
    path: str | None = None
    topic: str | None = None
    schema: str | None = None
    options: tuple[PipelineOption, ...] = ()

    @property
    def is_files(self) -> bool:
        """Files: there is an end to them."""
        return self.format in FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Input):
    """Where rows come from. `name` is the view that SQL reads; `watermark_us` how late rows may
    come; `time_unit` what a time that is a number counts."""

    name: str = SOURCE_VIEW
    time_column: str | None = None
    time_unit: TimeUnit | None = None
    watermark_us: int | None = None

    @property
    def is_typed(self) -> bool:
        """Rows of a topic whose columns are fields of the body."""
        infers = any(
            plain(one.name) == "inferschema" and one.value.lower() == "true" for one in self.options
        )
        return self.format == "sow" and (self.schema is not None or infers)

    @property
    def time(self) -> str | None:
        """The column that holds the rows' time."""
        return self.time_column or TIME_COLUMNS.get(self.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class Static(Input):
    """A table that is read once in each run, for the SQL to join with as the view `name`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflate:
    """At most one row for each key and interval; `filter` says which rows are kept.

    Rows may be `lateness_us` late and `max_skew_us` ahead of the clock; those beyond are kept at
    `late_path`, if there is one. `null_keys` says what becomes of those without a key, and
    `window_fields` whether rows have `window_start` and `window_end`; None: in files, and not in
    topics.
    """

    keys: tuple[str, ...]
    interval_us: int
    policy: FoldPolicy = "latest"
    filter: str | None = None
    lateness_us: int = 0
    max_skew_us: int = 3_600_000_000
    late_path: str | None = None
    null_keys: NullKeys = "refuse"
    window_fields: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where rows go: a topic, or a format of Spark's, such as files at a path."""

    topic: str | None = None
    format: str | None = None
    path: str | None = None
    options: tuple[PipelineOption, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One pipeline. `trigger_us` is how often a batch is made; None: once, all there is.
    `checkpoint` is where its state is, if that is not in the data directory; `token_file` holds the
    token by which it logs on at the server. With more than one
    source there is SQL, and no conflation."""

    name: str
    sources: tuple[Source, ...]
    sink: Sink
    statics: tuple[Static, ...] = ()
    sql: str | None = None
    conflate: Conflate | None = None
    output_mode: OutputMode = "append"
    trigger_us: int | None = TRIGGER_US
    checkpoint: str | None = None
    master: str = "local[2]"
    autostart: bool = False
    token_file: str = ""
    settings: tuple[PipelineOption, ...] = ()
    line: int = 0

    @property
    def source(self) -> Source:
        """The first source; with conflation, the only one."""
        return self.sources[0]

    def without_values(self) -> "Pipeline":
        """The same without the values of Spark's options and settings, for who looks: no name says
        which of them is a secret, such as the password of a database."""
        return replace(
            self,
            sources=tuple(replace(one, options=_redacted(one.options)) for one in self.sources),
            statics=tuple(replace(one, options=_redacted(one.options)) for one in self.statics),
            sink=replace(self.sink, options=_redacted(self.sink.options)),
            settings=_redacted(self.settings),
        )

    def described(self) -> dict[str, object]:
        """What it reads, where it writes and how often, for who looks."""
        sink = self.sink
        reads = [f"{read.format} {read.topic or read.path or ''}".strip() for read in self.sources]
        writes = f"topic {sink.topic}" if sink.topic else f"{sink.format} {sink.path or ''}".strip()
        return {
            "name": self.name,
            "source": ", ".join(reads),
            "sink": writes,
            "topic": sink.topic,
            "trigger": "once" if self.trigger_us is None else f"every {self.trigger_us / 1e6:g} s",
            "master": self.master,
            "autostart": self.autostart,
        }


def _redacted(options: Sequence[PipelineOption]) -> tuple[PipelineOption, ...]:
    return tuple(replace(one, value=UNTOLD) for one in options)
