"""Bugs of who is told what: feeds, channels, queues, replays, deltas and oofs."""

from tests.simulation.mutation import Mutation

DELIVERY = (
    Mutation(
        "a frame that alone waits leaves before it is durable",
        "sow/streaming/outbox/outbox.py",
        "head.group > released or head.membership.eager:",
        "head.membership.eager:",
    ),
    Mutation(
        "a frame leaves as if it alone waited, and takes what is behind it along",
        "sow/streaming/outbox/outbox.py",
        "if len(queue.entries) != 1 or queue.unfolded or queue.share is not None:",
        "if not queue.entries or queue.unfolded or queue.share is not None:",
    ),
    Mutation(
        "a frame that alone waits leaves although its session applies other permissions",
        "sow/streaming/sessions.py",
        "            return None\n        pulled = self.outbox.pull_alone(released)",
        "            pass\n        pulled = self.outbox.pull_alone(released)",
    ),
    Mutation(
        "a slice of 250 is one step whoever follows",
        "sow/streaming/router.py",
        "if cost_us and late is not None and (late or cost_us * _weight(batch) > AT_ONCE_US):",
        "if late:",
    ),
    Mutation(
        "one that is late processes a later batch first",
        "sow/streaming/router.py",
        "if channel.late or cost_us > left_us:",
        "if cost_us > left_us:",
    ),
    Mutation(
        "a part of a batch leaves",
        "sow/engine/output.py",
        "if channel.is_amid:",
        "if False:",
    ),
    Mutation(
        "members change before what is late is handed out",
        "sow/engine/output.py",
        "while channel.late:",
        "while False:",
    ),
    Mutation(
        "a publisher does not wait for its followers",
        "sow/engine/output.py",
        "while self._is_late(name) or (patience and tickets[0] is not ticket):",
        "while False:",
    ),
    Mutation(
        "what falls due does not wait for those who follow it",
        "sow/topic/conflated_topic.py",
        "any(one.is_changing or one.late for one in self.copies)",
        "any(one.is_changing for one in self.copies)",
    ),
    Mutation(
        "what comes back is told as a delta",
        "sow/streaming/feeds.py",
        "delta = batch.delta(self.shape, at) if was and self.key.delta else None",
        "delta = batch.delta(self.shape, at) if self.key.delta else None",
    ),
    Mutation(
        "bytes of a rewritten update are counted wrongly",
        "sow/streaming/outbox/conflate.py",
        "        entry.rewrite(update, group)\n        self._weigh(entry, 1)\n",
        "        size = entry.size\n        entry.rewrite(update, group)\n"
        "        self.bytes += size\n        if self.share is not None:\n"
        "            self._count(entry)\n",
    ),
    Mutation(
        "what has left a queue goes on counting",
        "sow/streaming/outbox/conflate.py",
        "        if self.share is not None and entry.lives:\n            self._count(entry, -1)\n",
        "",
    ),
    Mutation(
        "a frame that many hold is free once one has dropped it",
        "sow/streaming/queue_memory.py",
        "            del holders[self]\n            if not holders:\n",
        "            del holders[self]\n            if True:\n",
    ),
    Mutation(
        "what was forgotten of a state counts again for the next one in its place",
        "sow/streaming/queue_memory.py",
        "                del known[place]\n                shrunk",
        "                shrunk",
    ),
    Mutation(
        "a line that is made again is another one",
        "sow/streaming/update_encoder.py",
        "        delta = content.delta is not None\n",
        "        delta = False\n",
    ),
    Mutation(
        "a replaced update goes to the end",
        "sow/streaming/outbox/conflate.py",
        "(starved or not encoder.queue_policy.appends):",
        "starved:",
    ),
    Mutation(
        "a pair goes to its older place whatever the placement",
        "sow/streaming/outbox/conflate.py",
        "        moves = newer.apart or (encoder.queue_policy.appends and not starved)\n",
        "        moves = newer.apart\n",
    ),
    Mutation(
        "a pair forgets how often it was moved to the end",
        "sow/streaming/outbox/entries.py",
        "        self.moved += older.moved + 1\n",
        "        pass\n",
    ),
    Mutation(
        "topics with the policy off are folded too",
        "sow/streaming/outbox/outbox.py",
        'ALL: tuple[Policy, ...] = ("always", "conflate", "unsubscribe")',
        'ALL: tuple[Policy, ...] = ("always", "conflate", "unsubscribe", "off")',
    ),
    Mutation(
        "later updates are folded in front of a new snapshot",
        "sow/streaming/outbox/outbox.py",
        "self._memberships.pop(name, None)",
        "pass",
    ),
    Mutation(
        "a record that matches something else now goes backwards",
        "sow/streaming/outbox/conflate.py",
        "        overtakes = (older or current).number < last != current.number\n",
        "        overtakes = False\n",
    ),
    Mutation(
        "an update is folded into one that stands behind it",
        "sow/streaming/outbox/conflate.py",
        "            entry.membership.begin(passage)\n",
        "            pass\n",
    ),
    Mutation(
        "what comes while a queue is folded overtakes what is not folded yet",
        "sow/streaming/outbox/conflate.py",
        "self.entries if folded else self.unfolded or self.entries",
        "self.entries",
    ),
    Mutation(
        "who hears of leavings has one record's update stand for another's",
        "sow/streaming/update_encoder.py",
        "self.reports_records = key.oof or key.delta",
        "self.reports_records = key.delta",
    ),
    Mutation(
        "sessions that are not conflated get what was folded for others",
        "sow/streaming/outbox/outbox.py",
        "            if conflates:\n",
        "            if True:\n",
    ),
    Mutation(
        "a record that left is forgotten by feeds that keep account",
        "sow/streaming/feeds.py",
        "self.known.discard(place)",
        "pass",
    ),
    Mutation(
        "an oof of a delete says nothing",
        "sow/streaming/feeds.py",
        "elif was and self._wants_oof:",
        "elif was and self._wants_oof and batch.changes.news is not None:",
    ),
    Mutation(
        "newcomers are told what their snapshot held",
        "sow/streaming/conflated_channel.py",
        "        if seq and held:\n",
        "        if False:\n",
    ),
    Mutation(
        "a newcomer's own state is not corrected",
        "sow/streaming/conflated_channel.py",
        "        return update._replace(known=old is not None, ",
        "        return update or update._replace(known=old is not None, ",
    ),
    Mutation(
        "a resumed session repeats a line",
        "sow/streaming/recovery_buffer.py",
        "known = max(0, seen - first)",
        "known = max(0, seen - first - 1)",
    ),
    Mutation(
        "that it was taken up is said once for each socket that was lost again",
        "sow/streaming/recovery_buffer.py",
        "        if time == self._times_resumed:\n",
        "        if True:\n",
    ),
    Mutation(
        "lines before the logon's ack are counted",
        "sow/streaming/recovery_buffer.py",
        "        yield frame, 0\n        self.restart()\n",
        "        yield frame, 0\n",
    ),
    Mutation(
        "what was given up is not said",
        "sow/streaming/sessions.py",
        "[self._give_up(self, membership.name) for membership in given_up]",
        "[membership.name for membership in given_up]",
    ),
    Mutation(
        "what waits of a replaced subscription is given up",
        "sow/streaming/outbox/outbox.py",
        "[one for one in found if self._memberships.get(one.name) is one]",
        "[*found]",
    ),
    Mutation(
        "a folded line carries the bookmark of its newest change",
        "sow/streaming/update_encoder.py",
        "seqs = [update.first_seq]",
        "seqs = [update.seq]",
    ),
    Mutation(
        "topics of a subscription are handed out one after the other",
        "sow/streaming/conflated_channel.py",
        "        self._released += self.conflator.take(now_us, RELEASED_AT_ONCE).items()\n",
        "        self._released += sorted(\n"
        "            self.conflator.take(now_us, RELEASED_AT_ONCE).items(),\n"
        "            key=lambda item: item[0][0].topic.name,\n"
        "        )\n",
    ),
    Mutation(
        "lines of one turn come topic by topic",
        "sow/streaming/channel.py",
        "self.rendered += rendered",
        "self.rendered[:0] = rendered",
    ),
    Mutation(
        "a topic does not meet who follows its pattern",
        "sow/streaming/router.py",
        "            follower.meet(place)\n",
        "            pass\n",
    ),
    Mutation(
        "a replay at the client's pace lets go before anybody has joined",
        "sow/streaming/conflated_channel.py",
        "if self.is_over or not self.members:",
        "if self.is_over:",
    ),
    Mutation(
        "a range is left out where it touches a value",
        "sow/streaming/term_buckets.py",
        "between = bisect_right(self._bounds, high), bisect_left(self._bounds, low)",
        "between = bisect_left(self._bounds, high), bisect_left(self._bounds, low)",
    ),
    Mutation(
        "what was found in ranges is remembered too long",
        "sow/streaming/term_buckets.py",
        "        self._known = {}\n        self._empty(",
        "        self._empty(",
    ),
    Mutation(
        "nobody is found by what a record was before",
        "sow/streaming/router.py",
        "if old := self._terms.paths(old=True):",
        "if old := ():",
    ),
    Mutation(
        "who keeps account where nothing is stored is not requested",
        "sow/streaming/router.py",
        "if feed.condition is None or (feed.known is not None and not feed.topic.retains):",
        "if feed.condition is None:",
    ),
    Mutation(
        "a feed that has gone is still found",
        "sow/streaming/router.py",
        "            self._attributes.remove(feed)\n",
        "            pass\n",
    ),
    Mutation(
        "a pair of which one has left counts as one message",
        "sow/streaming/outbox/conflate.py",
        "        self.message_count += parted\n",
        "",
    ),
    Mutation(
        "what is held no more to be sent again is still counted",
        "sow/streaming/recovery_buffer.py",
        "        self._bytes -= len(old.frame)\n",
        "",
    ),
    Mutation(
        "what a replay has said is kept to be folded",
        "sow/streaming/channel.py",
        "        self._parts = []\n",
        "",
    ),
    Mutation(
        "a newcomer who has heard all is still one",
        "sow/streaming/conflated_channel.py",
        "            if not newcomer.held:\n",
        "            if False:\n",
    ),
)
