"""The records of each topic in each span of the log: what a reader may pass over or count.

A span is about a megabyte of consecutive groups. Its records are counted when the groups are
written, or when a reader has walked through them; what was never counted is read. So a span is
passed over only on what this process has seen in it, never on a byte that nobody has verified.
Nothing is stored: a process begins without spans.
"""

import sys
import threading
from bisect import bisect_right
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import NamedTuple

SPAN_BYTES = 1024**2
"""A reader passes over so much in the time in which it reads a few records."""
TOPICS_MAX = 64
"""A span of more topics counts as one of any topic, so that its names take less than a hundredth
of what it holds."""
SPANS_MAX = 16_384
"""The oldest spans are forgotten beyond that: a log of 16 GiB, some 60 MB of counts at the most."""


@dataclass(slots=True)
class _Span:
    """Consecutive groups: records `first` to `last`, so many of each topic; None: of any."""

    first: int
    last: int
    size_bytes: int
    rows: dict[str, int] | None


class SpanRows(NamedTuple):
    """What is known of records `first` to `last`: how many of the requested topics there are; None:
    they have to be read."""

    first: int
    last: int
    rows: Mapping[str, int] | None


class TopicSpans:
    """The spans of one log, in order. Any thread may use them."""

    def __init__(self, span_bytes: int = SPAN_BYTES, spans_max: int = SPANS_MAX) -> None:
        self._span_bytes = span_bytes
        self._spans_max = spans_max
        self._spans: list[_Span] = []
        self._lock = threading.Lock()

    def note(self, first: int, last: int, size_bytes: int, rows: Mapping[str, int]) -> None:
        """A group holds records `first` to `last`, `rows` of each topic; nothing changes if it is
        known."""
        with self._lock:
            at = self._place(first)
            before = self._spans[at] if at >= 0 else None
            if before is not None and before.last >= first:
                return
            if before is None or before.last + 1 != first or before.size_bytes > self._span_bytes:
                before = _Span(first, last, 0, {})
                self._spans.insert(at + 1, before)
                del self._spans[: max(0, len(self._spans) - self._spans_max)]
            before.last = last
            before.size_bytes += size_bytes
            if before.rows is not None:
                for topic, count in rows.items():
                    name = sys.intern(topic)
                    before.rows[name] = before.rows.get(name, 0) + count
                if len(before.rows) > TOPICS_MAX:
                    before.rows = None

    def look(self, seq: int, topics: Container[str]) -> SpanRows:
        """What is known of the span that record `seq` is in; what is in none ends before the next
        one."""
        with self._lock:
            at = self._place(seq)
            if at >= 0 and (span := self._spans[at]).last >= seq:
                counts = span.rows
                rows = counts and {name: n for name, n in counts.items() if name in topics}
                return SpanRows(span.first, span.last, rows)
            following = at + 1
            is_last = following == len(self._spans)
            return SpanRows(seq, sys.maxsize if is_last else self._spans[following].first - 1, None)

    def knows(self, seq: int) -> bool:
        """Whether the group with record `seq` was noted."""
        with self._lock:
            at = self._place(seq)
            return at >= 0 and self._spans[at].last >= seq

    def drop(self, up_to_seq: int) -> None:
        """Forget the spans that end at record `up_to_seq` or before: they were removed."""
        with self._lock:
            count = bisect_right(self._spans, up_to_seq, key=lambda span: span.last)
            del self._spans[:count]

    def _place(self, seq: int) -> int:
        """The place of the last span that begins at record `seq` or before; -1: none."""
        if self._spans and self._spans[-1].first <= seq:
            return len(self._spans) - 1  # mostly: the newest
        return bisect_right(self._spans, seq, key=lambda span: span.first) - 1
