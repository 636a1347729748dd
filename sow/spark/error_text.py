"""Reduces an error of Spark's to one sentence of its hundred lines.

Errors of SOW are raised in Spark's workers and come back wrapped in Spark's own; their sentence is
extracted. Spark's own errors have a class, which maps to an element of the pipeline. The text is
for users only: nothing depends on it.
"""

import re
from typing import NamedTuple

from conflated_topics.user_texts import nearest
from sow.core.pipelines import KNOWN_FORMATS, SPARKS_FORMATS
from sow.errors import BadFilter, ClientError, SowError, clipped
from sow.spark.http import ServerRefusal
from sow.spark.rows import DataLoss

KINDS = (ServerRefusal, BadFilter, ClientError, SowError, DataLoss, ValueError)
OURS = tuple(f"{kind.__name__}: " for kind in KINDS)
MISSING = "Failed to find the data source: kafka"
KAFKA = (
    "Spark's connector for Kafka is missing; add <Setting Name='spark.jars.packages' "
    "Value='org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0'/> to the pipeline"
)

OTHER_SOURCES = "sources in the checkpoint offsets and now there are"
EARLIER_RELEASE = (
    "this checkpoint comes from an earlier release, without Conflate or with other sources, and "
    "cannot be continued; start again by removing it: it is the Checkpoint of the pipeline "
    "or its directory under pipelines in the data directory"
)
CALLED = re.compile(r"An error occurred while calling \S+\.\s*:?\s*(?:[\w.$]+: )?")
"""The prefix that Python's bridge to Java adds."""
CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s+(.+)")
SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*")
WITHOUT_SCHEMA = "Schema must be specified"


class Meant(NamedTuple):
    """The element that an error of Spark's concerns, and what to write there."""

    element: str
    instead: str


SCHEMA = Meant("Schema", "write the columns as the files have them, or leave Schema out")
ELEMENTS = {
    "PATH_NOT_FOUND": Meant(
        "Path",
        "create it, or write where the files are; a relative path starts at the data directory",
    ),
    "UNABLE_TO_INFER_SCHEMA": Meant("Path", "there are no such files yet: write a <Schema>"),
    "FAILED_READ_FILE": SCHEMA,
    "CANNOT_READ_FILE_FOOTER": Meant("Format", "the files at Path have another one"),
    "UNRESOLVED_COLUMN": Meant("SQL", "write a column of its views"),
    "UNRESOLVED_ROUTINE": Meant("SQL", "write a function of Spark's"),
    "TABLE_OR_VIEW_NOT_FOUND": Meant("SQL", "write the name of a Source or a Static"),
    "PARSE_SYNTAX_ERROR": Meant("SQL", "sow check shows where"),
    "DATATYPE_MISMATCH": Meant("SQL", "cast the column"),
    "CAST_INVALID_INPUT": Meant("SQL", "use try_cast, or leave the rows out"),
}
"""By the class of an error, or by its prefix."""


def reason(error: BaseException) -> str:
    """One sentence for an error of Spark's."""
    text = str(error)
    if MISSING in text or ("kafka" in text and "DATA_SOURCE_NOT_FOUND" in text):
        return KAFKA
    if OTHER_SOURCES in text:
        return EARLIER_RELEASE
    for mark in OURS:
        if mark in text:
            detail = text.rpartition(mark)[2].splitlines()[0].strip().strip("'\"")
            return SQLSTATE.sub("", detail)
    return _of_spark(CALLED.sub("", text, count=1).strip()) or type(error).__name__


def _of_spark(text: str) -> str:
    """The text of an error of Spark's own classes, with the element that it concerns."""
    if WITHOUT_SCHEMA in text:
        return "Schema: files of this format do not declare their columns; write a <Schema>"
    for condition, detail in CONDITION.findall(text):
        detail = clipped(SQLSTATE.sub("", detail).strip())
        if condition == "DATA_SOURCE_NOT_FOUND":
            return _no_format(detail)
        for begin, meant in ELEMENTS.items():
            if condition.startswith(begin):
                return f"{meant.element}: {detail.rstrip('.')}; {meant.instead}"
    return text.splitlines()[0] if text else ""


def _no_format(detail: str) -> str:
    name = detail.partition("data source: ")[2].partition(".")[0].strip()
    meant = nearest(name, [*KNOWN_FORMATS, *SPARKS_FORMATS])
    near = f"did you mean {meant}? " if meant else ""
    return (
        f"Format: Spark has no format {name}; {near}Add a package with "
        "<Setting Name='spark.jars.packages' Value='…'/>"
    )
