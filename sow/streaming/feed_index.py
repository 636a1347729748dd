"""The feed index: which of many filtered feeds may care about a record.

Thousands of users who each follow their own symbol, or want to hear of prices beyond their own
limit, are thousands of feeds. Asking each of them about each record costs thousands of filters a
record; looking the record's values up costs a few microseconds. What is found has the whole filter
to pass, so the index only ever leaves out feeds that could not have matched: neither what a record
is now nor, for those who hear of what leaves, what it was before.
"""

from collections.abc import Iterable

from sow.expressions import access_of
from sow.streaming.feeds import Feed
from sow.streaming.predicate_index import Found, PredicateIndex
from sow.topic.batch import Batch


class FeedIndex:
    """Feeds by the terms of their filters. Feeds that no term finds do not belong here."""

    def __init__(self) -> None:
        self._terms: PredicateIndex[Feed] = PredicateIndex()

    def add(self, feed: Feed) -> bool:
        """File a feed; False when its filter has nothing to file it under.

        Neither is one filed that keeps account where nothing is stored: there no old state says
        that a record was in focus.
        """
        if feed.condition is None or (feed.known is not None and not feed.topic.retains):
            return False
        return self._terms.add(feed, access_of(feed.condition))

    def remove(self, feed: Feed) -> None:
        """Take a filed feed out."""
        assert feed.condition is not None
        self._terms.remove(feed, access_of(feed.condition))

    def check(self, filed: Iterable[Feed]) -> None:
        """Assert that exactly these feeds are found, each by all terms that it needs."""
        self._terms.check({feed: access_of(feed.condition) for feed in filed if feed.condition})

    def candidates(self, batch: Batch) -> Found[Feed]:
        """Feeds that may care, with the places of the records that made them candidates."""
        found: Found[Feed] = {}
        every = range(len(batch))
        if batch.changes.news is not None:
            batch.read(self._terms.paths(old=False))
            self._terms.find(batch.column, every, found, old=False)
        if old := self._terms.paths(old=True):
            batch.read(old, old=True)
            self._terms.find(batch.old_column, every, found, old=True)
        return {feed: sorted(set(places)) for feed, places in found.items()} if found else found
