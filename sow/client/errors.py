"""Errors of the client: those that the server reports, and those of the connection.

A problem document and a failure ack have the same fields (`reason`, `detail`, and the position);
both become the error that the server raised, so that a caller handles HTTP and WebSockets alike.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import aiohttp

from sow.errors import (
    AnotherLog,
    BadFilter,
    BadMessage,
    ClientError,
    Damaged,
    DiskFull,
    InvalidTopic,
    NotAvailable,
    NotEntitled,
    NotPrimary,
    SowError,
    StoreError,
    StoreFailing,
    TooLarge,
    TooManyLogons,
    Unauthenticated,
    UnknownRecord,
    UnknownTopic,
    shown,
)


class Unreachable(SowError):
    """No server answers at the address."""

    reason = "unreachable"
    status = 503


class OlderServer(ClientError):
    """The server at `url` does not know a parameter of a request: it is misspelt, or the server is
    older than this client. `refused` is the server's message."""

    def __init__(self, url: str, refused: str) -> None:
        super().__init__(
            f"{refused}; if it is spelt correctly, the server at {url} is of an older version than "
            "this client: update the server, or use a client of its version"
        )


class Disconnected(SowError):
    """The connection was lost; `reason` is the server's, if it gave one.

    For a publish, `published` is the number of messages, from the first on, that are certainly
    stored.
    """

    reason = "disconnected"
    status = 503
    published: int | None = None

    def midway(self, published: int) -> Self:
        """The same error during a publish."""
        found = type(self)(
            f"{self.detail}; the first {published:,} messages are stored, and later ones may be: "
            f"publish again from index {published}",
            reason=self.reason,
        )
        found.published = published
        return found


class ClosedByServer(Disconnected):
    """The server has closed the session with a reason: it cannot be resumed."""

    reason = "closed"


class SequenceLost(ClientError):
    """The server knows of other numbers of a publisher than its store: its name has expired, its
    log has gone back, or another program has published under the name. `held` is the highest number
    in the store, `highest` that of the server. Nothing is dropped."""

    reason = "sequence lost"
    status = 409

    def __init__(self, name: str, held: int, highest: int) -> None:
        super().__init__(
            f"the store of {shown(name)} holds numbers up to {held}, and the server has {highest}: "
            "the name has expired or gone back, or another program uses it. What waits may be on "
            "the server already: look there, then restart() numbers it again"
        )
        self.held = held
        self.highest = highest


BY_REASON: Mapping[str, type[SowError]] = {
    kind.reason: kind
    for kind in (
        AnotherLog,
        BadFilter,
        ClientError,
        Damaged,
        DiskFull,
        InvalidTopic,
        NotEntitled,
        NotAvailable,
        NotPrimary,
        StoreError,
        StoreFailing,
        TooLarge,
        TooManyLogons,
        Unauthenticated,
        UnknownRecord,
    )
} | {"bad orderby": BadFilter}


def failure(report: Mapping[str, Any]) -> SowError:
    """The error of a problem document, or of a failure ack as a mapping.

    `report` may have `reason`, `detail`, `status` (of HTTP), `index` (of the bad message), `field`
    (the bad one in it), `position` with `expected` (in an expression) and `primary`. The class of
    the error follows from the reason; an unknown reason gives a ClientError, or a SowError if the
    status is 500 or more.
    """
    reason = str(report.get("reason") or SowError.reason)
    detail = str(report.get("detail") or reason)
    error: SowError
    if report.get("index") is not None:
        index, field = int(report["index"]), report.get("field")
        error = BadMessage(detail, index=index, reason=reason, field=field)
    else:
        error = _kind(report, reason, detail)(detail, reason=reason)
    if report.get("position") is not None and isinstance(error, ClientError):
        error.position = int(report["position"])
        error.expected = str(report.get("expected") or "")
    if isinstance(error, NotPrimary):
        error.primary = str(report.get("primary") or "")
    if report.get("status") is not None and isinstance(report["status"], int):
        error.status = report["status"]
    return error


def _kind(report: Mapping[str, Any], reason: str, detail: str) -> type[SowError]:
    status = report.get("status")
    # An ack has no HTTP status: its text separates a missing topic from an unsuitable one.
    missing = status == 404 or (not isinstance(status, int) and detail.startswith("no topic "))
    if reason == UnknownTopic.reason and missing:
        return UnknownTopic
    default = SowError if isinstance(status, int) and status >= 500 else ClientError
    return BY_REASON.get(reason, default)


PASSING = frozenset({"upstream lost", "replaying", "not yet", "stale"})
"""Reasons of a server that does not answer as it should for now, and has done nothing."""


def is_away(error: SowError) -> bool:
    """Whether a server does not answer for now, so that another one may."""
    return isinstance(error, Unreachable | Disconnected) or error.reason in PASSING


LATER = frozenset(
    {"busy", "replaying", "disk full", "store error", "store failing", "memory full",
     "internal error", "too many logons", "stopped"}
)  # fmt: skip
"""Reasons of a refusal that are no fault of the message: what has a number can be sent again, and
what may have been stored is not stored twice."""
TAKEN_ELSEWHERE = frozenset({"not primary", "no quorum", "upstream lost", "outcome unknown"})
"""Reasons to look for the server that takes it, which are no errors: what has a number can be sent
again there."""
NAME_REPLACED = "replaced"


def is_passing(error: SowError) -> bool:
    """Whether what has numbers may succeed later, or elsewhere."""
    return isinstance(error, Disconnected | Unreachable) or error.reason in LATER | TAKEN_ELSEWHERE


def none_answers(errors: Sequence[SowError]) -> SowError:
    """The error of a round in which no address could be used, from that of each."""
    first, *others = errors
    if not others or all(isinstance(error, AnotherLog) for error in errors):
        return first
    named = "; ".join(error.detail for error in errors)
    return Unreachable(f"none of {len(errors)} addresses can be used: {named}")


def not_sow(url: str, answered: str) -> Unreachable:
    """The error for a server at `url` that is not SOW, or another version of it."""
    return Unreachable(f"{url} does not speak SOW: it answered {answered or 'nothing'}")


def _of_handshake(url: str, status: int) -> SowError:
    if status == Unreachable.status:
        return Unreachable(
            f"the server at {url} accepts no more connections at the moment, or is starting "
            "and restores its records; try again in some seconds"
        )
    if status == Unauthenticated.status:
        return Unauthenticated(
            f"the server at {url} rejects the credentials: give a token (SOW_TOKEN), or a user "
            "and password"
        )
    if status == TooManyLogons.status:
        return TooManyLogons(f"too many logons at {url}; try again in some seconds")
    return not_sow(url, str(status))


@contextmanager
def reported(url: str) -> Iterator[None]:
    """Convert errors of the network into errors that name the server at `url`.

    Raises Unreachable if no SOW server answers there, Disconnected if a connection broke,
    ClientError if `url` is not an address.
    """
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        raise Unreachable(
            f"the certificate of the server at {url} is not trusted ({why}); give the file of the "
            "certificates to trust (--ca or SOW_CA; ca in a program)"
        ) from error
    except aiohttp.ClientSSLError as error:
        raise Unreachable(
            f"no encrypted connection to {url} ({error.os_error.strerror or error.os_error}); if "
            "the server has no TLS, write http://"
        ) from error
    except aiohttp.ClientConnectorError as error:
        number = error.os_error.errno
        why = os.strerror(number) if number and number > 0 else str(error.os_error)
        raise Unreachable(
            f"no server answers at {url} ({why.lower()}); start one with sow serve, "
            "or give the address of one (--url or SOW_URL; url in a program)"
        ) from error
    except aiohttp.ConnectionTimeoutError as error:
        raise Unreachable(f"no server answers at {url} in time ({error})") from error
    except aiohttp.InvalidURL as error:
        raise ClientError(f"{url} is not an address such as http://127.0.0.1:8080") from error
    except aiohttp.WSServerHandshakeError as error:
        raise _of_handshake(url, error.status) from error
    except aiohttp.ClientResponseError as error:
        # A redirect loop, or a server that does not speak HTTP: aiohttp shows several lines.
        raise not_sow(url, error.message.split("\n", 1)[0].rstrip(":")) from error
    except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
        what = str(error) or type(error).__name__
        if isinstance(error, aiohttp.ServerDisconnectedError) and url.startswith("http://"):
            # A TLS server closes a plain-text connection like this.
            what += "; if the server has TLS, write https://"
        raise Disconnected(f"the connection to {url} was lost: {what}") from error
