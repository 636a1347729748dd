"""The table of elements, continued: `<Pipelines>`, and its value types.

Like those of other elements (`sow.config.value_types`) these validate the spelling of one value by
itself. What exists where Spark runs, only Spark can check.
"""

import re

from conflated_topics.user_texts import nearest
from sow.config import value_types
from sow.config.diagnostics import MistakeError
from sow.config.elements import Element, leaf
from sow.config.sql import columns_problem
from sow.config.value_types import TEXT, ValueKind, duration
from sow.core.pipelines import (
    ARROW_SCHEMES,
    FILES,
    KNOWN_FORMATS,
    SOURCE_VIEW,
    Conflate,
    FoldPolicy,
    NullKeys,
    OutputMode,
    Pipeline,
    PipelineOption,
    Sink,
    Source,
    Static,
    TimeUnit,
    has_scheme,
)
from sow.errors import shown

IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""A name that Spark's SQL accepts without quotes."""
FORMAT_WORD = re.compile(r"[A-Za-z_][\w.$-]*", re.ASCII)
"""A short name that Spark knows, or a class of Java's."""
NO_BUCKET = re.compile(
    r"(s3|s3a|s3n|gs|abfs|abfss|wasb|wasbs|oss|cosn|obs)(?!://[^/]):(.*)", re.ASCII | re.DOTALL
)
"""A URL of storage that has buckets, without one. Of other schemes, such as `file:/x` and
`hdfs:/x`, one slash is enough."""
MASTERS = {
    "local": "local[2]",
    "spark": "spark://host:7077",
    "yarn": "yarn",
    "k8s": "k8s://https://host:443",
    "sc": "sc://host",
}
"""The masters that Spark knows by the word each begins with, and how one is written."""
MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(\s*,\s*\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn"
    r"|(spark|k8s|sc)://[^\s/].*",
    re.ASCII,
)


def _view_name(text: str) -> str:
    if not IDENTIFIER.fullmatch(text):
        raise MistakeError(
            f"{shown(text)} is no name that SQL can write without quotes",
            "use letters, digits and '_', and no digit in front",
        )
    return text


def _format(text: str) -> str:
    """A format of Spark's. Which there are, only Spark knows; ours are spelt in one way."""
    if text.lower() in KNOWN_FORMATS and text not in KNOWN_FORMATS:
        raise MistakeError(f"{shown(text)} is spelt otherwise", f"write {text.lower()}")
    if not FORMAT_WORD.fullmatch(text):
        raise MistakeError(
            f"{shown(text)} is no name of a format", "write one word, such as parquet or avro"
        )
    return text


def _texts(text: str) -> str:
    """Text of one or several lines."""
    TEXT.read("".join(text.split()))
    return text


def _place(text: str) -> str:
    """A path or URL of files, judged by its spelling."""
    if found := NO_BUCKET.match(str(TEXT.read(text))):
        scheme, rest = found.groups()
        raise MistakeError(
            f"{shown(text)} names no bucket, which follows two slashes",
            f"write {scheme}://{rest.strip('/') or 'bucket'}",
        )
    return text


def _shared_place(text: str) -> str:
    """The same, for files that tasks write; other schemes may exist there."""
    if has_scheme(_place(text)) and text.partition(":")[0].lower() not in ARROW_SCHEMES:
        raise MistakeError(
            f"{shown(text)} is no place that tasks reach",
            "write a path that all machines have, or s3://…, gs://…, abfs://… or hdfs://…",
        )
    return text


def _columns(text: str) -> str:
    if wrong := columns_problem(_texts(text)):
        raise MistakeError(f"is no list of columns: {wrong}", "write such as id long, px double")
    return text


def _trigger(text: str) -> int | None:
    """The interval of a trigger in microseconds; None: once."""
    if text == "once":
        return None
    try:
        every: object = duration(minimum="100ms").read(text)
    except MistakeError as mistake:
        raise MistakeError(mistake.message, f"{mistake.instead}, or 'once'") from None
    assert isinstance(every, int)
    return every


def spark_master(text: str) -> str:
    """Where Spark runs, judged by its spelling; raises MistakeError.

    A scheme that resembles none of these may be that of a custom cluster manager: it is left to
    Spark.
    """
    if MASTER.fullmatch(str(TEXT.read(text))):
        return text
    name = re.split(r"[\[(:/]", text, maxsplit=1)[0]
    rest = text.removeprefix(name)
    meant = nearest(name, MASTERS)
    if meant is None and rest.startswith("://"):
        return text
    instead = f"write {', '.join(MASTERS.values())} or such"
    if meant is not None:
        right = f"{meant}{rest if meant == 'local' else '://' + rest.lstrip(':/')}"
        instead = f"did you mean {right if MASTER.fullmatch(right) else MASTERS[meant]}?"
    raise MistakeError(f"{shown(text)} is no master of Spark's", instead)


def format_of(*known: str) -> ValueKind:
    """A format of Spark's; those that are `known` have rules here."""
    return ValueKind(" or ".join([*(f"`{one}`" for one in known), "another of Spark's"]), _format)


TEXTS = ValueKind("text", _texts)
COLUMNS = ValueKind("columns as in SQL", _columns)
PLACE = ValueKind("path or URL", _place)
SHARED_PLACE = ValueKind("path or URL", _shared_place)
TRIGGER = ValueKind("interval or `once`", _trigger)
VIEW_NAME = ValueKind("SQL identifier", _view_name)
MASTER_KIND = ValueKind("Spark master", spark_master)


def _text(name: str) -> Element:
    return leaf(name, value_types.TEXT, required=True, attribute=True)(f"Its {name.lower()}.")


def _options(about: str, name: str = "Option", field: str = "options") -> Element:
    return Element(
        name=name,
        repeated=True,
        fields=(field,),
        make=PipelineOption,
        about=about,
        children=(_text("Name"), _text("Value")),
    )


def _view(required: bool) -> Element:
    return leaf(
        "Name",
        VIEW_NAME,
        "" if required else SOURCE_VIEW,
        synonyms=("name",),
        required=required,
        attribute=True,
    )("The view that the SQL reads it as.")


def _where(
    *formats: str, what: str, path: str, topic: str, required: bool = False
) -> tuple[Element, ...]:
    """A source or a sink of rows: a format of Spark's or one of these, with a path or a topic."""
    return (
        leaf("Format", format_of(*formats), required=required)(what),
        leaf("Path", PLACE)(
            f"{path}. A relative path starts at the data directory; one with a scheme "
            "(`s3a://…`) is Spark's as it is."
        ),
        leaf("Topic", value_types.TEXT)(topic),
    )


READ_PATH = "A file, a directory or a pattern of names, for files"


SOURCE = Element(
    name="Source",
    required=True,
    repeated=True,
    fields=("sources",),
    make=Source,
    about="Where rows come from. Several, each with a name, are joined by the SQL.",
    children=(
        _view(required=False),
        *_where(
            *KNOWN_FORMATS,
            what="Files, a topic of Kafka's (its jar must be there), a topic of this server, "
            "Spark's generator of rows, or any other format that Spark can stream, with its "
            "Options as Spark knows them.",
            path=READ_PATH,
            topic="The topic with the log to read, for sow.",
            required=True,
        ),
        leaf("Schema", COLUMNS)(
            "The columns, as in SQL: `sym string, px double`. For sow they are fields of the body; "
            "without, the columns are `bookmark topic key op ts value`. Files know theirs."
        ),
        leaf("TimeColumn", value_types.TEXT)(
            "The column with the rows' time; `ts` for sow, `timestamp` for kafka and rate."
        ),
        leaf("TimeUnit", value_types.choice(TimeUnit))(
            "What TimeColumn counts since 1970 where it is a number. Times of a file that have "
            "nanoseconds are numbers to Spark; of these Parquet says so itself."
        ),
        leaf("Watermark", value_types.duration(), fields=("watermark_us",))(
            "How late a row may come and still count in an aggregation."
        ),
        _options("An option of the source's, as Spark calls it."),
    ),
)
CONFLATE = Element(
    name="Conflate",
    make=Conflate,
    about="At most one row for each key and interval, after the SQL.",
    children=(
        leaf("Key", value_types.PATH, required=True, repeated=True, fields=("keys",))(
            "A field of the body, or a column that the SQL gives: `/sym`."
        ),
        leaf(
            "Interval", value_types.duration(minimum="1ms"), required=True, fields=("interval_us",)
        )("How long a key's rows are gathered into one, by their own time."),
        leaf("Lateness", value_types.duration(), "0s", fields=("lateness_us",))(
            "How much older than the newest row of earlier batches a row may be and still "
            "be put in order. All rows wait that long; older ones are left out and counted."
        ),
        leaf("MaxSkew", value_types.duration(), "1h", fields=("max_skew_us",))(
            "How far ahead of the clock a row's time may be. Rows beyond are left out and "
            "counted, since one of them would make all others late."
        ),
        leaf("LatePath", SHARED_PLACE)(
            "Where rows beyond Lateness or MaxSkew are kept, as Parquet; without it they are "
            "counted only. A directory of its own, that all machines of Spark's see: a path (a "
            "relative one starts at the data directory), or `s3://…`, `gs://…`, `abfs://…`, "
            "`hdfs://…`."
        ),
        leaf("NullKeys", value_types.choice(NullKeys), "refuse")(
            "What becomes of a row without a key: the run fails, or it is left out and counted."
        ),
        leaf("WindowFields", value_types.FLAG)(
            "Whether rows have the columns `window_start` and `window_end`; without it those "
            "for files and other formats have, and messages of a topic have not."
        ),
        leaf("Policy", value_types.choice(FoldPolicy), "latest")("How they become one."),
        leaf("Filter", value_types.FIELDS_FILTER)(
            "Only rows that match; the key of a row that no longer matches is deleted."
        ),
    ),
)
STATIC = Element(
    name="Static",
    repeated=True,
    fields=("statics",),
    make=Static,
    about="A table that is read once in each run, for the SQL to join with.",
    children=(
        _view(required=True),
        *_where(
            *FILES,
            "kafka",
            "sow",
            what="Files, the records of a topic of this server (sow), or any other format that "
            "Spark can read as a table, with its Options as Spark knows them.",
            path=READ_PATH,
            topic="The topic with the records to read, for sow.",
            required=True,
        ),
        leaf("Schema", COLUMNS)(
            "The columns, as in SQL; without, those that the format has by itself."
        ),
        _options("An option of the table's, as Spark calls it."),
    ),
)
SINK = Element(
    name="Sink",
    required=True,
    make=Sink,
    about="Where rows go.",
    children=(
        *_where(
            *FILES,
            "kafka",
            what="Files, or any other format that Spark can stream to, with its Options as Spark "
            "knows them.",
            path="The directory, for files",
            topic="A topic of this server instead: each row is a message.",
        ),
        _options(
            "An option of the sink's, as Spark calls it; `partitionBy` holds the columns that "
            "files are divided by."
        ),
    ),
)
PIPELINES = Element(
    name="Pipelines",
    about="What Spark does with this server's topics and with files; `sow pipeline run` runs one.",
    children=(
        Element(
            name="Pipeline",
            repeated=True,
            fields=("pipelines",),
            make=Pipeline,
            about="Rows from a source, through SQL and conflation, into a sink.",
            children=(
                leaf("Name", value_types.INSTANCE_NAME, required=True)(
                    "What `sow pipeline run` calls it; its state is kept under this name."
                ),
                SOURCE,
                STATIC,
                leaf("SQL", TEXTS)(
                    "A query of Spark's over the views of all sources and static tables; "
                    "needed where there is more than one source."
                ),
                CONFLATE,
                SINK,
                leaf("OutputMode", value_types.choice(OutputMode), "append")(
                    "With an aggregation in the SQL, update writes each row whenever it "
                    "changes; append only when it can change no more."
                ),
                leaf("Trigger", TRIGGER, "1s", fields=("trigger_us",))(
                    "How often what has come is taken up; once: all there is, and then the "
                    "pipeline ends."
                ),
                leaf("Checkpoint", PLACE)(
                    "Where the pipeline keeps what it has to remember: a path that every "
                    "machine has which may run it, or one with a scheme that Spark can write to "
                    "(`s3a://…`, `hdfs://…`); by default `pipelines/NAME` of the data directory."
                ),
                leaf("Master", MASTER_KIND, "local[2]")(
                    "Where Spark runs: any master, or the address of a Spark Connect server."
                ),
                leaf("Autostart", value_types.FLAG, "false")(
                    "Whether `sow serve` starts it beside the server, and again if it fails."
                ),
                leaf("TokenFile", value_types.TEXT)(
                    "A file that holds the token by which it logs on, as `sow token create` "
                    "wrote it; by a path relative to config.xml. Without it, that of SOW_TOKEN."
                ),
                _options("A setting of Spark's.", "Setting", "settings"),
            ),
        ),
    ),
)
