"""The feed index: the candidates among many filtered feeds for a record.

Thousands of users who each follow their own symbol, or prices beyond their own limit, are thousands
of feeds. Evaluating each filter on each record is expensive; looking the record's values up costs a
few microseconds. A candidate still has to pass its whole filter, so the index only rules out feeds
that cannot match: neither the new state of a record nor, for feeds that report leaving, the old
one.
"""

from collections.abc import Iterable

from sow.expressions import access_of
from sow.streaming.feeds import Feed
from sow.streaming.predicate_index import Found, PredicateIndex
from sow.topic.batch import Batch


class FeedIndex:
    """Feeds by the terms of their filters. Feeds that no term finds are not indexed."""

    def __init__(self) -> None:
        self._terms: PredicateIndex[Feed] = PredicateIndex()

    def add(self, feed: Feed) -> bool:
        """Index a feed; False when its filter has no usable term.

        A feed that tracks what its subscribers hold where nothing is stored is not indexed either:
        no old state shows that a record was in focus.
        """
        if feed.condition is None or (feed.known is not None and not feed.topic.retains):
            return False
        return self._terms.add(feed, access_of(feed.condition))

    def remove(self, feed: Feed) -> None:
        """Remove an indexed feed."""
        assert feed.condition is not None
        self._terms.remove(feed, access_of(feed.condition))

    def check(self, filed: Iterable[Feed]) -> None:
        """Assert that exactly these feeds are found, each by all terms it needs."""
        self._terms.check({feed: access_of(feed.condition) for feed in filed if feed.condition})

    def candidates(self, batch: Batch) -> Found[Feed]:
        """Candidate feeds, each with the places of the records that matched its terms."""
        found: Found[Feed] = {}
        every = range(len(batch))
        if batch.changes.news is not None:
            batch.read(self._terms.paths(old=False))
            self._terms.find(batch.column, every, found, old=False)
        if old := self._terms.paths(old=True):
            batch.read(old, old=True)
            self._terms.find(batch.old_column, every, found, old=True)
        return {feed: sorted(set(places)) for feed, places in found.items()} if found else found
