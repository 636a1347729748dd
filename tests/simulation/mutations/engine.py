"""Bugs of what follows from a change: lives, reloads, batches, commits, restarts."""

from tests.simulation.mutation import Mutation

ENGINE = (
    Mutation(
        "a reload has never been when the log is processed again",
        "sow/engine/replay.py",
        "if (new.topics, new.limits) != (old.topics, old.limits):",
        "if False:",
    ),
    Mutation(
        "windows that went on over a start ended with it in the past",
        "sow/engine/replay.py",
        "if before is not None and goes_on else None",
        "if False else None",
    ),
    Mutation(
        "windows go on over a start though their topic is made otherwise",
        "sow/engine/patterns.py",
        "    is_alike = _shape(then[0]) == _shape(found[0])\n",
        "    is_alike = True\n",
    ),
    Mutation(
        "a past begins where windows may be open",
        "sow/history/bookmarks.py",
        "    is_long = end_us - before.ts_us >= long_us and",
        "    is_long =",
    ),
    Mutation(
        "what is due when the log is processed again waits for the next change",
        "sow/engine/replay.py",
        "            yield from engine.fall_due(due_us)",
        "            yield from engine.fall_due(until_us)",
    ),
    Mutation(
        "a view hears before it is filled",
        "sow/engine/topic_changes.py",
        "        steps = self._begun(view, definition, steps)\n",
        "        self._catalog.follow(view, definition.underlyings)\n",
    ),
    Mutation(
        "a view is told before what it is made of",
        "sow/engine/views.py",
        "if view.rank[0] and view.waits_for(*self._unreleased()):",
        "if view.rank[0] and False:",
    ),
    Mutation(
        "a query of a view lacks what was acknowledged beside another publish",
        "sow/engine/views.py",
        "elif not self._owes(view) or not (yield from self._waited(view, began_seq)):",
        "else:",
    ),
    Mutation(
        "frames that publish and query a view wait for each other",
        "sow/engine/output.py",
        "                if said:\n                    self._report(request)\n                elif",
        "                if",
    ),
    Mutation(
        "a publish holds a view back that a query waits for already",
        "sow/engine/engine.py",
        "        if is_long:\n",
        "        if False:\n",
    ),
    Mutation(
        "a view is told of half a publish",
        "sow/engine/views.py",
        "            or self._waits_until_us(view) is not None\n",
        "",
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
        "sow/engine/bulk_publish.py",
        "            yield from self.finish_left(None if len(read) > 1 else name)",
        "            pass",
    ),
    Mutation(
        "a publish whose client goes is stored in part",
        "sow/engine/bulk_publish.py",
        "            self._leave(publication)",
        "            pass",
    ),
    Mutation(
        "a restart forgets the newest time of the log",
        "sow/engine/recovery/redo.py",
        "        sequencer.moment(entry.ts_us)\n        restoration.replay(entry)\n",
        "        restoration.replay(entry)\n",
    ),
    Mutation(
        "a copy that is added later is not told",
        "sow/engine/topic_changes.py",
        "        for batch in topic.introduced():",
        "        for batch in ():",
    ),
    Mutation(
        "a delete in the log is passed over at a restart",
        "sow/engine/recovery/redo.py",
        "records.discard(compress(identities, newer))",
        "pass",
    ),
    Mutation(
        "what came after a checkpoint is passed over for records that it holds",
        "sow/engine/recovery/redo.py",
        "(slot := found(identity)) is None or held[slot] < seq",
        "found(identity) is None",
    ),
    Mutation(
        "a query sees half of a commit",
        "sow/engine/atomic_change.py",
        "yield from self.finish_any() if name is None else self.finish_before(name)",
        "yield from ()",
    ),
    Mutation(
        "what falls due in a topic does so in the middle of a commit",
        "sow/engine/atomic_change.py",
        "        topic.records.set_changing(True)\n",
        "",
    ),
    Mutation(
        "lines of other topics come between those of a commit",
        "sow/engine/atomic_change.py",
        "channel.in_order(topic.records, partial(channel.hold_others, topic.records))",
        "pass",
    ),
    Mutation(
        "a checkpoint that begins in a commit counts from after it",
        "sow/engine/atomic_change.py",
        "return self._seq() if self._change is None else self._change.seq",
        "return self._seq()",
    ),
    Mutation(
        "a full disk takes messages",
        "sow/engine/capacity.py",
        "        if not self._has_room(0):\n            raise",
        "        if False:\n            raise",
    ),
    Mutation(
        "a timer that is set earlier rings when it was set to before",
        "sow/engine/timers.py",
        "if noted is None or due_us < noted:",
        "if noted is None:",
    ),
    Mutation(
        "a conflated topic that is removed still hears",
        "sow/engine/catalog.py",
        "                self.topics[topic.underlying].router.unfile(topic.copy)\n",
        "                pass\n",
    ),
    Mutation(
        "the log has a hole",
        "sow/engine/wal.py",
        "self.seq += count",
        "self.seq += count + (count > 1)",
    ),
    Mutation(
        "a delete in steps takes what was published after its moment",
        "sow/engine/bulk_delete.py",
        "for going in self._running.get(topic, ()) if self._running else ():",
        "for going in ():",
    ),
    Mutation(
        "a delete in steps takes a new record in the place of an old one",
        "sow/engine/bulk_delete.py",
        "slots[self._table.born[slots] <= self._seq]",
        "slots",
    ),
    Mutation(
        "what was done in a run that goes on is waited for as well",
        "sow/engine/timers.py",
        " or item in self._done",
        "",
    ),
    Mutation(
        "a change in steps hides what views had to release",
        "sow/sessions/commands/staged_writes.py",
        "            yield from engine.views.settling_above(topic.name)\n",
        "",
    ),
    Mutation(
        "values that only a frozen copy has are given up",
        "sow/indexes/hash.py",
        "            if self._frozen() is not None:\n                return\n",
        "",
    ),
    Mutation(
        "a request after a pause is no turn",
        "sow/engine/output.py",
        "                    request.began_us = self.now_us()\n",
        "",
    ),
    Mutation(
        "requests that overlap hold views back for ever",
        "sow/engine/output.py",
        "(newest_us if since_us is None else min(newest_us, since_us))",
        "newest_us",
    ),
    Mutation(
        "a window shows half a request",
        "sow/engine/output.py",
        "        until_us = self.holds_until_us((channel.encoder.topic.name,), since_us)\n",
        "        until_us: int | None = None\n",
    ),
    Mutation(
        "a group is released before those that were handed over before it",
        "sow/server/loop/group_commit.py",
        "            group, size = groups.popleft()\n",
        "            group, size = groups.pop()\n",
    ),
    Mutation(
        "what has nothing to store overtakes what is on its way to the disk",
        "sow/server/loop/group_commit.py",
        "        if not group.entries:\n            self._leave()\n",
        "        if not group.entries:\n            self._release(group)\n",
    ),
    Mutation(
        "a journal that has refused a group stores the one behind it",
        "sow/server/loop/group_commit.py",
        "if not entries or self._refuses:",
        "if not entries:",
    ),
    Mutation(
        "a follower lets a window end after the change that follows it",
        "sow/engine/following.py",
        "                yield from self.pass_time(parts[0].ts_us)\n",
        "                yield from self._end_turn()\n",
    ),
    Mutation(
        "a follower gives all that it applies together one time",
        "sow/engine/following.py",
        "for time_us in repeat(entry.ts_us, len(entry))]",
        "for time_us in repeat(entries[-1].ts_us, len(entry))]",
    ),
    Mutation(
        "a follower applies together what somebody follows",
        "sow/engine/following.py",
        "            and not topic.router.is_followed\n",
        "",
    ),
    Mutation(
        "a follower applies together what a window ends between",
        "sow/engine/following.py",
        "            and (due_us is None or due_us > entry.ts_us)\n",
        "",
    ),
    Mutation(
        "a follower lets records expire by itself",
        "sow/engine/following.py",
        """            topic.leave_expired()
""",
        """            pass
""",
    ),
    Mutation(
        "a follower begins without what waits in windows",
        "sow/topic/conflated_topic.py",
        """        yield from self.conflation.go_on_from(windows)
        self.given = names
""",
        """        self.given = names
""",
    ),
    Mutation(
        "a place forgets where the grid of its windows begins",
        "conflated_topics/triggers.py",
        "self._begin_us, self._released_us, *windows = state",
        "_, self._released_us, *windows = state",
    ),
    Mutation(
        "a replay leaves out what was logged while the checkpoint of its place was written",
        "sow/engine/replay.py",
        "        if after_seq == until_seq:\n            return\n",
        "        return\n",
    ),
    Mutation(
        "a record that waits at a place stands where it stands below",
        "sow/topic/conflated_topic.py",
        "            copy.discard(waiting[start : start + STEP_ROWS])\n",
        "            copy.discard(n for n in waiting[start:][:STEP_ROWS] if n not in table)\n",
    ),
)
