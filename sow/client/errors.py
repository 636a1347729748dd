"""From what a server reports, or fails to, to the error a caller catches.

A problem document and a failure ack say the same things (`reason`, `detail`, and where); both
become the error that the server raised, so that one `except` serves either way of asking.
"""

import os
from collections.abc import Iterator, Mapping
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
    SowError,
    StoreError,
    StoreFailing,
    TooLarge,
    TooManyLogons,
    Unauthenticated,
    UnknownRecord,
    UnknownTopic,
)


class Unreachable(SowError):
    """No server answers at the address."""

    reason = "unreachable"
    status = 503


class OlderServer(ClientError):
    """The server at `url` does not know a parameter of a request: it is misspelt, or the server is
    of an older version than this client. `refused` is what the server said."""

    def __init__(self, url: str, refused: str) -> None:
        super().__init__(
            f"{refused}; if it is written as it should be, the server at {url} is of an older "
            "version than this client: update the server, or use a client of its version"
        )


class Disconnected(SowError):
    """The connection ended before its time; `reason` is the server's when it gave one.

    Of a publish `published` says how many messages are stored for certain, from the first one on.
    """

    reason = "disconnected"
    status = 503
    published: int | None = None

    def midway(self, published: int) -> Self:
        """The same error in the midst of a publish."""
        found = type(self)(
            f"{self.detail}; the first {published:,} of the messages are stored for certain, of "
            f"those behind them some may be: publish again from the one with the index {published}",
            reason=self.reason,
        )
        found.published = published
        return found


class ClosedByServer(Disconnected):
    """The server has given the session up and said why: there is nothing to come back to."""

    reason = "closed"


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
        StoreError,
        StoreFailing,
        TooLarge,
        TooManyLogons,
        Unauthenticated,
        UnknownRecord,
    )
} | {"bad orderby": BadFilter}


def failure(report: Mapping[str, Any]) -> SowError:
    """The error that a problem document, or a failure ack as a mapping, stands for.

    `report` may have `reason`, `detail`, `status` (of HTTP), `index` (of the bad message), `field`
    (of it, that does not fit) and `position` with `expected` (in an expression). The kind of the
    error follows from the reason; one that is not known becomes a ClientError, or a SowError if the
    status says that the server failed.
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
    if report.get("status") is not None and isinstance(report["status"], int):
        error.status = report["status"]
    return error


def _kind(report: Mapping[str, Any], reason: str, detail: str) -> type[SowError]:
    status = report.get("status")
    # An ack carries no HTTP status: there the words tell a missing topic from an unsuitable one.
    missing = status == 404 or (not isinstance(status, int) and detail.startswith("no topic "))
    if reason == UnknownTopic.reason and missing:
        return UnknownTopic
    default = SowError if isinstance(status, int) and status >= 500 else ClientError
    return BY_REASON.get(reason, default)


def not_sow(url: str, answered: str) -> Unreachable:
    """The error that something else than SOW, or another version of it, is at `url`."""
    return Unreachable(f"{url} does not speak SOW: it answered {answered or 'nothing'}")


@contextmanager
def reported(url: str) -> Iterator[None]:
    """Turn what the network throws into errors that name the server, at `url`.

    Raises Unreachable if nobody answers there or something else than SOW does, Disconnected if a
    connection broke, ClientError if `url` is no address.
    """
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        raise Unreachable(
            f"the certificate of the server at {url} is not trusted ({why}); give the file of the "
            "certificates by which it is (--ca or SOW_CA; ca in a program)"
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
    except aiohttp.InvalidURL as error:
        raise ClientError(f"{url} is not an address such as http://127.0.0.1:8080") from error
    except aiohttp.WSServerHandshakeError as error:
        if error.status == Unreachable.status:
            raise Unreachable(
                f"the server at {url} takes no more connections at the moment, or has just been "
                "started and puts its records back; try again in some seconds"
            ) from error
        if error.status == Unauthenticated.status:
            raise Unauthenticated(
                f"the server at {url} does not take what was shown: give a token (SOW_TOKEN), or a "
                "user and his password"
            ) from error
        if error.status == TooManyLogons.status:
            raise TooManyLogons(f"too many logons at {url}; try again in some seconds") from error
        raise not_sow(url, str(error.status)) from error
    except aiohttp.ClientResponseError as error:
        # Redirects without an end, or what is no HTTP at all, of which aiohttp shows several lines.
        raise not_sow(url, error.message.split("\n", 1)[0].rstrip(":")) from error
    except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
        what = str(error) or type(error).__name__
        if isinstance(error, aiohttp.ServerDisconnectedError) and url.startswith("http://"):
            # What a server that encrypts makes of a request that is not.
            what += "; if the server has TLS, write https://"
        raise Disconnected(f"the connection to {url} was lost: {what}") from error
