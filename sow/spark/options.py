"""The options of `format("sow")`: parses and checks them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from conflated_topics.intervals import interval_us
from conflated_topics.spec import parse_interval
from sow.core.comma_lists import comma_list
from sow.core.definitions import URL_DEFAULT
from sow.core.humanize import did_you_mean
from sow.core.pipelines import LOG, NAMES, STREAM_WRITE, USES, WRITE, Use, misuse, plain
from sow.errors import ClientError
from sow.spark.http import SowServer, certificates, token_of_environment

# Options that Spark itself adds.
SPARKS = ("checkpointlocation", "queryname")
NEVER_EMPTY = (
    "url", "ca", "asOf", "projection", "grouping", "startingBookmark", "endingBookmark", "consumer",
    "writer", "deadLetterPath", "keyColumn", "opColumn",
)  # fmt: skip
"""Options that may not be empty; a `filter` without text lets every row through."""

WriteMode = Literal["publish", "delta", "delete", "replace"]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read or write."""

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
        """The parameters of a query for groups of records; none of them for the records
        themselves."""
        requested = {"projection": self.projection, "grouping": self.grouping}
        return {name: text for name, text in requested.items() if text is not None}

    @property
    def server(self) -> SowServer:
        """The server that they name."""
        return SowServer(self.url, self.token, self.retry_s, self.ca)


def read_options(given: Mapping[str, str], use: Use | None = None) -> SourceOptions:
    """Parse options; case and underscores do not matter, `asOf` or `as_of`. Raises ClientError,
    also for an option that does not apply to its use."""
    requested: dict[str, str] = {}
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
        requested[known] = value
    if empty := next(
        (name for name in NEVER_EMPTY if requested.get(name, "set").strip() == ""), None
    ):
        raise ClientError(f"the option {empty} is empty; give it a value, or leave it out")
    _check_together(requested, use)
    if not requested.get("topic", "").strip():
        raise ClientError('give the topic: .option("topic", "orders")')
    return SourceOptions(
        url=requested.get("url", URL_DEFAULT),
        topic=requested["topic"],
        token=_token(requested.get("token") or token_of_environment()),
        ca=certificates(requested.get("ca")),
        retry_s=_seconds(requested.get("retryTimeout", "60")),
        filter=requested.get("filter"),
        columns=_list(requested.get("columns", "")),
        as_of=requested.get("asOf"),
        projection=requested.get("projection"),
        grouping=requested.get("grouping"),
        infer_schema=_flag("inferSchema", requested.get("inferSchema", "false")),
        partitions=_count("partitions", requested.get("partitions")),
        pushdown=_flag("pushdown", requested.get("pushdown", "false")),
        starting=requested.get("startingBookmark", "earliest"),
        ending=requested.get("endingBookmark"),
        rows_max=_count("maxRowsPerTrigger", requested.get("maxRowsPerTrigger")),
        latest=_choice("readMode", requested.get("readMode", "changes"), "changes", "latest")
        == "latest",
        fail_on_data_loss=_flag("failOnDataLoss", requested.get("failOnDataLoss", "true")),
        consumer=requested.get("consumer"),
        closes_within_us=_closes_within_us(requested.get("closesWithin")),
        mode=cast(
            "WriteMode",
            _choice("mode", requested.get("mode", "publish"), *get_args(WriteMode)),
        ),
        allow_empty=_flag("allowEmpty", requested.get("allowEmpty", "false")),
        writer=requested.get("writer"),
        epoch=_count("epoch", requested.get("epoch"), minimum=0),
        rerun=_choice("rerun", requested.get("rerun", "fail"), "fail", "skip"),
        batch_rows=_count("batchRows", requested.get("batchRows")) or 50_000,
        dead_letter_path=requested.get("deadLetterPath"),
        key_column=requested.get("keyColumn", "key"),
        op_column=requested.get("opColumn", "op"),
    )


def _check_together(requested: Mapping[str, str], use: Use | None) -> None:
    """Refuse values that do not apply to their use, or need others."""
    if use == LOG and requested.get("startingBookmark") == "snapshot":
        raise ClientError(
            "startingBookmark snapshot is for streams, where the log follows the records; to read "
            "the records alone leave it out"
        )
    if {"projection", "grouping"} & requested.keys() and {
        "partitions",
        "pushdown",
    } & requested.keys():
        raise ClientError(
            "rows of groups are made by the server and come in one piece: leave out partitions and "
            "pushdown"
        )
    replaces = requested.get("mode") == "replace"
    if use == STREAM_WRITE and replaces:
        raise ClientError(
            "mode replace is for batch writes: each batch of a stream would remove what those "
            "before it wrote; remove records by rows whose op is delete"
        )
    if use == WRITE and "allowEmpty" in requested and not replaces:
        raise ClientError("the option allowEmpty needs mode replace: remove it")


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
    """How long requests are retried: an interval, or a number of seconds."""
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
    """The value of one option, in any case."""
    return next((value for key, value in given.items() if plain(key) == plain(name)), None)
