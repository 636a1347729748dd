"""Conflated feeds: a topic as a subscription sees it that is conflated in time.

A window reports the change from its beginning to its end. So a conflated feed needs old states,
whatever its clients requested: a record that came and went is not reported, and the state that each
client holds is known at all times. Only windows by another key than the record's, where one
record's update replaces another's, cannot know that.
"""

from sow.expressions import Filter
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.feeds import Feed
from sow.streaming.update_encoder import FeedKey
from sow.topic.batch import Batch
from sow.topic.queue_policy import Key, key_of
from sow.topic.records import Records
from sow.topic.updates import Update


class ConflatedFeed(Feed):
    """A feed of a conflated channel."""

    channel: ConflatedChannel

    def __init__(
        self, channel: ConflatedChannel, topic: Records, key: FeedKey, condition: Filter | None
    ) -> None:
        super().__init__(channel, topic, key, condition)
        self._batched = False
        by_record = not self.lines.conflation_key
        self.knows_what_is_held = by_record
        if by_record:
            self.wants_old = self._wants_oof = True
            self._needs_old = self.known is None

    def _take(self, batch: Batch, at: int, update: Update, now_us: int) -> None:
        key: Key = (update.identity,)
        if self.lines.conflation_key:
            key = key_of(batch.row(self.lines.conflation_key, at), update.identity)
        self.channel.offer((self.lines, key), update, now_us)

    def has_output(self) -> bool:
        """Something waits in the conflator."""
        return len(self.channel.conflator) > 0
