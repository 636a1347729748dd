"""HTTP requests from Spark to the server, by the standard library, with retries.

Runs in Spark's Python workers, so it imports next to nothing. A request that fails to connect is
retried until `retry_s` have passed; every request of the data source is idempotent, since reads
name what they read and writes are staged under names of their own.
"""

import http.client
import json
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from sow.core.media_types import ARROW, JSON
from sow.errors import ClientError, SowError

PAUSE_S = 0.2
"""Pause before the first retry: a brief failure is over by then."""
PAUSE_S_MAX = 5.0
"""The longest pause, so that many tasks do not overload a server that is starting."""
ANSWER_WAIT_S = 30.0
"""Timeout of an answer, in addition to the time for retries: a server may be busy."""
AWAY = (502, 503, 504)
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


class SowServer:
    """A server at a URL. Can be pickled; connects again wherever it is used.

    `ca` are the trusted certificates of https://, as text in PEM form; None: those of the machine.
    """

    def __init__(
        self,
        url: str,
        token_source: TokenSource = NOBODY,
        retry_s: float = 60.0,
        ca: str | None = None,
    ) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ClientError(f"url {url!r} is not an address; write http://host:8080")
        if "@" in parts.netloc:
            # It would appear in every error, so it is not shown.
            raise ClientError("the option url contains a user; give the option token")
        if token_source.token and not is_token(token_source.token):
            raise ClientError("the token has invalid characters; copy it again")
        self.url = url
        self._secure = parts.scheme == "https"
        self._address = (parts.hostname, parts.port or (443 if self._secure else 80))
        self._prefix = parts.path.rstrip("/")
        self._token_source = token_source
        self._retry_s = retry_s
        self._ca = ca

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
        takes: the server goes on with it meanwhile, and does it once."""
        query = urlencode(
            {k: _text(v) for k, v in requested.items() if v is not None}, quote_via=quote
        )
        target = f"{self._prefix}{path}" + (f"?{query}" if query else "")
        headers = {"Accept": accept, "Content-Type": content_type}
        give_up, pause_s = time.monotonic() + self._retry_s, PAUSE_S
        while True:
            try:
                return self._once(method, target, content, headers | self._token_source.header())
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
                    raise SowError(
                        f"{self.url} cannot be reached: {error or type(error).__name__}; tried for "
                        f"{self._retry_s:g} s (option retryTimeout)"
                    ) from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(*self._address, timeout=timeout_s)
        context = ssl.create_default_context(cadata=self._ca)
        return http.client.HTTPSConnection(*self._address, timeout=timeout_s, context=context)

    def _once(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        connection = self._connection(ANSWER_WAIT_S + self._retry_s)
        try:
            connection.request(method, target, content, dict(headers))
            try:
                response = connection.getresponse()
            except TimeoutError as error:
                raise Unanswered(str(error)) from None
            body = response.read()
        finally:
            connection.close()
        if response.status in AWAY:
            raise http.client.HTTPException(f"it answered {response.status}")
        if response.status >= 400:
            raise _refusal(self.url, response.status, body)
        return Reply(body, response.headers.get("SOW-Bookmark", ""))


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
