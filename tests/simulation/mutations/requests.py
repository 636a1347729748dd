"""Bugs of what clients ask for."""

from tests.simulation.mutation import Mutation

REQUESTS = (
    Mutation(
        "deltas are merged in one step, however long their records are",
        "sow/engine/bulk_publish.py",
        "        read[:] = [part for some in read for part in merged_at_once(records, some)]\n",
        "",
    ),
    Mutation(
        "a long record is parsed in the step that merges it",
        "sow/engine/bulk_publish.py",
        "                yield from parsing(records, read[0])\n",
        "                pass\n",
    ),
    Mutation(
        "what has ended is freed with the last of it",
        "sow/sessions/subscriptions/__init__.py",
        "subscription = subscriptions.pop()",
        "subscription = subscriptions[-1 - at]",
    ),
    Mutation(
        "a view of groups stays when nobody follows them any more",
        "sow/sessions/queries/aggregations.py",
        "        if one.topic is not None:\n            self._changes.remove",
        "        if False:\n            self._changes.remove",
    ),
    Mutation(
        "groups that are followed grow beyond the part of their client",
        "sow/sessions/queries/aggregations.py",
        "self.memory.is_over_share(client) and",
        "self.memory.is_crowded and",
    ),
    Mutation(
        "groups are looked at once their view is full",
        "sow/sessions/queries/aggregations.py",
        "                    self._check_room(one, client)\n                    yield",
        "                    yield",
    ),
    Mutation(
        "groups that several clients follow count for the first",
        "sow/core/quota.py",
        "        for client in self.clients if more else ():",
        "        for client in [*self.clients][:1]:",
    ),
    Mutation(
        "a compiled filter is held by its own function",
        "sow/expressions/filters.py",
        "        names[name] = known.pop(name)",
        "        names[name] = known[name]",
    ),
    Mutation(
        "an address that guesses has one turn after the other",
        "sow/security/authentication/authenticator.py",
        "                self._waiting[address] = turns\n            if not",
        "                self._waiting = {address: turns} | self._waiting\n            if not",
    ),
    Mutation(
        "a feed is not flushed before somebody joins",
        "sow/sessions/subscriptions/subscribe.py",
        "            engine.output.flush_channel(channel)\n        if isinstance",
        "            pass\n        if isinstance",
    ),
    Mutation(
        "a replay begins one change too late",
        "sow/sessions/subscriptions/log_replay.py",
        "start = max(0, self._reached + 1 - entry.seq)",
        "start = max(0, self._reached + 2 - entry.seq)",
    ),
    Mutation(
        "a topic that is born during a replay is not told",
        "sow/sessions/subscriptions/subscribe.py",
        "            feed = subscription.feed(topic.router)\n",
        "            return None\n",
    ),
    Mutation(
        "what changes while an answer is taken is not in it",
        "sow/sessions/queries/query_planning.py",
        "            for topic in list(noted):\n                self._take_again(",
        "            for topic in ():\n                self._take_again(",
    ),
    Mutation(
        "who follows a pattern misses the topics that come later",
        "sow/sessions/subscriptions/__init__.py",
        "if self.wants(place.topic):",
        "if self.wants(place.topic) and not self.complete:",
    ),
    Mutation(
        "filters of subscriptions that have ended still count",
        "sow/sessions/subscriptions/__init__.py",
        "            followed.filter_chars -= subscription.filter_chars\n",
        "",
    ),
    Mutation(
        "a window is scrolled from nothing",
        "sow/sessions/subscriptions/live_window.py",
        "channel.take_back(session) if reguards else channel.held_by(session)",
        "channel.take_back(session) if reguards else EMPTY_PAGE",
    ),
    Mutation(
        "a session is taken up by whoever knows its name",
        "sow/sessions/commands/executor.py",
        "if old.rights.owner != session.rights.owner:",
        "if False:",
    ),
    Mutation(
        "a pattern means topics that may not be read when they come",
        "sow/sessions/subscriptions/__init__.py",
        "is_visible(self.command.rights, topic)",
        "True",
    ),
    Mutation(
        "publishes that are carried out together are not requested for",
        "sow/sessions/commands/executor.py",
        "not (rights.is_open or _writes_all(rights, publishes.topic))\n"
        "            or len(publishes.bodies) > TOGETHER_MAX",
        "len(publishes.bodies) > TOGETHER_MAX",
    ),
    Mutation(
        "a command asks for no topic",
        "sow/sessions/commands/executor.py",
        "        rights.check(demand, command.topic)",
        "        rights.check('logon', command.topic)",
    ),
    Mutation(
        "a long publish is not counted",
        "sow/engine/bulk_publish.py",
        "            bookmark = self._put(topic, messages, now_us, expires_us, keeps)\n"
        "            if counted is not None:",
        "            bookmark = self._put(topic, messages, now_us, expires_us, keeps)\n"
        "            if False:",
    ),
    Mutation(
        "a delete is counted with its first records",
        "sow/engine/bulk_delete.py",
        "if left <= 0 and counted is not None:",
        "if counted is not None:",
    ),
    Mutation(
        "a frame that straddles is applied as a whole",
        "sow/sessions/commands/publishers.py",
        "bodies[self.skipped :] if self.skipped else bodies",
        "bodies",
    ),
    Mutation(
        "publishes that come together are counted in memory alone",
        "sow/sessions/commands/publishers.py",
        "        publisher.highest += count\n        publisher.last = None\n"
        "        self._mark(publisher)",
        "        publisher.highest += count",
    ),
    Mutation(
        "numbers of publishes that come together may be any",
        "sow/protocol/publish_batching.py",
        "return self.seqs == [highest + 1, *firsts] and",
        "return len(firsts) < 10**9 and",
    ),
    Mutation(
        "an older connection keeps its name",
        "sow/sessions/commands/publishers.py",
        "            self._owned.pop(older, None)\n            if older.connected",
        "            if older.connected",
    ),
    Mutation(
        "a new connection does not wait for what an older one has begun",
        "sow/sessions/commands/publishers.py",
        "        yield from self._turn_over(lambda: self.named(client, rights))",
        "        yield",
    ),
    Mutation(
        "a name expires while it is connected",
        "sow/sessions/commands/publishers.py",
        "            self._engine.timers.add(publisher.deadline)\n",
        "            pass\n",
    ),
    Mutation(
        "a name is anybody's",
        "sow/sessions/commands/publishers.py",
        'if publisher.owner not in ("", owner) and not rights.is_open:',
        "if False:",
    ),
    Mutation(
        "numbers may have gaps",
        "sow/sessions/commands/publishers.py",
        "if first > publisher.highest + 1 and not gaps:",
        "if False:",
    ),
    Mutation(
        "an address asks for no topic",
        "sow/server/http/route.py",
        "                self._check(request, rights)",
        "                pass",
    ),
    Mutation(
        "a short message overtakes those that wait to be read",
        "sow/server/net/ws_memory_accounting.py",
        "is_read = self._read == frames.complete and frames.is_between",
        "is_read = frames.is_between",
    ),
    Mutation(
        "who goes on over a start is not told what differs",
        "sow/sessions/subscriptions/sent_replay.py",
        "        yield from _differing(before, present, changed)\n",
        "        yield from ()\n",
    ),
    Mutation(
        "the bookmark of a turn is that before it",
        "sow/topic/conflated_topic.py",
        "            place = self._after(time_us)\n",
        "            place = self._after(time_us - 1)\n",
    ),
    Mutation(
        "a replay takes what a view released together one by one",
        "sow/store/protocols.py",
        "    return 0 < following.turn < entry.seq + len(entry)\n",
        "    return False\n",
    ),
    Mutation(
        "a copy of a view begins its windows when that is released",
        "sow/topic/views/view.py",
        "                    batch.be_due_at(self._turn_us)\n",
        "                    batch.be_due_at(None)\n",
    ),
    Mutation(
        "a replay does not know what has left",
        "sow/sessions/subscriptions/log_replay.py",
        "olds = [self._bodies.pop(identity, None) for identity in identities]",
        "olds = [None for _ in identities]",
    ),
)
