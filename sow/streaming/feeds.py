"""Feeds: a subscription's view of a topic's changes, evaluated once for all its subscribers.

A feed projects a batch of changes through its filter. One table gives the line for each change
(`known`: the subscriber holds an earlier state):

    known    now      line
    no       yes      p       new to the subscriber, or came into focus
    yes      yes      p       changed; as a delta for subscriptions that requested deltas
    yes      no       oof     left focus (only for feeds that requested oof)
    no       no       none

A subscriber whose snapshot had everything in focus holds a record exactly if the record was in
focus before. Other subscribers hold what the feed has sent: such a feed tracks those records
(`known`) by their slots, which stay theirs until the feed has processed their removal.

A feed's `UpdateEncoder` (`sow.streaming.update_encoder`) encodes the updates, and its channel
(`sow.streaming.channel`) collects them over all topics of the subscription. Equal subscriptions
share a channel and its feeds. A feed whose channel has a conflator
(`ConflatedFeed`) emits nothing until its updates are released.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from sow.expressions import Filter
from sow.streaming.channel import Channel, DirectChannel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import Columns, FeedKey, UpdateEncoder
from sow.topic.batch import Batch, Edit, Update
from sow.topic.queue_policy import Key, key_of
from sow.topic.records import Records

FEW_OF = 8
"""A record by itself takes some eight times as long as one of a batch."""

RECORD_US, FOCUS_US, STATE_US, DELTA_US, SELECT_US, WINDOW_US = 0.3, 1.0, 4.0, 4.0, 12.0, 4.0
"""What a record takes a feed, about: a line whose end others share; a filter; an update by itself;
a delta of all fields; a delta, or the whole, of a select list of its own; its place in a window."""
TESTS_FREE, TEST_US = 64, 0.2
"""Each test of a filter that has more than a few: a user may see what one of a thousand conditions
lets through."""

Place = int | str
"""How a feed that tracks records knows one: by its slot, or by its identity where nothing is
stored, or the log reported it, which names records that may have gone."""


class Feed:
    """One topic as one distinct subscription sees it. A pattern may have a hundred thousand."""

    __slots__ = (
        "_needs_old", "_wants_oof", "channel", "condition", "encoder", "key", "known",
        "knows_what_is_held", "shape", "tests_us", "topic", "wants_old",
    )  # fmt: skip

    def __init__(
        self, channel: Channel, topic: Records, key: FeedKey, condition: Filter | None
    ) -> None:
        self.channel = channel
        self.topic = topic
        self.key = key
        self.condition = condition
        tests = 0 if condition is None else condition.expression.contents.tests
        self.tests_us = TEST_US * max(0, tests - TESTS_FREE)
        """What the tests of a dear filter take for a record."""
        self.shape = key.shape
        self.encoder = UpdateEncoder(topic, channel.name, channel.encoding, key)
        # Where nothing is stored, no snapshot and no old state shows what a subscriber holds.
        accounts = key.accounts or (key.oof and not topic.retains)
        self.known: set[Place] | None = set() if accounts else None
        self.wants_old = key.reports_withdrawn or key.delta or key.accounts
        """Records that were in focus matter, whether they still are or not."""
        self._needs_old = self.wants_old and not accounts
        self._wants_oof = key.oof
        self.knows_what_is_held = True
        """A waiting update has the state that each client holds of its record."""

    @property
    def name(self) -> str:
        """The name that its lines carry."""
        return self.channel.name

    @property
    def members(self) -> dict[Session, None]:
        """The sessions that share it."""
        return self.channel.members

    def can_be_joined(self) -> bool:
        """A new subscriber would be in the same position as the present ones."""
        if self.known is not None and self.channel.late:
            return False
        return not self.known and not self.channel.is_over

    def keep_account_of(self, places: Iterable[Place]) -> None:
        """The subscriber's snapshot had these records; not tracked where a record's old state shows
        that."""
        if self.known is not None:
            self.known.update(places)

    def check(self) -> None:
        """Assert that every tracked slot has a record."""
        bodies = self.topic.table.bodies
        for place in () if self.channel.late else self.known or ():
            assert isinstance(place, str) or bodies[place] is not None, "a record that has gone"


class ChangeFeed(Feed):
    """A feed that processes every change that concerns it."""

    __slots__ = ("cost_us",)

    def __init__(
        self, channel: Channel, topic: Records, key: FeedKey, condition: Filter | None
    ) -> None:
        super().__init__(channel, topic, key, condition)
        self.cost_us = self._cost_us()
        """Microseconds that it takes for a record, about."""

    def _cost_us(self) -> float:
        cost_us = RECORD_US if self.condition is None else FOCUS_US + self.tests_us
        cost_us += STATE_US if self.wants_old else 0
        cost_us += DELTA_US if self.key.delta else 0
        return cost_us + (SELECT_US if self.shape.select is not None else 0)

    def on_batch(self, batch: Batch, now_us: int) -> bool:
        """Process a batch of changes; True when the channel has work because of it."""
        before = batch.old_focus(self.condition) if self._needs_old else None
        for at, now in enumerate(batch.new_focus(self.condition)):
            self._on_record(batch, at, before is not None and before[at], now, now_us)
        return self.has_output()

    def on_records(self, batch: Batch, places: Sequence[int], now_us: int) -> bool:
        """Process the records at these places; no other record of the batch concerns this feed."""
        if len(places) * FEW_OF >= len(batch):
            return self.on_batch(batch, now_us)
        for at in places:
            now = batch.is_in_focus(self.condition, at)
            was = self._needs_old and batch.was_in_focus(self.condition, at)
            self._on_record(batch, at, was, now, now_us)
        return self.has_output()

    def in_steps(
        self, batch: Batch, places: Sequence[int], now_us: int, count: int
    ) -> Iterator[None]:
        """`on_records`, so many of them in each step."""
        if (1 < count >= len(places)) if self.wants_old else FEW_OF * count >= len(places):
            self.on_records(batch, places, now_us)
            return
        condition, needs_old = self.condition, self._needs_old
        if not self.tests_us:  # of all records at once, which others share
            before = batch.old_focus(condition) if needs_old else None
            after = batch.new_focus(condition)
        for done, at in enumerate(places):
            if done and done % count == 0:
                yield
            if count == 1 and self.key.delta:  # a record may be as long as a step, or longer
                yield from batch.reading(self.shape, at)
            if self.tests_us:
                was = needs_old and batch.was_in_focus(condition, at)
                now = batch.is_in_focus(condition, at)
            else:
                was, now = before is not None and before[at], after[at]
            self._on_record(batch, at, was, now, now_us)

    def on_edit(self, batch: Batch, edit: Edit, now_us: int) -> bool:
        """Process a change that replaces an event. What a subscriber holds of a record is its
        newest event, so it is not changed by an edit of an older one."""
        if edit.is_newest:
            return ChangeFeed.on_batch(self, batch, now_us)
        if batch.is_in_focus(self.condition, 0):
            self._take(batch, 0, self._update(batch, 0, was=False), now_us)
        return self.has_output()

    @abstractmethod
    def has_output(self) -> bool:
        """The channel has pending work because of this feed."""

    @abstractmethod
    def _take(self, batch: Batch, at: int, update: Update, now_us: int) -> None:
        """Emit an update."""

    def _on_record(self, batch: Batch, at: int, was: bool, now: bool, now_us: int) -> None:
        """Apply the table at the top of this module to one record."""
        identity = batch.changes.identities[at]
        if self.known is not None:
            slots = batch.changes.slots
            place: Place = slots[at] if slots and self.topic.retains else identity
            was = place in self.known or identity in self.known
            self.known.discard(identity)
            if now:
                self.known.add(place)
            else:
                self.known.discard(place)
        if now:
            if was and self.key.no_empties and batch.is_empty(self.shape, at):
                return
            self._take(batch, at, self._update(batch, at, was), now_us)
        elif was and self._wants_oof:
            self._take(batch, at, self._update(batch, at, was, left=True), now_us)

    def _update(self, batch: Batch, at: int, was: bool, left: bool = False) -> Update:
        changes = batch.changes
        seq, ts_us, identity = batch.marks[at], changes.ts_us[at], changes.identities[at]
        old = changes.olds[at] if was else None
        if left:
            reason = changes.reason or "match"
            parting = batch.parting(at) if reason == "match" else None
            update = Update(identity, was, None, seq, ts_us, seq, ts_us, reason, parting, old=old)
            return update if self.key.guard is None else self.encoder.as_seen(update)
        assert changes.news is not None
        delta = batch.delta(self.shape, at) if was and self.key.delta else None
        new, mark = changes.news[at], b"" if batch.edit is None else batch.edit.mark
        return Update(identity, was, new, seq, ts_us, seq, ts_us, delta=delta, old=old, mark=mark)


class DirectFeed(ChangeFeed):
    """A feed whose channel takes lines; of a whole batch, where old states do not matter."""

    __slots__ = ()

    channel: DirectChannel

    def on_batch(self, batch: Batch, now_us: int) -> bool:
        """Process a batch of changes; True when the channel has work because of it."""
        if self.wants_old:
            return super().on_batch(batch, now_us)
        if batch.changes.news is not None:
            self._on_plain_batch(batch)
        return self.has_output()

    def has_output(self) -> bool:
        """Lines are pending."""
        return bool(self.channel.rendered)

    def _on_plain_batch(self, batch: Batch) -> None:
        changes = batch.changes
        assert changes.news is not None
        columns: Columns = (changes.identities, changes.news, batch.marks, changes.ts_us)
        tails = batch.tails("p", self.shape)
        if self.condition is not None:
            hits = [at for at, hit in enumerate(batch.new_focus(self.condition)) if hit]
            if not hits:
                return
            if len(hits) < len(batch):
                tails = [tails[at] for at in hits]
                identities, news, seqs, ts_us = ([column[at] for at in hits] for column in columns)
                columns = (identities, news, seqs, ts_us)  # type: ignore[assignment]
        self.channel.append(self.encoder, columns, self.encoder.published(tails, columns[2]))

    def _take(self, batch: Batch, at: int, update: Update, _now_us: int) -> None:
        self.channel.append(self.encoder, update, self.encoder.of_batch(batch, at, update))


class ConflatedFeed(ChangeFeed):
    """A feed of a conflated channel.

    A window reports the change from its beginning to its end. So a conflated feed needs old states,
    whatever its clients requested: a record that came and went is not reported, and the state that
    each client holds is known at all times. Only windows by another key than the record's, where
    one record's update replaces another's, cannot know that.
    """

    __slots__ = ()

    channel: ConflatedChannel

    def __init__(
        self, channel: ConflatedChannel, topic: Records, key: FeedKey, condition: Filter | None
    ) -> None:
        super().__init__(channel, topic, key, condition)
        by_record = not self.encoder.conflation_key
        self.knows_what_is_held = by_record
        if by_record:
            self.wants_old = self._wants_oof = True
            self._needs_old = self.known is None
        self.cost_us = self._cost_us() + WINDOW_US

    def _take(self, batch: Batch, at: int, update: Update, now_us: int) -> None:
        key: Key = (update.identity,)
        if self.encoder.conflation_key:
            key = key_of(batch.row(self.encoder.conflation_key, at), update.identity)
        self.channel.offer((self.encoder, key), update, now_us)

    def has_output(self) -> bool:
        """Something waits in the conflator."""
        self.channel.count()
        return len(self.channel.conflator) > 0
