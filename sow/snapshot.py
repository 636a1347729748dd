"""Snapshots: the rows of an answer, held still while they are written out.

An answer names slots, and slots change with the next publish. A snapshot takes hold of the
bodies themselves (8 bytes a row: bodies never change), so that a million rows can be written
piece by piece, as fast as a client takes them, and still be the state of one moment.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sow.keyed_topic import KeyedTopic
from sow.outbox import Frames
from sow.rendering import Shape, shown_bodies
from sow.wire import Encoding, quoted, record_lines, timestamp

CHUNK_ROWS = 500
WHOLE = Shape()


@dataclass(slots=True)
class Snapshot:
    """Rows of one topic as columns."""

    topic: KeyedTopic
    identities: list[str]
    bodies: list[bytes]
    sow_keys: list[str]
    seqs: list[int]
    ts_us: list[int]

    @classmethod
    def take(cls, topic: KeyedTopic, slots: Sequence[int], with_keys: bool = True) -> "Snapshot":
        """The records in these slots as they are now."""
        table = topic.table
        slots = list(slots)
        names = [table.identities[slot] or "" for slot in slots]
        return cls(
            topic,
            names,
            [table.bodies[slot] or b"" for slot in slots],
            table.sow_keys(slots, names) if with_keys else [],
            table.seqs[slots].tolist() if with_keys else [],
            table.ts_us[slots].tolist() if with_keys else [],
        )

    def __len__(self) -> int:
        return len(self.bodies)

    def without(self, names: Collection[str]) -> "Snapshot":
        """The rows of all other records."""
        return self.at([at for at, name in enumerate(self.identities) if name not in names])

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
        rows = slice(start, start + CHUNK_ROWS)
        lines = record_lines(
            head,
            quoted(self.sow_keys[rows]) if shape.sow_keys else None,
            self.topic.line_bodies(shown_bodies(self.topic, shape, self.bodies[rows])),
            None,
            self.ts_us[rows] if shape.timestamps else None,
        )
        return encoding.records("sow", lines, self.seqs[rows])

    def frames(self, encoding: Encoding, head: bytes, shape: Shape) -> Frames:
        """The same in frames, each made when it is asked for."""
        for start in range(0, len(self), CHUNK_ROWS):
            lines = self.lines(encoding, head, shape, start)
            yield encoding.frame(lines), len(lines)

    def documents(self, meta: bool, shape: Shape = WHOLE) -> Iterator[list[bytes]]:
        """Chunks of rows as JSON texts: bodies, or bodies wrapped with key, bookmark and time."""
        for start in range(0, len(self), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            bodies = shown_bodies(self.topic, shape, self.bodies[rows])
            if not meta:
                yield list(self.topic.json_texts(bodies))
                continue
            yield [
                b'{"k":%b,"bm":"%d","ts":"%b","d":%b}' % (key, seq, timestamp(ts).encode(), body)
                for key, seq, ts, body in zip(
                    quoted(self.sow_keys[rows]),
                    self.seqs[rows],
                    self.ts_us[rows],
                    self.topic.line_bodies(bodies),
                    strict=True,
                )
            ]
