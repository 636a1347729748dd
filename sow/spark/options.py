"""The options of `format("sow")`: read, checked, and said what is wrong with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from conflated_topics.intervals import interval_us
from conflated_topics.specs import parse_interval
from sow.definitions import URL_DEFAULT
from sow.errors import ClientError
from sow.lists import comma_list
from sow.source_options import LOG, NAMES, STREAM_WRITE, USES, WRITE, Use, misuse, plain
from sow.spark.http import SowServer, certificates, token_of_environment
from sow.suggest import did_you_mean

# What Spark itself hands over with ours.
SPARKS = ("checkpointlocation", "queryname")
NEVER_EMPTY = (
    "url", "ca", "asOf", "projection", "grouping", "startingBookmark", "endingBookmark", "consumer",
    "writer", "deadLetterPath", "keyColumn", "opColumn",
)  # fmt: skip
"""Options of which an empty text is no value; a `filter` without text lets every row through."""

WriteMode = Literal["publish", "delta", "delete", "replace"]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What one read or write was asked for."""

    url: str
    topic: str
    token: str | None
    ca: str | None
    retry_s: float
    filter: str | None
    columns: tuple[str, ...]
    as_of: str | None
    projection: str | None
    grouping: str | None
    infer_schema: bool
    partitions: int | None
    pushdown: bool
    starting: str
    ending: str | None
    rows_max: int | None
    latest: bool
    fail_on_data_loss: bool
    consumer: str | None
    closes_within_us: int | None
    mode: WriteMode
    allow_empty: bool
    writer: str | None
    epoch: int | None
    rerun: str
    batch_rows: int
    dead_letter_path: str | None
    key_column: str
    op_column: str

    @property
    def groups(self) -> dict[str, str]:
        """What rows are made of groups of the records, as parameters of a query; none of them for
        the records themselves."""
        asked = {"projection": self.projection, "grouping": self.grouping}
        return {name: text for name, text in asked.items() if text is not None}

    @property
    def server(self) -> SowServer:
        """The server that they name."""
        return SowServer(self.url, self.token, self.retry_s, self.ca)


def read_options(given: Mapping[str, str], use: Use | None = None) -> SourceOptions:
    """Check options; names are written in any case, `asOf` or `as_of`. Raises ClientError, also for
    one that means nothing in what it is to be used for."""
    asked: dict[str, str] = {}
    for name, value in given.items():
        known = NAMES.get(plain(name))
        if plain(name) in SPARKS:
            continue
        if plain(name) == "path":
            raise ClientError(
                f'no path {value!r}: a topic is named by .option("topic", "orders"), and written '
                "by .save() or .start() without a path. In SQL a topic is a view, and cannot be a "
                "table: CREATE TEMPORARY VIEW orders USING sow OPTIONS (topic 'orders')"
            )
        if known is None:
            raise ClientError(f"no option {name!r}{did_you_mean(name, list(USES))}")
        if use is not None and (problem := misuse(known, use)):
            raise ClientError(problem)
        asked[known] = value
    if empty := next((name for name in NEVER_EMPTY if asked.get(name, "set").strip() == ""), None):
        raise ClientError(f"the option {empty} is empty; give it a value, or leave it out")
    _check_together(asked, use)
    if not asked.get("topic", "").strip():
        raise ClientError('give the topic: .option("topic", "orders")')
    return SourceOptions(
        url=asked.get("url", URL_DEFAULT),
        topic=asked["topic"],
        token=_token(asked.get("token") or token_of_environment()),
        ca=certificates(asked.get("ca")),
        retry_s=_seconds(asked.get("retryTimeout", "60")),
        filter=asked.get("filter"),
        columns=_list(asked.get("columns", "")),
        as_of=asked.get("asOf"),
        projection=asked.get("projection"),
        grouping=asked.get("grouping"),
        infer_schema=_flag("inferSchema", asked.get("inferSchema", "false")),
        partitions=_count("partitions", asked.get("partitions")),
        pushdown=_flag("pushdown", asked.get("pushdown", "false")),
        starting=asked.get("startingBookmark", "earliest"),
        ending=asked.get("endingBookmark"),
        rows_max=_count("maxRowsPerTrigger", asked.get("maxRowsPerTrigger")),
        latest=_choice("readMode", asked.get("readMode", "changes"), "changes", "latest")
        == "latest",
        fail_on_data_loss=_flag("failOnDataLoss", asked.get("failOnDataLoss", "true")),
        consumer=asked.get("consumer"),
        closes_within_us=_closes_within_us(asked.get("closesWithin")),
        mode=cast(
            "WriteMode",
            _choice("mode", asked.get("mode", "publish"), *get_args(WriteMode)),
        ),
        allow_empty=_flag("allowEmpty", asked.get("allowEmpty", "false")),
        writer=asked.get("writer"),
        epoch=_count("epoch", asked.get("epoch"), minimum=0),
        rerun=_choice("rerun", asked.get("rerun", "fail"), "fail", "skip"),
        batch_rows=_count("batchRows", asked.get("batchRows")) or 50_000,
        dead_letter_path=asked.get("deadLetterPath"),
        key_column=asked.get("keyColumn", "key"),
        op_column=asked.get("opColumn", "op"),
    )


def _check_together(asked: Mapping[str, str], use: Use | None) -> None:
    """Values that mean nothing in what they are used for, or without others."""
    if use == LOG and asked.get("startingBookmark") == "snapshot":
        raise ClientError(
            "startingBookmark snapshot is for streams, where the log follows the records; to read "
            "the records alone leave it out"
        )
    if {"projection", "grouping"} & asked.keys() and {"partitions", "pushdown"} & asked.keys():
        raise ClientError(
            "rows of groups are made by the server and come in one piece: leave out partitions and "
            "pushdown"
        )
    replaces = asked.get("mode") == "replace"
    if use == STREAM_WRITE and replaces:
        raise ClientError(
            "mode replace is for batch writes: each batch of a stream would remove what those "
            "before it wrote; remove records by rows whose op is delete"
        )
    if use == WRITE and "allowEmpty" in asked and not replaces:
        raise ClientError("the option allowEmpty means nothing without mode replace: remove it")


def _list(text: str) -> tuple[str, ...]:
    return tuple(comma_list(text))


def _token(text: str | None) -> str | None:
    if text is not None and not (text.isascii() and text.isprintable()):
        raise ClientError(
            "the token has characters that a header cannot, such as the end of a line"
        )
    return text


def _flag(name: str, text: str) -> bool:
    return _choice(name, text.lower(), "true", "false") == "true"


def _choice(name: str, text: str, *choices: str) -> str:
    if text not in choices:
        raise ClientError(f"{name} is {text!r}; it must be {' or '.join(choices)}")
    return text


def _count(name: str, text: str | None, minimum: int = 1) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= minimum):
        raise ClientError(f"{name} is {text!r}; it must be a whole number, {minimum} or more")
    return int(text)


def _seconds(text: str) -> float:
    """How long requests are repeated: an interval, or a number of seconds."""
    try:
        return interval_us(text) / 1e6 if text[-1:].isalpha() else float(text)
    except ValueError:
        raise ClientError(f"retryTimeout is {text!r}; write seconds, such as 60 or 1m") from None


def _closes_within_us(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_interval(text)
    except ValueError as error:
        raise ClientError(f"closesWithin: {error}") from None


def any_option(given: Mapping[str, Any], name: str) -> str | None:
    """The value of one option, written in any case."""
    return next((value for key, value in given.items() if plain(key) == plain(name)), None)
