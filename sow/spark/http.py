"""HTTP requests from Spark to the server, by the standard library, with retries; and their options.

Runs in Spark's Python workers, so it imports next to nothing. A request that fails to connect is
retried until `retry_s` have passed; every request of the data source is idempotent, since reads
name what they read and writes are staged under names of their own. So it can also go on at another
of several addresses, at once and in the middle of a read: what it reads has the name of its log,
and a follower that is behind waits for it. What a follower refuses goes to the primary.

The options of `format("sow")` say which server and which topic; they are parsed and checked here.
"""

import http.client
import json
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from sow.core.addresses import URL_DEFAULT, Addresses, listed
from sow.core.humanize import did_you_mean
from sow.core.media_types import ARROW, JSON
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
from sow.errors import ClientError, SowError

PAUSE_S = 0.2
"""Pause before the first retry: a brief failure is over by then."""
PAUSE_S_MAX = 5.0
"""The longest pause, so that many tasks do not overload a server that is starting."""
ANSWER_WAIT_S = 30.0
"""Timeout of an answer, in addition to the time for retries: a server may be busy."""
AWAY = (502, 503, 504)
MISDIRECTED = 421
"""A follower names the server that does it, in the header SOW-Primary."""
SAFE = ("GET",)
SNAPSHOTS_PATH = "/v1/snapshots"
"""Where a POST is a read: any server takes snapshots."""
OLDER = (
    "; the server is older than this data source: update the server first, or install the version "
    "of the server here"
)
"""What is wrong where a parameter is unknown, as no option of Spark's names one."""


def certificates(file: str | None = None) -> str | None:
    """The text of a file of certificates, read here because Spark's workers may not have the file;
    by default the file that SOW_CA names, None if it names none. Raises ClientError."""
    file = file or os.environ.get("SOW_CA")
    if not file:
        return None
    try:
        with open(file, encoding="ascii") as found:
            text = found.read()
        ssl.create_default_context(cadata=text)
    except (OSError, ValueError) as error:
        raise ClientError(
            f"ca {file} cannot be used ({getattr(error, 'strerror', None) or error}); it is the "
            "file of the certificates, in PEM form, by which the server is trusted"
        ) from None
    return text


class TokenSource(NamedTuple):
    """The token of requests, or the file that holds it, which is read for each request: a token
    that ends is renewed in the file while a query runs."""

    token: str | None = None
    token_file: str | None = None

    def header(self) -> dict[str, str]:
        """The header of a request; raises ClientError for a file without a token, so that nothing
        is requested without one."""
        token = self.token if self.token_file is None else _token_in(self.token_file)
        return {"Authorization": f"Bearer {token}"} if token else {}


NOBODY = TokenSource()


def _token_in(file: str) -> str:
    try:
        token = Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ClientError(f"the tokenFile {file} cannot be read: {why}") from None
    if not token:
        raise ClientError(f"the tokenFile {file} is empty; write the token into it")
    if not is_token(token):
        raise ClientError(f"the tokenFile {file} holds no token: it has invalid characters")
    return token


def is_token(text: str) -> bool:
    """Whether a header can carry a text as a token."""
    return text.isascii() and text.isprintable() and " " not in text


def environment_token() -> TokenSource:
    """By the file that SOW_TOKEN_FILE names, or the token that SOW_TOKEN holds."""
    file = os.environ.get("SOW_TOKEN_FILE") or None
    return TokenSource(None if file else os.environ.get("SOW_TOKEN") or None, file)


def own_server(url: str) -> "SowServer":
    """The server beside which a pipeline runs, as the environment configures it."""
    return SowServer(url, environment_token(), ca=certificates())


class Reply(NamedTuple):
    """A successful answer."""

    body: bytes
    bookmark: str


class ServerRefusal(ClientError):
    """The server answered with an error; `document` is its whole body."""

    def __init__(self, detail: str, document: Mapping[str, Any]) -> None:
        super().__init__(detail, reason=str(document.get("reason", "bad request")))
        self.document = document

    def __reduce__(self) -> Any:
        return ServerRefusal, (self.detail, self.document)


class Unanswered(OSError):
    """A server has taken a request, and does not answer it in time."""


class Led(OSError):
    """A follower names the primary."""

    def __init__(self, url: str, primary: str) -> None:
        super().__init__(f"{url} is a follower, and names {primary or 'no primary'}")
        self.primary = primary


class SowServer:
    """A server at a URL, or several of one log, with commas between them. Can be pickled; connects
    again wherever it is used.

    `ca` are the trusted certificates of https://, as text in PEM form; None: those of the machine.
    """

    def __init__(
        self,
        url: str,
        token_source: TokenSource = NOBODY,
        retry_s: float = 60.0,
        ca: str | None = None,
    ) -> None:
        self._addresses = Addresses([_checked(one) for one in listed(url)])
        if token_source.token and not is_token(token_source.token):
            raise ClientError("the token has invalid characters; copy it again")
        self.url = url
        self._token_source = token_source
        self._retry_s = retry_s
        self._ca = ca

    @property
    def addresses(self) -> Sequence[str]:
        """All addresses, the one first where reads begin."""
        return self._addresses.all

    @property
    def in_use(self) -> str:
        """The address that has answered the last read."""
        return self._addresses.current

    def at(self, place: int) -> "SowServer":
        """The same, with reads that begin at the address number `place`, modulo their number."""
        found, urls = copy(self), self.addresses
        place %= len(urls)
        found._addresses = Addresses([*urls[place:], *urls[:place]])
        return found

    def each(self) -> "list[SowServer]":
        """A server for each address, which is not tried again and goes on nowhere else."""
        sources = (self._token_source, 0.0, self._ca)
        return [SowServer(url, *sources) for url in self.addresses]

    def json(self, method: str, path: str, body: object = None, **requested: object) -> Any:
        """The decoded answer; `body` is sent as JSON."""
        content = None if body is None else json.dumps(body).encode()
        return json.loads(self.request(method, path, requested, content).body)

    def arrow(self, path: str, **requested: object) -> Reply:
        """An answer in Arrow."""
        return self.request("GET", path, requested, accept=ARROW)

    def request(
        self,
        method: str,
        path: str,
        requested: Mapping[str, object],
        content: bytes | None = None,
        *,
        accept: str = JSON,
        content_type: str = JSON,
        is_patient: bool = False,
    ) -> Reply:
        """The whole answer; raises ServerRefusal, or SowError when the server stays away. If it
        `is_patient`, a request that was taken is repeated until it is answered, however long that
        takes: the server goes on with it meanwhile, and does it once. Of several addresses, each is
        tried before a pause; `min_bookmark` is requested of these alone, since one server has
        everything."""
        left_out = () if self._addresses.are_several else ("min_bookmark",)
        sent = {k: _text(v) for k, v in requested.items() if v is not None and k not in left_out}
        query = urlencode(sent, quote_via=quote)
        target = path + (f"?{query}" if query else "")
        headers = {"Accept": accept, "Content-Type": content_type}
        give_up, pause_s = time.monotonic() + self._retry_s, PAUSE_S
        while True:
            try:
                is_read = method in SAFE or path == SNAPSHOTS_PATH
                return self._round(not is_read, method, target, content, headers)
            except ssl.SSLCertVerificationError as error:
                # Retries do not help.
                raise SowError(
                    f"{self.url} is not trusted: {error.verify_message}; name the file of the "
                    "authority that has signed its certificate by the option ca, or SOW_CA"
                ) from None
            except (OSError, http.client.HTTPException) as error:
                if is_patient and isinstance(error, Unanswered):
                    give_up, pause_s = time.monotonic() + self._retry_s, PAUSE_S
                    continue
                if time.monotonic() + pause_s > give_up:
                    tls = "; if it has no TLS, write http://" * isinstance(error, ssl.SSLError)
                    raise SowError(
                        f"{self.url} cannot be reached: {error or type(error).__name__}{tls}; "
                        f"tried for {self._retry_s:g} s (option retryTimeout)"
                    ) from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _round(
        self,
        is_write: bool,
        method: str,
        target: str,
        content: bytes | None,
        headers: Mapping[str, str],
    ) -> Reply:
        """The answer of the first address that gives one; raises the error of the last."""
        tried: list[str] = []
        failed: Exception = OSError("there is no address")
        while (url := self._addresses.next(tried, is_write)) is not None:
            tried.append(url)
            try:
                reply = self._once(url, method, target, content, headers)
            except Led as error:
                failed, is_write = error, True
                if error.primary:
                    self._addresses.lead_to(error.primary, url)
            except ssl.SSLCertVerificationError:
                raise
            except (OSError, http.client.HTTPException) as error:
                if is_write and isinstance(error, Unanswered):
                    raise  # the server may still go on with it
                failed = error
                self._addresses.leave(url)
            else:
                if not is_write:
                    self._addresses.use(url)
                return reply
        raise failed

    def _connection(self, url: str, timeout_s: float) -> http.client.HTTPConnection:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host = parts.hostname or ""
        if parts.scheme != "https":
            return http.client.HTTPConnection(host, parts.port or 80, timeout=timeout_s)
        context = ssl.create_default_context(cadata=self._ca)
        port = parts.port or 443
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)

    def _once(
        self, url: str, method: str, target: str, content: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        sent = {**headers, **self._token_source.header()}
        connection = self._connection(url, ANSWER_WAIT_S + self._retry_s)
        try:
            connection.request(method, _prefix(url) + target, content, sent)
            try:
                response = connection.getresponse()
            except TimeoutError as error:
                raise Unanswered(str(error)) from None
            body = response.read()
        finally:
            connection.close()
        if response.status in AWAY:
            raise http.client.HTTPException(f"it answered {response.status}")
        primary = response.headers.get("SOW-Primary")
        if response.status == MISDIRECTED and primary is not None:
            raise Led(url, primary)
        if response.status >= 400:
            raise _refusal(self.url, response.status, body)
        return Reply(body, response.headers.get("SOW-Bookmark", ""))


def _checked(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ClientError(f"url {url!r} is not an address; write http://host:8080")
    if "@" in parts.netloc:
        # It would appear in every error, so it is not shown.
        raise ClientError("the option url contains a user; give the option token")
    return url


def _prefix(url: str) -> str:
    """The path below which the server is."""
    return urlsplit(url if "://" in url else f"http://{url}").path.rstrip("/")


def _refusal(url: str, status: int, body: bytes) -> SowError:
    try:
        document = json.loads(body)
        where = "in the filter: " if "position" in document else ""
        older = OLDER if document["detail"].startswith("no parameter ") else ""
        return ServerRefusal(f"{url}: {where}{document['detail']}{older}", document)
    except (ValueError, KeyError, TypeError):
        return SowError(f"{url} does not speak SOW: it answered {status}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def member(name: str) -> str:
    """A name as the only element of a list that commas separate."""
    return name.replace("%", "%25").replace(",", "%2C")


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
