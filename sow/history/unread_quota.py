"""Unread answers: rows that clients have requested and not read, counted and bounded.

A short request may select a million rows, which are pinned until the client has read them. A client
is a session, or over HTTP the user that a request counts for; one may leave a fraction unread of
what all may leave together. Only the number of rows matters here.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Self

from sow.errors import Busy
from sow.history.snapshot import ANSWER_CHUNK_ROWS
from sow.protocol.encodings import Frames

UNREAD_ROWS_MAX = 4_000_000
"""Rows of answers that all sessions may leave unread; each takes up to some 50 bytes, and the body
once its record has changed."""
UNREAD_PART = 2
"""One session may leave this fraction unread. Its first answer may have any length."""


class UnreadQuota:
    """Rows that clients have requested and not read.

    A client is a session, or over HTTP the user that a request counts for.
    """

    def __init__(self, rows_max: int = UNREAD_ROWS_MAX) -> None:
        self.rows = 0
        self._rows_max = rows_max
        self._by_client: Counter[Hashable] = Counter()

    def check(self, client: Hashable, rows: int) -> None:
        """Raise Busy if something has to be read before so many more rows are given out."""
        own = self._by_client[client]
        if own and own + rows > self._rows_max // UNREAD_PART:
            raise Busy(
                f"answers of {own} rows wait for this client to read them; read them before "
                f"asking for {rows} more"
            )
        if self.rows and self.rows + rows > self._rows_max:
            raise Busy(
                f"answers of {self.rows} rows wait for clients to read them, as many as may; ask "
                "again in a moment, or for fewer rows"
            )

    def hold(
        self,
        client: Hashable,
        rows: int,
        frames: Frames,
        noted: Callable[[int], object] = lambda _rows: None,
    ) -> Frames:
        """The frames of an answer, whose rows count until they are read or dropped; `noted` is
        called with their number, and with minus that."""
        return _UnreadFrames(self, client, rows, frames, noted)

    def answer(self, client: Hashable) -> "UnreadAnswer":
        """An answer whose rows are not known yet."""
        return UnreadAnswer(self, client)

    def count(self, client: Hashable, rows: int) -> None:
        """Count so many more rows of a client; fewer if negative."""
        self.rows += rows
        self._by_client[client] += rows
        if not self._by_client[client]:
            del self._by_client[client]


class _UnreadFrames:
    """Frames that count as unread until they are exhausted."""

    def __init__(
        self,
        unread: UnreadQuota,
        client: Hashable,
        rows: int,
        frames: Frames,
        noted: Callable[[int], object],
    ) -> None:
        self._unread = unread
        self._client = client
        self._rows = rows
        self._frames = frames
        self._noted = noted
        unread.count(client, rows)
        noted(rows)

    def __iter__(self) -> Frames:
        return self

    def __next__(self) -> tuple[bytes, int]:
        made = next(self._frames, None)
        if made is None:
            self._release()
            raise StopIteration
        return made

    def __del__(self) -> None:
        # Clearing a queue only drops its entries.
        self._release()

    def _release(self) -> None:
        rows, self._rows = self._rows, 0
        if rows:
            self._unread.count(self._client, -rows)
            self._noted(-rows)


class UnreadAnswer:
    """An answer that `client` waits for: its rows count from `admit` to the end of the context."""

    def __init__(self, unread: UnreadQuota, client: Hashable) -> None:
        self._unread = unread
        self._client = client
        self._rows = 0

    def admit(self, rows: int) -> None:
        """So many rows are about to be pinned; raises Busy where they are too many. What is written
        in one go does not count."""
        if rows > ANSWER_CHUNK_ROWS:
            self._unread.check(self._client, rows)
            self._unread.count(self._client, rows)
            self._rows += rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._rows:
            self._unread.count(self._client, -self._rows)
