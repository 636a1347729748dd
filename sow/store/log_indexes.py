"""Indexes of the log: what was open after some record, and what a reader may pass over.

Which windows of a conflated topic are open follows from all changes before, so to send again what
it has sent would begin with the log. With what was open after some record it begins there. These
files are an index of the log, and nothing else: where one is missing, or not as it was written, a
replay begins earlier, and says the same (`WindowFiles`).

A span is about a megabyte of consecutive groups. The records of each topic in it are counted when
the groups are written, or when a reader has walked through them; what was never counted is read. So
a span is passed over only on what this process has seen in it, never on a byte that nobody has
verified. Of spans nothing is stored (`TopicSpans`).
"""

import logging
import sys
import threading
from bisect import bisect_right
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sow.core.cooperative import Task
from sow.errors import StoreError
from sow.store import make_directory, rewrite
from sow.store.layout import HEADER_BYTES, OPEN_WINDOWS, seal, unseal
from sow.store.protocols import OpenWindows, WindowsPlace

log = logging.getLogger("sow")

SUFFIX, UNFINISHED = ".windows", ".unfinished"
READ_BYTES = 128 * 1024
"""What one step reads of open windows: a millisecond or so."""
FILE_BYTES_MAX = 64 * 1024**2
"""Windows that take more are not kept: a file is read, and its checksum compared, in one step each
of some 20 ms for so much."""
LISTS = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))
"""The first bytes of lists in msgpack."""


def encode_windows(found: OpenWindows) -> bytes:
    """Open windows as bytes."""
    return msgspec.msgpack.encode(found)


def seal_windows(found: OpenWindows) -> bytes:
    """Open windows as a file has them."""
    content, count = encode_windows(found), len(found.windows)
    return seal(OPEN_WINDOWS, content, seq=found.seq, count=count, ts_us=found.time_us)[0]


def decode_windows(content: bytes | memoryview) -> Task[OpenWindows]:
    """Open windows, read in steps; raises ValueError."""
    seq, time_us, windows = msgspec.msgpack.decode(content, type=tuple[int, int, msgspec.Raw])
    yield
    return OpenWindows(seq, time_us, (yield from _decoded(memoryview(windows))))


def _decoded(content: bytes | memoryview) -> Task[Any]:
    """What these bytes say; of a long list some items are read in each step."""
    if len(content) <= READ_BYTES or content[0] not in LISTS:
        return msgspec.msgpack.decode(content)
    items = msgspec.msgpack.decode(content, type=list[msgspec.Raw])
    yield
    found, count = list[Any](), max(1, len(items) * READ_BYTES // len(content))
    for start in range(0, len(items), count):
        some = items[start : start + count]
        if len(some) > 1:
            found += yield from _decoded(msgspec.msgpack.encode(some))
        else:
            found.append((yield from _decoded(memoryview(some[0]))))
        yield
    return found


class WindowFiles:
    """The files in `directory`, of a log that ends with record `last_seq`. One thread writes."""

    def __init__(self, directory: Path, last_seq: int) -> None:
        self._directory = directory
        found = map(_place_of, directory.glob(f"*{SUFFIX}"))
        self._places = sorted(one for one in found if one is not None)
        # What a repair has taken from the log may be numbered otherwise by now.
        self._drop([one for one in self._places if one.seq > last_seq])
        # A process has died while it wrote one.
        for path in directory.glob(f"*{UNFINISHED}"):
            path.unlink(missing_ok=True)

    @property
    def places(self) -> Sequence[WindowsPlace]:
        """Where some are kept, in order."""
        return self._places

    def put(self, place: WindowsPlace, block: bytes) -> None:
        """Keep what `seal_windows` made of those of a record that is durable and later than all
        others, unless they are too many; raises StoreError."""
        if len(block) > FILE_BYTES_MAX:
            return
        path = self._path(place)
        unfinished = path.with_suffix(UNFINISHED)
        try:
            make_directory(self._directory)
            with rewrite(unfinished) as file:
                file.write(block)
            unfinished.rename(path)
        except OSError as error:
            # The disk may be full: what is there of it takes room from the log.
            with suppress(OSError):
                unfinished.unlink()
            raise StoreError(f"{path} cannot be written: {error.strerror}") from error
        self._places = [*self._places, place]

    def load(self, place: WindowsPlace) -> Task[OpenWindows | None]:
        """Those of a place, read in steps; None where they are kept no more, or are not as they
        were written."""
        path = self._path(place)
        try:
            block = path.read_bytes()
            yield
            unseal(block, OPEN_WINDOWS)
            yield
            return (yield from decode_windows(memoryview(block)[HEADER_BYTES:]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning(
                "%s is left out, and what was sent is computed from an earlier place: %s",
                path,
                error,
            )
            self._places = [one for one in self._places if one != place]
            return None

    def forget(self, before_seq: int) -> None:
        """Keep none that are of earlier records than one."""
        self._drop([one for one in self._places if one.seq < before_seq])

    def _drop(self, gone: Sequence[WindowsPlace]) -> None:
        for place in gone:
            self._path(place).unlink(missing_ok=True)
        if gone:
            self._places = [one for one in self._places if one not in gone]

    def _path(self, place: WindowsPlace) -> Path:
        return self._directory / f"{place.seq}-{place.time_us}{SUFFIX}"


def _place_of(path: Path) -> WindowsPlace | None:
    """The place in a file's name, if it names one."""
    seq, _, time_us = path.stem.partition("-")
    is_place = seq.isascii() and seq.isdigit() and time_us.isascii() and time_us.isdigit()
    return WindowsPlace(int(seq), int(time_us)) if is_place else None


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
