"""The options of `format("sow")`: parses and checks them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from conflated_topics.spec import parse_interval
from conflated_topics.user_texts import interval_us
from sow.core.comma_lists import comma_list
from sow.core.humanize import did_you_mean
from sow.core.origin_parsing import URL_DEFAULT
from sow.core.pipelines import LOG, NAMES, STREAM_WRITE, USES, WRITE, Use, misuse, plain
from sow.errors import ClientError
from sow.spark.http import (
    SowServer,
    TokenSource,
    certificates,
    environment_token,
    is_token,
)

# Options that Spark itself adds.
SPARKS = ("checkpointlocation", "queryname")
NEVER_EMPTY = (
    "url", "ca", "tokenFile", "asOf", "projection", "grouping", "startingBookmark",
    "endingBookmark", "consumer",
    "writer", "deadLetterPath", "keyColumn", "opColumn",
)  # fmt: skip
"""Options that may not be empty; a `filter` without text lets every row through."""

WriteMode = Literal["publish", "delta", "delete", "replace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one read or write."""

    topic: str
    token_source: TokenSource
    ca: str | None
    url: str = URL_DEFAULT
    retry_s: float = 60.0
    filter: str | None = None
    columns: tuple[str, ...] = ()
    as_of: str | None = None
    projection: str | None = None
    grouping: str | None = None
    infer_schema: bool = False
    partitions: int | None = None
    pushdown: bool = False
    starting: str = "earliest"
    ending: str | None = None
    rows_max: int | None = None
    latest: bool = False
    cdc: bool = False
    fail_on_data_loss: bool = True
    consumer: str | None = None
    closes_within_us: int | None = None
    mode: WriteMode = "publish"
    allow_empty: bool = False
    writer: str | None = None
    epoch: int | None = None
    rerun: str = "fail"
    batch_rows: int = 50_000
    dead_letter_path: str | None = None
    key_column: str = "key"
    op_column: str = "op"

    @property
    def groups(self) -> dict[str, str]:
        """The parameters of a query for groups of records; none of them for the records
        themselves."""
        requested = {"projection": self.projection, "grouping": self.grouping}
        return {name: text for name, text in requested.items() if text is not None}

    @property
    def server(self) -> SowServer:
        """The server that they name."""
        return SowServer(self.url, self.token_source, self.retry_s, self.ca)


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
    parsed: dict[str, Any] = {}
    for name, text in requested.items():
        if name in ("token", "tokenFile"):
            continue
        field, parse = PARSED.get(name, (name, _text))
        parsed[field] = parse(name, text)
    parsed["token_source"] = _token_source(requested)
    parsed["ca"] = certificates(requested.get("ca"))
    return SourceOptions(**parsed)


def _check_together(requested: Mapping[str, str], use: Use | None) -> None:
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


def _token_source(requested: Mapping[str, str]) -> TokenSource:
    token, file = requested.get("token"), requested.get("tokenFile")
    if token and file:
        raise ClientError(
            "give token or tokenFile, not both: the file is read again when it changes"
        )
    found = TokenSource(token, file) if token or file else environment_token()
    if found.token is not None and not is_token(found.token):
        raise ClientError(
            "the token has characters that a header cannot, such as the end of a line"
        )
    return found


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


def _seconds(name: str, text: str) -> float:
    """How long requests are retried: an interval, or a number of seconds."""
    try:
        return interval_us(text) / 1e6 if text[-1:].isalpha() else float(text)
    except ValueError:
        raise ClientError(f"{name} is {text!r}; write seconds, such as 60 or 1m") from None


def _interval_us(name: str, text: str) -> int:
    try:
        return parse_interval(text)
    except ValueError as error:
        raise ClientError(f"{name}: {error}") from None


PARSED: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "retryTimeout": ("retry_s", _seconds),
    "columns": ("columns", _list),
    "asOf": ("as_of", _text),
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


def any_option(given: Mapping[str, Any], name: str) -> str | None:
    """The value of one option, in any case."""
    return next((value for key, value in given.items() if plain(key) == plain(name)), None)
