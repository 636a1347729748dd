"""Paced feeds: subscriptions that are conflated in time (`conflation=1s`, `conflation=auto`).

A paced feed holds its updates in a conflator, one composed update a key, until their window ends
or, with `auto`, until its client has taken what was sent before. Snapshots never wait.

Who joins late shares the windows that are open already. Its snapshot holds what waits in them, so
until those windows have ended it is a *newcomer*: it is told what changed since its snapshot, and
no more.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from conflated_topics import Conflator, OnDemand, PerKey
from sow.batch import Batch
from sow.expressions import Filter
from sow.feeds import Delivery, Feed, FeedKey
from sow.folding import Key
from sow.sessions import Session
from sow.updates import Update, compose
from sow.wire import Encoding

if TYPE_CHECKING:
    from sow.keyed_topic import KeyedTopic
    from sow.paths import Path

FOREVER_US = 2**62


class Newcomer:
    """A member that joined at `seq`, while `held` waited."""

    def __init__(self, seq: int, held: Mapping[Key, Update]) -> None:
        self.seq = seq
        self.held = dict(held)

    def corrected(self, released: Iterable[tuple[Key, Update]]) -> list[Update]:
        """What released updates mean to someone whose snapshot is as of `seq`."""
        updates: list[Update] = []
        for key, update in released:
            held = self.held.get(key)
            if held is None:
                updates.append(update)
            elif update.seq <= self.seq:
                if held.seq <= update.seq:
                    del self.held[key]
            else:
                del self.held[key]
                updates.append(update._replace(told=held.new is not None, delta=None))
        return updates


class PacedFeed(Feed):
    """A feed with a conflator."""

    def __init__(
        self,
        name: str,
        topic: "KeyedTopic",
        key: FeedKey,
        condition: Filter | None,
        encoding: Encoding,
        conflation_key: "tuple[Path, ...]" = (),
    ) -> None:
        super().__init__(name, topic, key, condition, encoding)
        self._batched = False
        self._conflation_key = conflation_key
        self._demand = OnDemand[Key]() if key.interval_us is None else None
        self.conflator: Conflator[Key, Update] = Conflator(
            self._demand or PerKey(key.interval_us or 1), compose
        )
        self._released: list[tuple[Key, Update]] = []
        self._newcomers: dict[Session, Newcomer] = {}

    @property
    def waiting(self) -> bool:
        """There is something that `flush` would hand out."""
        return bool(self._released) or self._client_is_ready()

    def _client_is_ready(self) -> bool:
        """The one client of an `auto` feed has taken all that was sent, and more waits for it."""
        return (
            self._demand is not None
            and len(self.conflator) > 0
            and all(session.idle for session in self.members)
        )

    def join_at(self, session: Session, seq: int) -> None:
        """Add a member that knows everything up to `seq`; 0: it is to be told what waits."""
        super().join_at(session, seq)
        held = self.conflator.pending()
        if seq and held:
            self._newcomers[session] = Newcomer(seq, held)

    def leave(self, session: Session) -> None:
        """Take a member out."""
        super().leave(session)
        self._newcomers.pop(session, None)

    def pending_for(self, session: Session) -> Mapping[Key, Update]:
        """What waits to be said to a member, by what it is conflated by."""
        pending = self.conflator.pending()
        newcomer = self._newcomers.get(session)
        if newcomer is None:
            return pending
        fixed = Newcomer(newcomer.seq, newcomer.held).corrected(pending.items())
        return {(update.identity,): update for update in fixed}

    def _take(self, batch: Batch, at: int, update: Update, now_us: int) -> None:
        key: Key = (update.identity,)
        if self._conflation_key:
            key = tuple(str(value) for value in batch.row(self._conflation_key, at))
        self.conflator.offer((key,), (update,), now_us)

    def hears_more(self) -> bool:
        """Something waits in the conflator."""
        return len(self.conflator) > 0

    def due_us(self) -> int | None:
        """When `release` next has something to do."""
        return self.conflator.due_us()

    def release(self, now_us: int) -> None:
        """Take out of the conflator what is due; `flush` hands it out."""
        if self._demand is not None and now_us == FOREVER_US:
            self._demand.demand()
        self._released += self.conflator.take(now_us).items()

    def collect(self) -> list[bytes]:
        """The lines of what was released, for a feed without members."""
        released, self._released = self._released, []
        return [line for _, update in released if (line := self.line(update)) is not None]

    def flush(self, group: int, now_us: int) -> None:
        """Hand out what was released; newcomers get it as it concerns them."""
        if self._client_is_ready():
            assert self._demand is not None
            self._demand.demand()
            self.release(now_us)
        released, self._released = self._released, []
        settled = [session for session in self.members if session not in self._newcomers]
        if settled:
            self._deliver_to(settled, (update for _, update in released), group, now_us)
        for session, newcomer in list(self._newcomers.items()):
            self._deliver_to([session], newcomer.corrected(released), group, now_us)
            if not newcomer.held:
                del self._newcomers[session]

    def _deliver_to(
        self, sessions: list[Session], updates: Iterable[Update], group: int, now_us: int
    ) -> None:
        said = [(line, update) for update in updates if (line := self.line(update)) is not None]
        if said:
            lines = [line for line, _ in said]
            delivery = Delivery(self, lines, [update for _, update in said], [])
            for session in sessions:
                session.deliver(delivery, group, now_us)
