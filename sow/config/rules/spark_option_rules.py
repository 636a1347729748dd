"""The rules of options that are Spark's own: values that it would refuse when the pipeline runs.

Of each of Spark's built-in formats a table says what its options may be. Options that are not in
the table, and those of other formats, are left to Spark. Names of options are in any case, as Spark
reads them. It does not know what is at a path, nor which topics Kafka has.
"""

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from conflated_topics.user_texts import nearest
from sow.config.binder import Section
from sow.errors import shown


class Values(NamedTuple):
    """What an option may be, as a sentence says it, and whether a text is that; `words` are all
    that there are, where they can be listed."""

    described: str
    has: Callable[[str], bool]
    words: tuple[str, ...] = ()


def _words(*words: str, or_class: bool = False) -> Values:
    """One of some words, in any case; or the full name of a class."""
    known = {word.lower() for word in words}
    return Values(
        " or ".join(words), lambda text: text.lower() in known or (or_class and "." in text), words
    )


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


def _is_bound(text: str) -> bool:
    return text == "-1" or _is_whole(text)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _are_addresses(text: str) -> bool:
    parts = [part.strip().rpartition(":") for part in text.split(",")]
    return all(host and _is_whole(port) and int(port) < 2**16 for host, _, port in parts)


FLAG = _words("true", "false")
WHOLE_NUMBER = Values("a whole number, 1 or more", _is_whole)
BOUND = Values("a whole number, 1 or more, or -1 for no bound", _is_bound)
FRACTION = Values("a number above 0, up to 1, such as 0.1", _is_share)
CHARACTER = Values("one character", lambda text: len(text) <= 1)
MODE = _words("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
REBASED = _words("EXCEPTION", "CORRECTED", "LEGACY")
OFFSETS = 'a JSON object such as {"orders":{"0":23}}'
OF_TEXT = ("none", "uncompressed", "bzip2", "deflate", "gzip", "lz4", "snappy")
OF_PARQUET = (*OF_TEXT[:2], "snappy", "gzip", "lzo", "brotli", "lz4", "lz4_raw", "zstd")

FILE_OPTIONS: Mapping[str, Values] = {
    "cleanSource": _words("archive", "delete", "off"),
    "ignoreCorruptFiles": FLAG,
    "ignoreMissingFiles": FLAG,
    "latestFirst": FLAG,
    "maxFilesPerTrigger": WHOLE_NUMBER,
    "recursiveFileLookup": FLAG,
}
TEXT_OPTIONS: Mapping[str, Values] = {
    **FILE_OPTIONS,
    "compression": _words(*OF_TEXT, or_class=True),
    "inferSchema": FLAG,
    "mode": MODE,
    "multiLine": FLAG,
    "samplingRatio": FRACTION,
}
FLAGS_OF_CSV = (
    "header", "enforceSchema", "escapeQuotes", "ignoreLeadingWhiteSpace",
    "ignoreTrailingWhiteSpace", "preferDate", "quoteAll",
)  # fmt: skip
FLAGS_OF_JSON = (
    "allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers",
    "allowNumericLeadingZeros", "allowSingleQuotes", "allowUnquotedControlChars",
    "allowUnquotedFieldNames", "dropFieldIfAllNull", "ignoreNullFields", "prefersDecimal",
    "primitivesAsString",
)  # fmt: skip
FORMAT_OPTIONS: Mapping[str, Mapping[str, Values]] = {
    "csv": {
        **TEXT_OPTIONS,
        **dict.fromkeys(FLAGS_OF_CSV, FLAG),
        **dict.fromkeys(("comment", "escape", "quote"), CHARACTER),
        "codec": TEXT_OPTIONS["compression"],
        "maxColumns": WHOLE_NUMBER,
        "maxCharsPerColumn": BOUND,
        "unescapedQuoteHandling": _words(
            "STOP_AT_CLOSING_QUOTE", "BACK_TO_DELIMITER", "STOP_AT_DELIMITER", "SKIP_VALUE",
            "RAISE_ERROR",
        ),
    },
    "json": {**TEXT_OPTIONS, **dict.fromkeys(FLAGS_OF_JSON, FLAG)},
    "parquet": {
        **FILE_OPTIONS,
        "compression": _words(*OF_PARQUET),
        "parquet.compression": _words(*OF_PARQUET),
        "datetimeRebaseMode": REBASED,
        "int96RebaseMode": REBASED,
        "mergeSchema": FLAG,
    },
    "kafka": {
        "kafka.bootstrap.servers": Values(
            "addresses such as broker1:9092,broker2:9092", _are_addresses
        ),
        "startingOffsets": Values(
            f"earliest or latest or {OFFSETS}",
            lambda text: text.lower() in ("earliest", "latest") or _is_object(text),
        ),
        "endingOffsets": Values(
            f"latest or {OFFSETS}", lambda text: text.lower() == "latest" or _is_object(text)
        ),
        "assign": Values('a JSON object such as {"orders":[0,1]}', _is_object),
        "failOnDataLoss": FLAG,
        "includeHeaders": FLAG,
        "maxOffsetsPerTrigger": WHOLE_NUMBER,
        "minOffsetsPerTrigger": WHOLE_NUMBER,
        "minPartitions": WHOLE_NUMBER,
    },
    "rate": {"rowsPerSecond": WHOLE_NUMBER, "numPartitions": WHOLE_NUMBER},
}  # fmt: skip
"""What options of Spark's built-in formats may be, by the name of the format."""
BROKERS = "kafka.bootstrap.servers"
WHICH_TOPICS = ("subscribe", "subscribePattern", "assign")


def value_problem(kind: str, option: Section) -> str:
    """Why an option of a format of Spark's cannot have this value, and what to write instead; empty
    if it may, or that is not known."""
    known = {name.lower(): name for name in FORMAT_OPTIONS.get(kind, ())}
    name = known.get(option.text("name").lower())
    if name is None or "value" not in option.values:
        return ""
    values, value = FORMAT_OPTIONS[kind][name], option.text("value").strip()
    if values.has(value):
        return ""
    wrong = f"{name} of {kind} is {shown(value)}; it must be {values.described}"
    meant = nearest(value.lower(), [word.lower() for word in values.words])
    return wrong if meant is None else f"{wrong}: did you mean {meant}?"


def kafka_problem(section: Section, is_read: bool) -> str:
    """The option that Kafka lacks, or has twice; empty if it is right."""
    given = {option.text("name").lower() for option in section.sections("options")}
    if BROKERS not in given:
        return f"kafka has no address; add the Option {BROKERS}, such as broker:9092"
    which = [name for name in WHICH_TOPICS if name.lower() in given]
    if is_read and not which:
        return "kafka has no topic to read; add the Option subscribe, the name of its topic"
    if is_read and len(which) > 1:
        return f"what kafka reads is named by {' and '.join(which)}; keep one of them"
    return ""
