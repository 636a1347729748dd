"""The bugs that are planted (`planted`), each a small substitution in the source.

With a new law comes a bug that breaks it. A text has to be there exactly once, and enough of it
that it stays what it is when something else is written beside it.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    """A bug: in which file, what is there and what stands there instead."""

    name: str
    file: str
    text: str
    instead: str


MUTATIONS = (
    Mutation(
        "new indexes do not hear of what changes while they are made",
        "sow/topic/records.py",
        "self._coming.put(slots, {path: batch.column(path) for path in self._coming.watched})",
        "pass",
    ),
    Mutation(
        "a copy that is being filled does not hear of what changes",
        "sow/topic/conflated_copy.py",
        "            self._noted.update(dict.fromkeys(changes.identities))",
        "            pass",
    ),
    Mutation(
        "a topic may take the name of a copy that is being filled",
        "sow/engine/catalog.py",
        "            if name in self._coming:",
        "            if False:",
    ),
    Mutation(
        "others take the room of a publish under way",
        "sow/engine/capacity.py",
        "promised_bytes = sum(one.bytes for one in others)",
        "promised_bytes = 0",
    ),
    Mutation(
        "what a client has left of a publish comes after what it sends next",
        "sow/engine/publications.py",
        "            yield from self.finish_left(None if len(read) > 1 else name)",
        "            pass",
    ),
    Mutation(
        "a publish whose client goes is stored in part",
        "sow/engine/publications.py",
        "            self._leave(publication)",
        "            pass",
    ),
    Mutation(
        "a later update prolongs its window",
        "conflated_topics/conflator.py",
        "            self.schedule.open(fresh[::-1], now_us)\n",
        "            self.schedule.open(list(dict.fromkeys(keys)), now_us)\n",
    ),
    Mutation(
        "an update at the deadline joins the old window",
        "conflated_topics/schedules.py",
        "while windows and windows[0][0] <= now_us:",
        "while windows and windows[0][0] < now_us:",
    ),
    Mutation(
        "windows are released early",
        "conflated_topics/schedules.py",
        "point = -((self._begin_us - deadline_us) * self._points // self.interval_us)",
        "point = (deadline_us - self._begin_us) * self._points // self.interval_us",
    ),
    Mutation(
        "a removal of what the copy never held is released",
        "conflated_topics/topic.py",
        "            elif self._holds(key):\n",
        "            else:\n",
    ),
    Mutation(
        "a delete of a pending record is lost",
        "conflated_topics/topic.py",
        "list(map(or_, offered.counts, map(is_open.__contains__, offered.keys)))",
        "list(offered.counts)",
    ),
    Mutation(
        "folding takes the newer `told`",
        "sow/topic/updates.py",
        "told, old = current.told, current.old",
        "old = current.old",
    ),
    Mutation(
        "an oof carries a state that was never told",
        "sow/topic/updates.py",
        "told, old = current.told, current.old",
        "told = current.told",
    ),
    Mutation(
        "a folded delta forgets the first one",
        "sow/topic/updates.py",
        "None if current.delta is None else composed(current.delta, delta)",
        "None if current.delta is None else delta",
    ),
    Mutation(
        "what comes back is told as a delta",
        "sow/delivery/feeds.py",
        "delta = batch.delta(self.shape, at) if was and self.key.delta else None",
        "delta = batch.delta(self.shape, at) if self.key.delta else None",
    ),
    Mutation(
        "a void update is told",
        "sow/topic/updates.py",
        "return self.new is None and not self.told",
        "return False",
    ),
    Mutation(
        "bytes of a rewritten update are counted wrongly",
        "sow/delivery/queue.py",
        "        self.bytes -= len(entry.frame)\n        entry.rewrite",
        "        entry.rewrite",
    ),
    Mutation(
        "a replaced update goes to the end",
        "sow/delivery/folding.py",
        "(starved or not lines.queue_policy.appends):",
        "starved:",
    ),
    Mutation(
        "topics with the policy off are folded too",
        "sow/delivery/outbox.py",
        'self._folding.spread_all(lambda entry: entry.policy != "off")',
        "self._folding.spread_all(lambda _entry: True)",
    ),
    Mutation(
        "later updates are folded in front of a new snapshot",
        "sow/delivery/outbox.py",
        "self._memberships.pop(name, None)",
        "pass",
    ),
    Mutation(
        "a record that matches something else now goes backwards",
        "sow/delivery/folding.py",
        "        overtakes = last > current.number\n",
        "        overtakes = False\n",
    ),
    Mutation(
        "an update is folded into one that stands behind it",
        "sow/delivery/folding.py",
        "                entry.membership.restart()\n",
        "                pass\n",
    ),
    Mutation(
        "who hears of leavings has one record's update stand for another's",
        "sow/delivery/lines.py",
        "self.tells_records = key.oof or key.delta",
        "self.tells_records = key.delta",
    ),
    Mutation(
        "updates that lack what they are matched by match each other",
        "sow/topic/queue_policy.py",
        "return (None, identity) if None in texts else texts",
        "return texts",
    ),
    Mutation(
        "sessions that are not conflated get what was folded for others",
        "sow/delivery/outbox.py",
        "            if conflates:\n",
        "            if True:\n",
    ),
    Mutation(
        "a message that was merged counts as one again",
        "sow/topic/queue_policy.py",
        "folded._replace(new=body, delta=None, merged=True)",
        "folded._replace(new=body, delta=None)",
    ),
    Mutation(
        "a record that left is forgotten by feeds that keep account",
        "sow/delivery/feeds.py",
        "self.told.discard(place)",
        "pass",
    ),
    Mutation(
        "an oof of a delete says nothing",
        "sow/delivery/feeds.py",
        "elif was and self._hears_leaving:",
        "elif was and self._hears_leaving and batch.changes.news is not None:",
    ),
    Mutation(
        "newcomers are told what their snapshot held",
        "sow/delivery/conflated_strands.py",
        "        if seq and held:\n",
        "        if False:\n",
    ),
    Mutation(
        "a newcomer's own state is not corrected",
        "sow/delivery/conflated_strands.py",
        "                updates.append((place[0], fixed))\n",
        "                updates.append((place[0], update))\n",
    ),
    Mutation(
        "a feed is not flushed before somebody joins",
        "sow/requests/following.py",
        "        engine.flush_strand(strand)\n        strand.join_at",
        "        strand.join_at",
    ),
    Mutation(
        "a resumed session repeats a line",
        "sow/delivery/recovery.py",
        "known = max(0, seen - first)",
        "known = max(0, seen - first - 1)",
    ),
    Mutation(
        "lines before the logon's ack are counted",
        "sow/delivery/sessions.py",
        "        self.recovery.restart()\n",
        "        pass\n",
    ),
    Mutation(
        "what was given up is not said",
        "sow/delivery/sessions.py",
        "                self._give_up(self, membership.name)\n",
        "                pass\n",
    ),
    Mutation(
        "what waits of a replaced subscription is given up",
        "sow/delivery/outbox.py",
        "[one for one in found if self._memberships.get(one.name) is one]",
        "[*found]",
    ),
    Mutation(
        "a deleted record comes back with a delta publish",
        "sow/topic/records.py",
        "        slot = self.table.slots.get(identity)\n        if slot is None:\n",
        "        slot = self.table.slots.get(identity, 0)\n        if not self.table.bodies:\n",
    ),
    Mutation(
        "a replay begins one change too late",
        "sow/requests/replay.py",
        "start = max(0, self._reached + 1 - entry.seq)",
        "start = max(0, self._reached + 2 - entry.seq)",
    ),
    Mutation(
        "a key is held for ten intervals",
        "conflated_topics/schedules.py",
        "followed(self._windows, (now_us + self.interval_us, keys))",
        "followed(self._windows, (now_us + 10 * self.interval_us, keys))",
    ),
    Mutation(
        "a lifetime is noted for another time than the record says",
        "sow/topic/expirations.py",
        "for entry in _entries(expires_us, identities):",
        "for entry in _entries(expires_us - 1, identities):",
    ),
    Mutation(
        "a corrected clock steps back",
        "sow/clock.py",
        "made_up_us = min(abs(self._error_us), elapsed_us * self._rate_ppm // SECOND_US)",
        "made_up_us = abs(self._error_us)",
    ),
    Mutation(
        "a restart forgets the newest time of the log",
        "sow/engine/restart.py",
        "        ledger.moment(entry.ts_us)\n        restoration.replay(entry)\n",
        "        restoration.replay(entry)\n",
    ),
    Mutation(
        "a folded line carries the bookmark of its newest change",
        "sow/delivery/lines.py",
        "seqs = [update.first_seq]",
        "seqs = [update.seq]",
    ),
    Mutation(
        "topics of a subscription are handed out one after the other",
        "sow/delivery/conflated_strands.py",
        "        self._released += self.conflator.take(now_us, RELEASED_AT_ONCE).items()\n",
        "        self._released += sorted(\n"
        "            self.conflator.take(now_us, RELEASED_AT_ONCE).items(),\n"
        "            key=lambda item: item[0][0].topic.name,\n"
        "        )\n",
    ),
    Mutation(
        "a stranger's update brings its own bookmark to an older place",
        "sow/topic/updates.py",
        "first_seq=current.first_seq,",
        "first_seq=new.first_seq,",
    ),
    Mutation(
        "a topic that is born during a replay is not told",
        "sow/requests/from_bookmark.py",
        "        return subscription.feed(topic.router)\n",
        "        return None\n",
    ),
    Mutation(
        "lines of one turn come topic by topic",
        "sow/delivery/strands.py",
        "self.rendered += rendered",
        "self.rendered[:0] = rendered",
    ),
    Mutation(
        "of copies that are alike one takes all with it that waits",
        "conflated_topics/topic.py",
        "        other._conflator.begin_like(self._conflator)\n",
        "",
    ),
    Mutation(
        "copies are alike though their intervals are not",
        "sow/topic/conflated_copy.py",
        "            definition.interval_us,\n",
        "",
    ),
    Mutation(
        "a copy whose filter is found does not hear of what it holds",
        "sow/topic/focus.py",
        "            concerned |= copy.those_there(identities)\n",
        "            pass\n",
    ),
    Mutation(
        "a copy that is found hears of one change of a record that comes twice",
        "sow/topic/focus.py",
        "some = sorted(at for identity in concerned for at in places[identity])",
        "some = sorted(places[identity][0] for identity in concerned)",
    ),
    Mutation(
        "another filter looks past what is about to leave",
        "sow/topic/conflated_copy.py",
        "if not self.conflation.will_hold(name)]",
        "if name not in self.copy.table]",
    ),
    Mutation(
        "another filter looks past what is about to enter",
        "sow/topic/conflated_copy.py",
        "if name not in wanted and self.conflation.will_hold(name):",
        "if name not in wanted and name in self.copy.table:",
    ),
    Mutation(
        "another interval forgets what waits",
        "conflated_topics/topic.py",
        "        self._conflator.offer(list(pending), pending.values(), now_us)\n",
        "",
    ),
    Mutation(
        "a copy that is added later is not told",
        "sow/engine/engine.py",
        "batch = topic.introduced() if any(topic.router.feeds()) else None",
        "batch = None",
    ),
    Mutation(
        "a topic does not meet who follows its pattern",
        "sow/delivery/pattern_followers.py",
        "            follower.meet(place)\n",
        "            pass\n",
    ),
    Mutation(
        "what changes while an answer is taken is not in it",
        "sow/requests/questions.py",
        "            for topic in list(noted):\n                self._take_again(",
        "            for topic in ():\n                self._take_again(",
    ),
    Mutation(
        "who follows a pattern misses the topics that come later",
        "sow/requests/subscription.py",
        "if self.wants(place.topic):",
        "if self.wants(place.topic) and not self.complete:",
    ),
    Mutation(
        "a delta is that of the whole documents",
        "sow/topic/batch.py",
        "difference(*map(shape.shown, documents))",
        "difference(*documents)",
    ),
    Mutation(
        "a replay at the client's pace lets go before anybody has joined",
        "sow/delivery/conflated_strands.py",
        "bool(self.members) and (bool(self._released) or self._client_is_ready())",
        "bool(self._released) or self._client_is_ready()",
    ),
    Mutation(
        "a delete in the log is passed over at a restart",
        "sow/engine/tail.py",
        "records.discard(compress(identities, newer))",
        "pass",
    ),
    Mutation(
        "what came after a checkpoint is passed over for records that it holds",
        "sow/engine/tail.py",
        "(slot := found(identity)) is None or held[slot] < seq",
        "found(identity) is None",
    ),
    Mutation(
        "an index keeps what was deleted",
        "sow/topic/records.py",
        "        self.indexes.drop(slots)\n",
        "",
    ),
    Mutation(
        "a query sees half of a commit",
        "sow/engine/undivided.py",
        "                yield from self.let_by(name)\n                try:",
        "                try:",
    ),
    Mutation(
        "what falls due in a topic does so in the middle of a commit",
        "sow/engine/undivided.py",
        "        topic.records.set_changing(True)\n",
        "",
    ),
    Mutation(
        "lines of other topics come between those of a commit",
        "sow/engine/undivided.py",
        "            strand.hear_only(topic.records)\n",
        "            pass\n",
    ),
    Mutation(
        "a checkpoint that begins in a commit counts from after it",
        "sow/engine/undivided.py",
        "return self._seq() if self._change is None else self._change.seq",
        "return self._seq()",
    ),
    Mutation(
        "a full disk takes messages",
        "sow/engine/disk_room.py",
        "        if not self._has_room(0):\n            raise",
        "        if False:\n            raise",
    ),
    Mutation(
        "a sum of merged messages knows the newer one only",
        "sow/topic/merging.py",
        "return _like(one + other, current, new)",
        "return _like(other, current, new)",
    ),
    Mutation(
        "a timer that is set earlier rings when it was set to before",
        "sow/engine/timers.py",
        "if noted is None or due_us < noted:",
        "if noted is None:",
    ),
    Mutation(
        "only the first record of a publish expires",
        "sow/topic/expirations.py",
        "        for entry in _entries(expires_us, identities):",
        "        for entry in _entries(expires_us, identities[:1]):",
    ),
    Mutation(
        "a record that changes stays under its old value in a hash index",
        "sow/indexes/hash.py",
        "            if standing[slot] != code:\n",
        "            if standing[slot] == NONE:\n",
    ),
    Mutation(
        "a column of values is not told of changes",
        "sow/indexes/__init__.py",
        "dict.fromkeys([*self._memos.values(), *self._held])",
        "dict.fromkeys(self._held)",
    ),
    Mutation(
        "the key index is not told of changes",
        "sow/indexes/__init__.py",
        "            self._key.touch(slots)\n",
        "            pass\n",
    ),
    Mutation(
        "fields are read for filters that have gone",
        "sow/topic/watched_fields.py",
        "        if len(self._counts) < known:\n",
        "        if False:\n",
    ),
    Mutation(
        "what all records take is counted without those that go",
        "sow/store/memory.py",
        "self._usage.bytes -= shrunk + RECORD_BYTES * len(olds)",
        "self._usage.bytes -= shrunk",
    ),
    Mutation(
        "a table counts bytes that it has replaced",
        "sow/store/memory.py",
        "sum(map(len, bodies)) - sum([len(old) for old in olds if old])",
        "sum(map(len, bodies))",
    ),
    Mutation(
        "a conflated topic that is removed still hears",
        "sow/engine/catalog.py",
        "                self.topics[topic.underlying].router.unfile(topic.copy)\n",
        "                pass\n",
    ),
    Mutation(
        "the log has a hole",
        "sow/engine/ledger.py",
        "self.seq += count",
        "self.seq += count + (count > 1)",
    ),
    Mutation(
        "a window that has ended keeps its keys",
        "conflated_topics/conflator.py",
        "self._end(release_us, {key: pop(key) for key in keys})",
        "self._end(release_us, {key: self._pending[key] for key in keys})",
    ),
    Mutation(
        "a range is left out where it touches a value",
        "sow/delivery/intervals.py",
        "between = bisect_right(self._bounds, high), bisect_left(self._bounds, low)",
        "between = bisect_left(self._bounds, high), bisect_left(self._bounds, low)",
    ),
    Mutation(
        "what was found in ranges is remembered too long",
        "sow/delivery/intervals.py",
        "        self._known = {}\n        self._empty(",
        "        self._empty(",
    ),
    Mutation(
        "nobody is found by what a record was before",
        "sow/delivery/feed_index.py",
        "if old := self._terms.paths(old=True):",
        "if old := ():",
    ),
    Mutation(
        "who keeps account where nothing is stored is not asked",
        "sow/delivery/feed_index.py",
        "if feed.condition is None or (feed.told is not None and not feed.topic.retains):",
        "if feed.condition is None:",
    ),
    Mutation(
        "a feed that has gone is still found",
        "sow/delivery/router.py",
        "            self._attributes.remove(feed)\n",
        "            pass\n",
    ),
    Mutation(
        "a pair of which one has left counts as one message",
        "sow/delivery/queue.py",
        "        self.message_count += parted\n",
        "",
    ),
    Mutation(
        "what is held no more to be sent again is still counted",
        "sow/delivery/recovery.py",
        "            self._bytes -= len(old.frame)\n",
        "",
    ),
    Mutation(
        "what a replay has said is kept to be folded",
        "sow/delivery/strands.py",
        "        self._parts = []\n",
        "",
    ),
    Mutation(
        "a newcomer who has heard all is still one",
        "sow/delivery/conflated_strands.py",
        "            if not newcomer.held:\n",
        "            if False:\n",
    ),
    Mutation(
        "filters of subscriptions that have ended still count",
        "sow/requests/subscription.py",
        "            followed.filter_chars -= subscription.filter_chars\n",
        "",
    ),
    Mutation(
        "a delete in steps takes what was published after its moment",
        "sow/engine/removals.py",
        "for going in self._running.get(topic, ()):",
        "for going in ():",
    ),
    Mutation(
        "a delete in steps takes a new record in the place of an old one",
        "sow/engine/removals.py",
        "slots[self._table.born[slots] <= self._seq]",
        "slots",
    ),
    Mutation(
        "a key that is late twice is released twice",
        "conflated_topics/conflator.py",
        "{key: later.pop(key) for key in taken if key in later}",
        "{}",
    ),
    Mutation(
        "what was done in a run that goes on is waited for as well",
        "sow/engine/timers.py",
        " and item not in self._done",
        "",
    ),
)
