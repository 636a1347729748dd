"""Which topics each span of the log has, so that a reader of a quiet topic passes over the others.

A span is about a megabyte of consecutive groups. Its topics are noted when the groups are written,
or when a reader has walked through them; what was never noted is read. So a span is passed over
only on what this process has seen in it, never on a byte that nobody has verified. Nothing is
stored: a process begins without spans.
"""

import sys
import threading
from bisect import bisect_right
from collections.abc import Container, Iterable
from typing import NamedTuple

SPAN_BYTES = 1024**2
"""A reader passes over so much in the time in which it reads a few records."""
TOPICS_MAX = 64
"""A span of more topics counts as one of any topic, so that its names take less than a hundredth
of what it holds."""
SPANS_MAX = 16_384
"""The oldest spans are forgotten beyond that: a log of 16 GiB, some 20 MB of names at the most."""


class Span(NamedTuple):
    """Consecutive groups: records `first` to `last`, of `topics`; None: of any."""

    first: int
    last: int
    size_bytes: int
    topics: frozenset[str] | None


class TopicSpans:
    """The spans of one log, in order. Any thread may use them."""

    def __init__(self, span_bytes: int = SPAN_BYTES, spans_max: int = SPANS_MAX) -> None:
        self._span_bytes = span_bytes
        self._spans_max = spans_max
        self._spans: list[Span] = []
        self._lock = threading.Lock()

    def note(self, first: int, last: int, size_bytes: int, topics: Iterable[str]) -> None:
        """A group holds records `first` to `last` of `topics`; nothing changes if it is known."""
        with self._lock:
            at = self._place(first)
            before = self._spans[at] if at >= 0 else None
            if before is not None and before.last >= first:
                return
            names = _bounded(frozenset(map(sys.intern, topics)))
            if before is None or before.last + 1 != first or before.size_bytes > self._span_bytes:
                self._spans.insert(at + 1, Span(first, last, size_bytes, names))
                del self._spans[: max(0, len(self._spans) - self._spans_max)]
            else:
                size_bytes += before.size_bytes
                if names is None or before.topics is None:
                    names = None
                elif names <= before.topics:
                    names = before.topics  # mostly: no new set
                else:
                    names = _bounded(names | before.topics)
                self._spans[at] = Span(before.first, last, size_bytes, names)

    def look(self, seq: int, topics: Container[str]) -> tuple[int, bool]:
        """The end of the span that record `seq` is in, and whether it may have one of `topics`.

        A stretch that is not known ends before the next span and may have all.
        """
        with self._lock:
            at = self._place(seq)
            if at >= 0 and (span := self._spans[at]).last >= seq:
                names = span.topics
                return span.last, names is None or any(name in topics for name in names)
            following = at + 1
            known = following < len(self._spans)
            return (self._spans[following].first - 1 if known else sys.maxsize), True

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


def _bounded(topics: frozenset[str]) -> frozenset[str] | None:
    return topics if len(topics) <= TOPICS_MAX else None
