"""The options of `format("sow")`: parses and checks them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sow.core.addresses import URL_DEFAULT
from sow.core.humanize import did_you_mean
from sow.core.pipelines import (
    NAMES,
    USES,
    Use,
    WriteMode,
    called_here,
    check_together,
    misuse,
    option_field,
    option_value,
    plain,
)
from sow.errors import ClientError
from sow.spark.http import SowServer, TokenSource, certificates, environment_token, is_token

# Options that Spark itself adds.
SPARKS = ("checkpointlocation", "queryname")


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
    last: int | None = None
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
            raise ClientError(f"no option {name!r}{did_you_mean(called_here(name), list(USES))}")
        if use is not None and (problem := misuse(known, use)):
            raise ClientError(problem)
        requested[known] = value
    values = {name: option_value(name, text) for name, text in requested.items()}
    check_together(requested, use)
    if not requested.get("topic", "").strip():
        raise ClientError('give the topic: .option("topic", "orders")')
    parsed: dict[str, Any] = {
        option_field(name): value
        for name, value in values.items()
        if name not in ("token", "tokenFile")
    }
    parsed["token_source"] = _token_source(requested)
    parsed["ca"] = certificates(requested.get("ca"))
    return SourceOptions(**parsed)


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


def any_option(given: Mapping[str, Any], name: str) -> str | None:
    """The value of one option, in any case."""
    return next((value for key, value in given.items() if plain(key) == plain(name)), None)
