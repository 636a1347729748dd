"""Entries and slices for the tests of the store."""

from array import array
from collections.abc import Iterable

from hypothesis import strategies as st

from sow.store.protocols import EventOrigin, LogEntry, Slice, numbers

texts = st.text(st.characters(codec=None), max_size=8)
bodies = st.binary(max_size=40)
times = st.integers(0, 2**62)
origins = st.builds(EventOrigin, texts, times)


def publish(seq, *bodies, topic="orders", ts_us=1):
    return LogEntry("publish", topic, seq, ts_us, [f"k{i}" for i, _ in enumerate(bodies)], bodies)


def group(seq, count, size=100, ts_us=1):
    """One publish of `count` bodies that differ from all others."""
    return [publish(seq, *(b"%08d" % (seq + i) * (size // 8) for i in range(count)), ts_us=ts_us)]


def records(entries: Iterable[LogEntry]):
    """What the entries say, one record at a time, however they were cut."""
    entries = list(entries)
    assert all(isinstance(e.expires_us, int) or len(e.expires_us) == len(e) for e in entries)
    return [
        (e.op, e.topic, e.seq + i, e.ts_us, e.origin,
         e.expires_us if isinstance(e.expires_us, int) else e.expires_us[i],
         None if e.identities is None else e.identities[i], e.bodies[i] if e.bodies else None)
        for e in entries
        for i in range(len(e))
    ]  # fmt: skip


def part(first, count, size=100):
    """A slice of `count` records."""
    places = numbers(range(first, first + count))
    return Slice(
        identities=[f"k{n}" for n in places],
        bodies=[b"%08d" % n * (size // 8) for n in places],
        seqs=places,
        ts_us=places,
        born=places,
        expires_us=numbers([0] * count),
    )


@st.composite
def entry_lists(draw):
    entries, seq = [], draw(st.integers(1, 2**40))
    for _ in range(draw(st.integers(1, 4))):
        op = draw(st.sampled_from(["publish", "delete", "expire"]))
        names = draw(st.lists(texts, min_size=1, max_size=6))
        columns = st.lists(bodies, min_size=len(names), max_size=len(names))
        column = st.lists(times, min_size=len(names), max_size=len(names))
        entry = LogEntry(
            op=op,
            topic=draw(texts),
            seq=seq,
            ts_us=draw(times),
            identities=None if op == "publish" and draw(st.booleans()) else names,
            bodies=draw(columns) if op == "publish" else [],
            expires_us=draw(times | column) if op == "publish" else draw(times),
            origin=draw(st.none() | origins) if op == "publish" else None,
        )
        entries.append(entry)
        seq += len(entry)
    return entries


@st.composite
def slices(draw):
    count = draw(st.integers(0, 6))

    def column(values):
        return draw(st.lists(values, min_size=count, max_size=count))

    columns = [numbers(column(times)) for _ in range(4)]
    sow_keys = array("Q", column(st.integers(0, 2**64 - 1)))
    stored = count and draw(st.booleans())
    return Slice(column(texts), column(bodies), *columns, sow_keys if stored else None)
