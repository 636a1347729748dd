"""Every error that the product reports, and where the fault lies.

    SowError
      ClientError            the request is wrong; 4xx, or a failure ack; of an expression it
                             carries the character position and what was expected
        BadMessage           a body that cannot be stored; carries the index in its batch,
                             and the field where one does not fit the Schema
          LargeMessage       one that nests too deeply, or has too many values
        NotKept              a bookmark or time that the log does not cover
        BadFilter            an expression that does not compile
        UnknownTopic         no topic of that name
        UnknownRecord        no record of that key
        InvalidTopic         the topic exists but does not take this command
        AnotherLog           a bookmark of another log, unknown to this server
        NotPrimary           a write to a server that follows another one
        NotAvailable         planned, not built yet
        Unauthenticated      no credentials, or credentials that are not valid
        NotEntitled          the user may not do that
        TooManyLogons        too many attempts; the client may retry later
        TooLarge             over a configured limit
      Busy                   a resource is held by other requests; retry later
        IssuerAway           the issuer of signed tokens cannot be reached
        NotReached           a bookmark was requested that is not reached in time
        Replaying            the server has just started and is still replaying its log
        UpstreamLost         a chained server cannot reach the one that has the records
        LogUnanswered        the engine of the shared log has not answered; nobody knows
        Stale                what is here may be out of date, and nobody knows
      Stopped                a view that needs too much memory; it has no rows
      Full                   a limit of what is stored: nothing was stored, reads go on
      ConfigError            the operator's config.xml; carries line and element
      StoreError             the disk
        DiskFull             no room: nothing was stored, reads go on
        StoreFailing         the disk refuses for another reason: the same
        Damaged              stored bytes are not what was written
          StateDiffers       a node has not the records that the others of its log have
        LogTrimmed           the shared log does not go back so far
        LogEnded             its content was moved to a local log
        UnsafeLog            settings of its engine lose what was acknowledged
        NoQuorum             its engine stores nothing: nothing was applied
        NotLeading           another node leads it now: what was not acknowledged is not in it
        OutcomeUnknown       this node has left it, and does not know what it has stored

`reason` is a short stable phrase for programs (the vocabulary of AMPS acks); `detail` is a sentence
for people: what, where, why, and what to write instead; `status` is the HTTP status. An exception
outside this tree is a bug of ours.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

SHOWN_MAX = 80
"""Maximum number of characters of the client's input that a message repeats."""


def shown(text: str) -> str:
    """`text` in quotes, for a message; a long one is cut."""
    return repr(str(clipped(text)))


def clipped(text: str) -> str:
    """The same without quotes."""
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def described(error: Exception) -> str:
    """An internal error in one line, for the log: what, and where in the code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    said = f"{type(error).__name__}: {clipped(' '.join(str(error).split()))}"
    if trace is None:
        return said
    code = trace.tb_frame.f_code
    return f"{said} ({Path(code.co_filename).name}:{trace.tb_lineno}, {code.co_name})"


class SowError(Exception):
    """Base of all reported errors; never raised itself."""

    reason = "internal error"
    status = 500

    def __init__(self, detail: str, *, reason: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        if reason is not None:
            self.reason = reason

    def fields(self) -> dict[str, object]:
        """What this error adds to a problem document beside reason and detail."""
        return {}

    def afresh(self) -> Self:
        """The same error without a traceback: what is raised refers to all that was running."""
        error = type(self).__new__(type(self), *self.args)
        error.__dict__.update(self.__dict__)
        return error


class ClientError(SowError):
    """The request is invalid; retrying it will not help.

    For an error in an expression or a list, `position` is the 0-based character of the error and
    `expected` what could have been there.
    """

    reason = "bad request"
    status = 400

    def __init__(
        self,
        detail: str,
        *,
        reason: str | None = None,
        position: int | None = None,
        expected: str = "",
    ) -> None:
        super().__init__(detail, reason=reason)
        self.position = position
        self.expected = expected

    def fields(self) -> dict[str, object]:
        """Where an expression is wrong, and what could have been there."""
        if self.position is None:
            return {}
        return {"position": self.position, "expected": self.expected}


def invalid_options(detail: str) -> ClientError:
    """Options of a command that are wrong, or do not go together."""
    return ClientError(detail, reason="invalid options")


def invalid_bookmark(detail: str) -> ClientError:
    """A bookmark that is none, or that the log does not have."""
    return ClientError(detail, reason="invalid bookmark")


class BadMessage(ClientError):
    """A message body that cannot be stored. `index` is its 0-based place in the request, `field`
    the path of the field that does not fit the topic's Schema."""

    reason = "bad message"

    def __init__(
        self, detail: str, *, index: int = 0, reason: str | None = None, field: str | None = None
    ) -> None:
        super().__init__(detail, reason=reason)
        self.index = index
        self.field = field

    def moved(self, by: int) -> "BadMessage":
        """The same error for a message preceded by `by` others."""
        detail, named = self.detail, f"message {self.index}"
        if detail.startswith(named):
            detail = f"message {self.index + by}{detail.removeprefix(named)}"
        return type(self)(detail, index=self.index + by, reason=self.reason, field=self.field)

    def fields(self) -> dict[str, object]:
        """The index of the message within its request, and the field that does not fit."""
        found: dict[str, object] = {"index": self.index}
        return found if self.field is None else {**found, "field": self.field}


class LargeMessage(BadMessage):
    """A message body that nests deeper than messages of its type may, or has more values."""

    reason = "too large"
    status = 413


class NotKept(ClientError):
    """A moment that the log does not cover: no longer kept, or still in the future. For a query of
    a past state, `bounds` holds the `oldest` and the `newest` available moment."""

    reason = "invalid bookmark"

    def __init__(self, detail: str, *, reason: str | None = None) -> None:
        super().__init__(detail, reason=reason)
        self.bounds: dict[str, object] = {}

    def fields(self) -> dict[str, object]:
        """The oldest and the newest moment whose state can be queried."""
        return self.bounds


class BadFilter(ClientError):
    """An expression that does not compile; it always has a position."""

    reason = "bad filter"

    def __init__(
        self, detail: str, *, position: int = 0, expected: str = "", reason: str | None = None
    ) -> None:
        super().__init__(detail, reason=reason, position=position, expected=expected)


class UnknownTopic(ClientError):
    """No topic of that name is configured. `wanted` is the name, where the detail suggests similar
    ones; a user who may not see these gets others (`sow.sessions.queries.access_control`)."""

    reason = "invalid topic"
    status = 404

    def __init__(self, detail: str, *, reason: str | None = None, wanted: str = "") -> None:
        super().__init__(detail, reason=reason)
        self.wanted = wanted


class UnknownRecord(ClientError):
    """No record of that key is in the topic."""

    reason = "not found"
    status = 404


class InvalidTopic(ClientError):
    """The topic exists but cannot take this command, such as a publish to a conflated topic. Where
    the detail names `others`, `alone` is the detail for a user who may not see these."""

    reason = "invalid topic"

    def __init__(
        self,
        detail: str,
        *,
        reason: str | None = None,
        others: tuple[str, ...] = (),
        alone: str = "",
    ) -> None:
        super().__init__(detail, reason=reason)
        self.others = others
        self.alone = alone


class AnotherLog(ClientError):
    """A bookmark names a log that is not this server's: its number means nothing here."""

    reason = "another log"
    status = 409


class NotPrimary(ClientError):
    """The server follows another one, `primary`, which takes what this one does not."""

    reason = "not primary"
    status = 421

    def __init__(self, detail: str, *, reason: str | None = None, primary: str = "") -> None:
        super().__init__(detail, reason=reason)
        self.primary = primary

    def fields(self) -> dict[str, object]:
        """The address of the server that takes it."""
        return {"primary": self.primary}


class NotAvailable(ClientError):
    """Planned and not built in this version; refused by name, never ignored."""

    reason = "not available yet"


class Unauthenticated(ClientError):
    """The client sent no credentials, or credentials that are not valid."""

    reason = "auth failure"
    status = 401


class NotEntitled(ClientError):
    """The user may not do that."""

    reason = "not entitled"
    status = 403


class TooManyLogons(ClientError):
    """Too many attempts from one address, or too many at once; the client may retry after
    `wait_us`."""

    reason = "too many logons"
    status = 429

    def __init__(self, detail: str, *, reason: str | None = None, wait_us: int = 0) -> None:
        super().__init__(detail, reason=reason)
        self.wait_us = wait_us


class TooLarge(ClientError):
    """Over a configured limit."""

    reason = "too large"
    status = 413


class Busy(SowError):
    """A temporary shortage; nothing was done, and the client may retry."""

    reason = "busy"
    status = 503
    retry_after_s = 1


class IssuerAway(Busy):
    """The issuer of signed tokens cannot be reached, so a token cannot be verified."""

    retry_after_s = 5


class NotReached(Busy):
    """The server has not reached the bookmark that an answer is to contain."""

    reason = "not yet"
    status = 504


class Replaying(Busy):
    """The server has just started and is replaying its log; nothing was done."""

    reason = "replaying"
    retry_after_s = 5


class UpstreamLost(Busy):
    """A chained server cannot reach its upstream: nothing was done, or nobody knows."""

    reason = "upstream lost"


class LogUnanswered(Busy):
    """The engine of the shared log has not answered: whether it has stored what was handed over, or
    will, nobody knows yet."""

    reason = "outcome unknown"


class Stale(Busy):
    """The node of a shared log that leads has stored nothing for a lease: another one may lead, so
    its records may be out of date."""

    reason = "stale"


class Stopped(SowError):
    """A view or a conflated topic has stopped, because it needs too much memory or failed with an
    internal error. Its records are gone; its sources are unaffected."""

    reason = "stopped"
    status = 503


class Full(SowError):
    """A storage limit is reached; nothing was stored, and deletes still work."""

    reason = "memory full"
    status = 507


class ConfigError(SowError):
    """A mistake in config.xml, at a line and an element, which the detail begins with."""

    reason = "bad configuration"

    def __init__(self, detail: str, *, file: str = "", line: int = 0, element: str = "") -> None:
        super().__init__(f"{file}:{line}: {element}: {detail}" if file else detail)
        self.file = file
        self.line = line
        self.element = element


class StoreError(SowError):
    """The data directory cannot be used."""

    reason = "store error"


class DiskFull(StoreError):
    """No room on the disk: nothing of the request is acknowledged; reads are still served."""

    reason = "disk full"
    status = 507


class StoreFailing(StoreError):
    """The disk rejects writes although it has room: nothing was stored; reads are still served."""

    reason = "store failing"
    status = 503


class NoQuorum(StoreError):
    """The engine of the shared log has stored nothing for a lease: nothing is taken until it does
    again. Nothing of the request was applied."""

    reason = "no quorum"
    status = 503


class NotLeading(NotPrimary, StoreError):
    """Another node of the shared log leads now. What this one had not acknowledged is not in the
    log, and never will be."""


class OutcomeUnknown(StoreError):
    """It was handed over to the shared log, and this node will not hear what became of it."""

    reason = "outcome unknown"
    status = 503


class Damaged(StoreError):
    """Stored bytes are not the bytes that were written; they are not served."""

    reason = "damaged"


class StateDiffers(Damaged):
    """A node of a shared log has not the records that the others have at the same bookmark."""

    reason = "state differs"


class LogTrimmed(StoreError):
    """The shared log has let go of the entries that follow what is here, up to the position
    `until`: a checkpoint of another node is needed first."""

    reason = "log trimmed"

    def __init__(self, detail: str, until: int = 0) -> None:
        super().__init__(detail)
        self.until = until

    def afresh(self) -> Self:
        """See `SowError`."""
        return type(self)(self.detail, self.until)


class LogEnded(StoreError):
    """The shared log goes on elsewhere: no node writes behind its end."""

    reason = "log ended"


class UnsafeLog(StoreError):
    """The engine of the shared log has settings that lose what it has answered, or they cannot be
    read. Nothing was appended; `<Unsafe>true</Unsafe>` accepts them."""

    reason = "unsafe log"


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def written_whole(path: object) -> Iterator[None]:
    """Raise StoreError with advice where the disk has no room for `path`, which is written as a
    whole or not at all. What the server does about a full disk: `sow.engine.capacity`."""
    try:
        yield
    except (OSError, SowError) as error:
        if not is_no_room(error):
            raise
        raise StoreError(
            f"{path}: the disk has no room for all of it, and nothing of it is left there; free "
            "some space, or name a place on another disk"
        ) from error


def is_no_room(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is that the disk has no room."""
    if error is None or isinstance(error, DiskFull):
        return error is not None
    # LMDB's errors have a code; a StoreError has the original as its cause.
    number = getattr(error, "errno", None) or getattr(error, "code", None)
    return number in NO_ROOM or is_no_room(error.__cause__)
