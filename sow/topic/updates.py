"""Updates: one record's change as a subscriber is to be told it, and how two become one.

An update says whether the subscriber was told of a record (`told`, and in what state it holds it:
`old`) and what holds now (`new`). Folding two updates of one record keeps what the first one says
was told and what the second one says holds, so that what comes out is exact however many were
folded:

    told     new      say
    -        -        nothing: it came and went unseen
    -        yes      p, the whole record
    yes      yes      p, whole or as a delta
    yes      -        oof

An update knows nothing of sessions, queues or time; `sow.streaming.feeds` makes and renders them.
"""

from typing import NamedTuple

from sow.core.changes import Reason
from sow.core.delta import Document, composed


class Update(NamedTuple):
    """A change of one record.

    `told`: the subscriber holds an earlier state, `old`, as far as that is known. `new` is None
    when the record leaves; `reason` then says why, and `parting` is the state that no longer
    matches, if that is the reason. `delta` holds what the subscriber sees
    of the fields that changed since the state it holds, and those that changed and changed back;
    None where the whole record has to say it: it is new to the subscriber, came back after it had
    left, or lost a field. `merged`: `new` is no state of the record but what several were merged
    to. `seq` and `ts_us` are of the newest change, the `first_` ones of the oldest one that is
    folded in.
    """

    identity: str
    known: bool
    new: bytes | None
    seq: int
    ts_us: int
    first_seq: int
    first_ts_us: int
    reason: Reason | None = None
    parting: bytes | None = None
    delta: Document | None = None
    merged: bool = False
    old: bytes | None = None

    @property
    def last(self) -> bytes:
        """What an oof carries: the state that no longer matches, or of a record that is gone the
        last one that the subscriber was told."""
        return (self.parting if self.reason == "match" else self.old) or b""

    @property
    def is_void(self) -> bool:
        """There is nothing to say: the record came and went, and nobody was told."""
        return self.new is None and not self.known


def compose(current: Update, new: Update) -> Update:
    """Both updates as one, with the bookmark and the time of the older one.

    Where updates are matched by something else than their record, `new` may be another record's:
    then it says what it says by itself, in the place of the older one.
    """
    known, old, delta = new.known, new.old, new.delta
    if new.identity == current.identity:
        known, old = current.known, current.old
        if delta is not None:
            delta = None if current.delta is None else composed(current.delta, delta)
    return new._replace(
        known=known,
        old=old,
        delta=delta,
        first_seq=current.first_seq,
        first_ts_us=current.first_ts_us,
    )
