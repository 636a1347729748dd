"""Sorts the records of a stream by their times, in front of the core.

The core (`conflated_topics.recorded`) folds records in the order of their times, and cannot undo a
fold. So records wait here until no older one can come any more.

    came ──> waiting ──older than the watermark──> core ──> rows
      └──older than the watermark after earlier batches──> late, never folded

The *watermark* is the newest time of all records, less the allowed lateness. A record is late if it
is older than the watermark after earlier batches; those of its own batch do not count. The results
are the windows of the records that were not late, cut as if these had come in order: batch
boundaries do not change them.

Records of one time wait for each other, too, so that the columns that break ties decide. It reads
no clock, and sees only some of the keys, except that the newest time is that of all of them.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.envelope import Envelope, from_ipc, to_ipc
from conflated_topics.recorded import State, refuse_other_columns, step, times_us
from conflated_topics.spec import WINDOW_END, Spec

MAGIC_OF_EARLIER_RELEASES = b"CTRS"
AGAIN = (
    "begin again with a new checkpoint (of a pipeline: remove its Checkpoint, or its directory "
    "under pipelines in the data directory)"
)
ENVELOPE = Envelope(b"CTRO", 1, "conflated stream", AGAIN)


@dataclass(frozen=True)
class OrderedStream:
    """The state of a stream after a batch. Immutable; each function makes the next one.

    `newest_us` is the newest time reported, `watermark_us` the time before which the core has all
    records, and `waiting` the records that it does not have yet.
    """

    state: State
    newest_us: int | None = None
    watermark_us: int | None = None
    waiting: Any = None

    def to_bytes(self, buckets: int) -> bytes:
        """This stream, for `from_bytes`, as one of `buckets` parts by key."""
        waiting = b"" if self.waiting is None else to_ipc(self.waiting)
        about = {
            "buckets": buckets,
            "newest_us": self.newest_us,
            "watermark_us": self.watermark_us,
        }
        return ENVELOPE.seal(about, [self.state.to_bytes(), waiting])

    @classmethod
    def from_bytes(cls, data: bytes, spec: Spec, buckets: int) -> "OrderedStream":
        """The stream that `to_bytes` wrote; raises ValueError for one that cannot continue.

        That is one of another spec, or of another number of buckets, which distributes keys
        differently.
        """
        if data[:4] == MAGIC_OF_EARLIER_RELEASES:
            raise ValueError(
                "this state was written by an earlier release, in which it depended on the number "
                f"of shuffle partitions, and cannot be continued; {AGAIN}"
            )
        about, (state, waiting) = ENVELOPE.open(data)
        ENVELOPE.refuse_another(about, {"buckets": buckets})
        return cls(
            State.from_bytes(state, spec),
            about["newest_us"],
            about["watermark_us"],
            from_ipc(waiting) if waiting else None,
        )


def take_in(
    stream: OrderedStream, came: Any, newest_us: int | None, lateness_us: int, ends: bool = False
) -> tuple[OrderedStream, Any, Any]:
    """Process a batch; returns the next stream, the rows of windows that ended, and late records.

    `newest_us` is the newest time of this batch, whatever the keys; None: there was none. Records
    that are up to `lateness_us` older than that of an earlier batch are folded in their order.
    `ends` marks the last batch: every window is emitted, and later records older than the newest
    one are late, since they might be older than emitted ones.
    """
    spec = stream.state.spec
    time_us = times_us(came[spec.time], spec.time)
    late = np.zeros(len(came), np.bool_)
    if stream.watermark_us is not None:
        late = time_us < stream.watermark_us
    records = behind(stream.waiting, came.filter(pa.array(~late)))
    newest_us = latest(stream.newest_us, newest_us)
    allowed_us = 0 if ends else lateness_us
    watermark_us = None if newest_us is None else newest_us - allowed_us
    stream = replace(
        stream,
        newest_us=newest_us,
        watermark_us=latest(stream.watermark_us, watermark_us),
    )
    stream, out = _handed_over(stream, records, ends)
    return stream, out, came.filter(pa.array(late))


def fall_silent(stream: OrderedStream, now_us: int) -> tuple[OrderedStream, Any]:
    """Emit the windows that ended by `now_us`, since nothing came for a while.

    The watermark moves to the end of the last of them and no further, so that as few later records
    as possible are late.
    """
    records = stream.waiting
    if records is None:
        raise ValueError("nothing has come yet, so nothing can have fallen silent")
    before = _older(records, stream.state.spec, now_us)
    _, ended = step(stream.state, records.filter(before), now_us)
    if not len(ended):
        return stream, ended
    until_us = pc.max(ended[WINDOW_END]).cast(pa.int64()).as_py()
    stream = replace(stream, watermark_us=latest(stream.watermark_us, until_us))
    return _handed_over(stream, records, ends=False)


def _handed_over(stream: OrderedStream, records: Any, ends: bool) -> tuple[OrderedStream, Any]:
    """Pass the records older than the watermark, or all, to the core; the others wait."""
    ready = _older(records, stream.state.spec, stream.watermark_us)
    if ends:
        ready = pa.array(np.ones(len(records), np.bool_))
    state, out = step(stream.state, records.filter(ready), stream.watermark_us, ends)
    waiting = records.filter(pc.invert(ready)).combine_chunks()
    return replace(stream, state=state, waiting=waiting), out


def _older(records: Any, spec: Spec, bound_us: int | None) -> Any:
    """Which records are older than a time; none of them without a time."""
    if bound_us is None:
        return pa.array(np.zeros(len(records), np.bool_))
    return pa.array(times_us(records[spec.time], spec.time) < bound_us)


def behind(waiting: Any, fresh: Any) -> Any:
    """Waiting rows, if there are any, and then new ones; raises ValueError for other columns."""
    if waiting is None:
        return fresh
    refuse_other_columns(waiting.schema, fresh.schema)
    return pa.concat_tables([waiting, fresh]).unify_dictionaries()


def latest(one_us: int | None, other_us: int | None) -> int | None:
    """The later one of two times; None if there is none."""
    return max((t for t in (one_us, other_us) if t is not None), default=None)
