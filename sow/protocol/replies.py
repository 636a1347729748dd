"""The server's messages to a session: the vocabulary of its lines, as plain dictionaries.

One function a line, in the words of the protocol. The lines of records do not pass through here:
they are made straight from columns (`sow.topic.rendering`).
"""

from collections.abc import Sequence
from typing import cast

from sow.errors import SowError

Reply = dict[str, object]


class SentPlace(int):
    """The bookmark of a turn of a conflated topic: a place in what it has sent, ``SEQ.N``. SEQ is
    the newest change of its original that it has sent, N the time of the turn. Taken for a
    number it is SEQ, which was no later.
    """

    time_us: int
    text: bytes

    def __new__(cls, seq: int, time_us: int) -> "SentPlace":
        """After all that was due up to a time; `seq` is the newest change in that."""
        place = super().__new__(cls, seq)
        place.time_us, place.text = time_us, b"%d.%d" % (seq, time_us)
        return place

    def __lt__(self, other: int) -> bool:
        if isinstance(other, SentPlace) and int(self) == int(other):
            return self.time_us < other.time_us
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        if isinstance(other, SentPlace) and int(self) == int(other):
            return self.time_us > other.time_us
        return int(self) > int(other)


def has_places(seqs: Sequence[int]) -> bool:
    """Whether bookmarks are places; those of one batch are of one kind."""
    return len(seqs) > 0 and isinstance(seqs[0], SentPlace)


def place_texts(seqs: Sequence[int]) -> list[bytes]:
    """How bookmarks that are places are written: without a call for each line of a turn."""
    return [place.text for place in cast(Sequence[SentPlace], seqs)]


def bookmark_bytes(seq: int) -> bytes:
    """How a bookmark is written."""
    return seq.text if isinstance(seq, SentPlace) else b"%d" % seq


def ack(cid: str | None, kind: str, **more: object) -> Reply:
    """A command got as far as `kind`: processed, persisted or completed."""
    line: Reply = {"c": "ack", "a": kind, "status": "success"}
    if cid is not None:
        line["cid"] = cid
    line.update((name, value) for name, value in more.items() if value is not None)
    return line


def failure(cid: str | None, error: SowError, kind: str = "processed") -> Reply:
    """A command was refused; nothing of it was carried out."""
    line: Reply = {"c": "ack", "a": kind, "status": "failure"}
    if cid is not None:
        line["cid"] = cid
    return line | {"reason": error.reason, "detail": error.detail} | error.fields()


def group_begin(subscription: str) -> Reply:
    """A snapshot starts."""
    return {"c": "group_begin", "s": subscription}


def group_end(subscription: str, seq: int) -> Reply:
    """The snapshot is complete, exact as of bookmark `seq`."""
    return {"c": "group_end", "s": subscription, "bm": bookmark_bytes(seq).decode()}


def turn_end(subscription: str, seq: int) -> Reply:
    """A live window is complete as of bookmark `seq`: no line of a turn is missing."""
    return {"c": "turn_end", "s": subscription, "bm": str(seq)}


def unsubscribed(subscription: str, reason: str, detail: str | None = None) -> Reply:
    """The server ended a subscription; `detail` is a sentence for people."""
    line: Reply = {"c": "unsubscribed", "s": subscription, "reason": reason}
    return line if detail is None else line | {"detail": detail}


def heartbeat() -> Reply:
    """The server is there."""
    return {"c": "heartbeat"}


def conflated(messages: int, dropped: int) -> Reply:
    """A heartbeat with the number of messages that the client will not see, because newer ones
    replaced them or because their subscription was given up; both since the session began."""
    return {"c": "heartbeat", "conflated": messages, "dropped": dropped}


QUEUE_MEMORY = "queue memory"
"""Why a session is closed for which most waits (`sow.sessions.commands.queue_relief`)."""


def close(reason: str) -> Reply:
    """The last line before the server closes the connection."""
    return {"c": "close", "reason": reason}
