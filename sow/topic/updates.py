"""Updates: one record's change as a subscriber is to get it, and how two become one.

An update has the state that the subscriber holds (`known`: it holds one, and `old`: which) and the
state that is true now (`new`). Folding two updates of one record keeps the held state of the first
and the new state of the second, so the result is exact however many are folded:

    known    new      line
    -        -        none: it came and went unseen
    -        yes      p, the whole record
    yes      yes      p, whole or as a delta
    yes      -        oof

An update knows nothing of sessions, queues or time; `sow.streaming.feeds` makes and renders them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from sow.core.delta import Document, composed
from sow.topic.batch import Reason


class Update(NamedTuple):
    """A change of one record.

    `known`: the subscriber holds an earlier state, `old`, as far as that is known. `new` is None
    when the record leaves; `reason` is then why, and `parting` is the state that no longer matches,
    if that is the reason. `delta` has what the subscriber sees of the fields that changed since the
    state it holds, and of those that changed and changed back; None where the whole record is
    needed: it is new to the subscriber, came back after it had left, or lost a field. `merged`:
    `new` is no state of the record but several that were merged. `mark` is what its line has at its
    end, where it is an edit of an event. `seq` and `ts_us` are of the
    newest change, the `first_` ones of the oldest one that is folded in.
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
    mark: bytes = b""

    @property
    def last(self) -> bytes:
        """What an oof carries: the state that no longer matches, or the last one that the
        subscriber was sent of a removed record."""
        return (self.parting if self.reason == "match" else self.old) or b""

    def states(self) -> Iterator[bytes]:
        """The states of its record that it refers to."""
        return filter(None, (self.new, self.old, self.parting))

    @property
    def is_void(self) -> bool:
        """There is nothing to send: the record came and went unseen."""
        return self.new is None and not self.known


def compose(current: Update, new: Update) -> Update:
    """Both updates as one, with the bookmark and the time of the older one.

    Where updates are matched by something else than their record, `new` may be another record's:
    then it keeps its own content, in the place of the older one.
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
