"""Value types of `<Pipelines>`: formats, columns, paths and Spark masters.

Like those of other elements (`sow.config.value_types`) they validate the spelling of one value by
itself. What exists where Spark runs, only Spark can check.
"""

import re

from conflated_topics.suggest import nearest
from sow.config.diagnostics import MistakeError
from sow.config.sql import columns_problem
from sow.config.value_types import TEXT, ValueKind, duration
from sow.core.pipelines import ARROW_SCHEMES, KNOWN_FORMATS, has_scheme
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
