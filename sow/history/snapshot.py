"""Snapshots: the rows of an answer, held still while they are written out.

An answer names slots, and slots change with the next publish. A snapshot takes hold of the
bodies themselves (8 bytes a row: bodies never change), so that a million rows can be written
piece by piece, as fast as a client takes them, and still be the state of one moment. What is asked
for and not read is bounded by rows, for each session and for all (`Unread`).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sow.encodings import Encoding, Frames
from sow.errors import Busy
from sow.topic.records import Records
from sow.topic.rendering import WHOLE, LineColumns, Shape

ANSWER_CHUNK_ROWS = 500
"""Rows that are written in one go; between two such chunks others may be served."""
UNREAD_ROWS_MAX = 4_000_000
"""Rows of answers that all sessions may leave unread; each takes up to some 200 bytes."""
UNREAD_PART = 2
"""One session may leave one part in so many unread. Its first answer may have any length."""


@dataclass(slots=True)
class Snapshot:
    """Rows of one topic as columns."""

    topic: Records
    identities: list[str]
    bodies: list[bytes]
    sow_keys: list[str]
    seqs: list[int]
    ts_us: list[int]

    @classmethod
    def take(cls, topic: Records, slots: Sequence[int], with_keys: bool = True) -> "Snapshot":
        """The records in these slots as they are now."""
        table = topic.table
        slots = list(slots)
        identities = [table.identities[slot] or "" for slot in slots]
        return cls(
            topic,
            identities,
            [table.bodies[slot] or b"" for slot in slots],
            table.sow_keys(slots, identities) if with_keys else [],
            table.seqs[slots].tolist() if with_keys else [],
            table.ts_us[slots].tolist() if with_keys else [],
        )

    def __len__(self) -> int:
        return len(self.bodies)

    def without(self, identities: Collection[str]) -> "Snapshot":
        """The rows of all other records."""
        return self.at(
            [at for at, identity in enumerate(self.identities) if identity not in identities]
        )

    def first(self, count: int) -> "Snapshot":
        """The first rows."""
        return self.at(range(min(count, len(self))))

    def at(self, places: Sequence[int]) -> "Snapshot":
        """Some of the rows."""
        return Snapshot(
            self.topic,
            [self.identities[at] for at in places],
            [self.bodies[at] for at in places],
            [self.sow_keys[at] for at in places],
            [self.seqs[at] for at in places],
            [self.ts_us[at] for at in places],
        )

    def lines(self, encoding: Encoding, head: bytes, shape: Shape, start: int) -> list[bytes]:
        """Rendered `sow` lines of the chunk that starts at row `start`."""
        columns = self._chunk(start)
        lines = self.topic.renderer.lines("sow", shape, columns, head)
        return encoding.records("sow", lines, columns.seqs)

    def _chunk(self, start: int) -> LineColumns:
        rows = slice(start, start + ANSWER_CHUNK_ROWS)
        return LineColumns(
            self.sow_keys[rows], self.bodies[rows], self.seqs[rows], self.ts_us[rows]
        )

    def frames(self, encoding: Encoding, head: bytes, shape: Shape) -> Frames:
        """The same in frames, each made when it is asked for."""
        for start in range(0, len(self), ANSWER_CHUNK_ROWS):
            lines = self.lines(encoding, head, shape, start)
            yield encoding.frame(lines), len(lines)

    def documents(self, meta: bool, shape: Shape = WHOLE) -> Iterator[list[bytes]]:
        """Chunks of rows as JSON texts: bodies, or bodies wrapped with key, bookmark and time."""
        for start in range(0, len(self), ANSWER_CHUNK_ROWS):
            yield self.topic.renderer.documents(shape, self._chunk(start), meta)


class Unread:
    """Rows that sessions have asked for and not read: a line of text asks for a million of them."""

    def __init__(self, rows_max: int = UNREAD_ROWS_MAX) -> None:
        self.rows = 0
        self._rows_max = rows_max
        self._by_session: Counter[str] = Counter()

    def check(self, session_id: str, rows: int) -> None:
        """Raise Busy if something has to be read before so many rows more are given out."""
        own = self._by_session[session_id]
        if own and own + rows > self._rows_max // UNREAD_PART:
            raise Busy(
                f"answers of {own} rows wait for this session to read them; read them before "
                f"asking for {rows} more"
            )
        if self.rows and self.rows + rows > self._rows_max:
            raise Busy(
                f"answers of {self.rows} rows wait for sessions to read them, as many as may; ask "
                "again in a moment, or for fewer rows"
            )

    def hold(self, session_id: str, rows: int, frames: Frames) -> Frames:
        """The frames of an answer, whose rows count until they are read or let go."""
        return _UnreadFrames(self, session_id, rows, frames)

    def count(self, session_id: str, rows: int) -> None:
        """So many rows more of a session; fewer if it is negative."""
        self.rows += rows
        self._by_session[session_id] += rows
        if not self._by_session[session_id]:
            del self._by_session[session_id]


class _UnreadFrames:
    """Frames that count as unread for as long as there are some."""

    def __init__(self, unread: Unread, session_id: str, rows: int, frames: Frames) -> None:
        self._unread = unread
        self._session_id = session_id
        self._rows = rows
        self._frames = frames
        unread.count(session_id, rows)

    def __iter__(self) -> Frames:
        return self

    def __next__(self) -> tuple[bytes, int]:
        made = next(self._frames, None)
        if made is None:
            self._release()
            raise StopIteration
        return made

    def __del__(self) -> None:
        # A queue that is cleared lets go of its entries, and that is all it does.
        self._release()

    def _release(self) -> None:
        rows, self._rows = self._rows, 0
        if rows:
            self._unread.count(self._session_id, -rows)
