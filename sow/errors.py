"""Every error the product reports, and whose fault each one is.

    SowError
      ClientError            the request is wrong; 4xx, or a failure ack; of an expression it
                             carries the character position and what was expected
        BadMessage           a body that cannot be stored; carries the index in its batch,
                             and the field where one does not fit the Schema
          LargeMessage       one that nests too deeply, or has too many values
        NotKept              a moment that the log does not tell of
        BadFilter            an expression that does not compile
        UnknownTopic         no topic of that name
        UnknownRecord        no record of that key
        InvalidTopic         the topic exists but does not take this command
        AnotherLog           a bookmark of another log, of which nothing is known here
        NotAvailable         planned, not built yet
        Unauthenticated      nobody has said who asks, or what he shows is not good
        NotEntitled          the user may not do that
        TooManyLogons        it was tried too often; it may be tried again after a while
        TooLarge             over a configured limit
      Busy                   others hold what this request needs; it may be sent again
        IssuerAway           whoever signs tokens cannot be reached
        Replaying            the server has just been started, and has not all records yet
      Stopped                a view that would take too much to keep; it has no rows
      Full                   a limit of what is stored: nothing was stored, reads go on
      ConfigError            the operator's config.xml; carries line and element
      StoreError             the disk
        DiskFull             no room: nothing was stored, reads go on
        StoreFailing         the disk refuses for another reason: the same
        Damaged              stored bytes are not what was written

`reason` is a short stable phrase for programs (the vocabulary of AMPS acks); `detail` is a
sentence for people that says what, where, why, and what to write instead; `status` is the HTTP
status. An exception outside this tree is a bug of ours.
"""

from pathlib import Path
from typing import Self

SHOWN_MAX = 80
"""So many characters of what was sent are repeated: enough to find it by, and no echo."""


def shown(text: str) -> str:
    """`text` in quotes, for a message; the end of a long one is left out."""
    return repr(str(clipped(text)))


def clipped(text: str) -> str:
    """The same without quotes."""
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def described(error: Exception) -> str:
    """An error that is a bug of ours in one line, for the log: what, and where in the code."""
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
    """The request cannot be carried out as it stands; sending it again will not help.

    One that is about an expression or a list has the 0-based character of it at which it breaks in
    `position`, and in `expected` what could have stood there; whatever the reason.
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
        """Where an expression broke, and what could have stood there."""
        if self.position is None:
            return {}
        return {"position": self.position, "expected": self.expected}


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
        """The same about a message that stands behind `by` others."""
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
    """A moment that the log does not tell of: it is not kept any more, or has not come. Where a
    state is asked for, `told` holds the `oldest` and the `newest` moment that there is."""

    reason = "invalid bookmark"

    def __init__(self, detail: str, *, reason: str | None = None) -> None:
        super().__init__(detail, reason=reason)
        self.told: dict[str, object] = {}

    def fields(self) -> dict[str, object]:
        """The moments between which a state can be asked for."""
        return self.told


class BadFilter(ClientError):
    """An expression that does not compile; it always has a position."""

    reason = "bad filter"

    def __init__(
        self, detail: str, *, position: int = 0, expected: str = "", reason: str | None = None
    ) -> None:
        super().__init__(detail, reason=reason, position=position, expected=expected)


class UnknownTopic(ClientError):
    """No topic of that name is configured. `wanted` is the name, where it is told which are near:
    whoever may not see these is told of others (`sow.sessions.error_redaction`)."""

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
    the sentence names `others`, `alone` is what is told to whoever may not see these."""

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


class NotAvailable(ClientError):
    """Planned and not built in this version; refused by name, never ignored."""

    reason = "not available yet"


class Unauthenticated(ClientError):
    """Nobody has said who asks, or what he shows is not good."""

    reason = "auth failure"
    status = 401


class NotEntitled(ClientError):
    """The user may not do that."""

    reason = "not entitled"
    status = 403


class TooManyLogons(ClientError):
    """Somebody there has tried too often, or too many do at once; it may be tried again in
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
    """There is no room for this at the moment; nothing was done, and it may be sent again."""

    reason = "busy"
    status = 503
    retry_after_s = 1


class IssuerAway(Busy):
    """Whoever signs tokens cannot be reached, so that it is not known whether one is good."""

    retry_after_s = 5


class Replaying(Busy):
    """The server has just been started and puts its records back; nothing was done."""

    reason = "replaying"
    retry_after_s = 5


class Stopped(SowError):
    """A view or a conflated topic has stopped, since what it would hold is too much to find out, or
    the server fails on it; its records are gone, and nothing of what they were made of is."""

    reason = "stopped"
    status = 503


class Full(SowError):
    """A limit of what may be stored is reached; nothing was stored, and what frees room works."""

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
    """The disk refuses writes though there is room: nothing was stored; reads are still served."""

    reason = "store failing"
    status = 503


class Damaged(StoreError):
    """Stored bytes are not the bytes that were written; they are not served."""

    reason = "damaged"
