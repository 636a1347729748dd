"""Bugs of what is read of messages, kept of records and told of changes."""

from tests.simulation.mutation import Mutation

TOPIC = (
    Mutation(
        "records of a copy stand as they came",
        "sow/topic/conflated_topic.py",
        "there, births = self.underlying, partial(_places, self.underlying, identities, seqs)",
        "there, births = self.underlying, lambda: seqs",
    ),
    Mutation(
        "records of a copy stay where they were though they were removed in between",
        "sow/store/memory.py",
        "return self._free is NONE_FREE and not self.is_arranged",
        "return not self.is_arranged",
    ),
    Mutation(
        "new indexes do not hear of what changes while they are made",
        "sow/topic/records.py",
        "self._coming.put(slots, batch.column)",
        "pass",
    ),
    Mutation(
        "a copy that is being filled does not hear of what changes",
        "sow/topic/conflated_topic.py",
        "            self._noted.update(dict.fromkeys(changes.identities))",
        "            pass",
    ),
    Mutation(
        "folding takes the newer `known`",
        "sow/topic/batch.py",
        "known, old = current.known, current.old",
        "old = current.old",
    ),
    Mutation(
        "an oof carries a state that was never told",
        "sow/topic/batch.py",
        "known, old = current.known, current.old",
        "known = current.known",
    ),
    Mutation(
        "a folded delta forgets the first one",
        "sow/topic/batch.py",
        "None if current.delta is None else composed(current.delta, delta)",
        "None if current.delta is None else delta",
    ),
    Mutation(
        "a void update is told",
        "sow/topic/batch.py",
        "return self.new is None and not self.known",
        "return False",
    ),
    Mutation(
        "updates that lack what they are matched by match each other",
        "sow/topic/queue_policy.py",
        "return (None, identity) if None in texts else texts",
        "return texts",
    ),
    Mutation(
        "a message that was merged counts as one again",
        "sow/topic/queue_policy.py",
        "folded._replace(new=body, delta=None, merged=True)",
        "folded._replace(new=body, delta=None)",
    ),
    Mutation(
        "a deleted record comes back with a delta publish",
        "sow/topic/records.py",
        "        slot = self.table.slots.get(identity)\n        if slot is None:\n",
        "        slot = self.table.slots.get(identity, 0)\n        if not self.table.bodies:\n",
    ),
    Mutation(
        "a message that says when it expires has the lifetime of its topic",
        "sow/engine/running_topics.py",
        "        if messages.expires_us is not None:\n",
        "        if False:\n",
    ),
    Mutation(
        "a lifetime is noted for another time than the record says",
        "sow/engine/timers.py",
        "for entry in _entries(expires_us, identities):",
        "for entry in _entries(expires_us - 1, identities):",
    ),
    Mutation(
        "a stranger's update brings its own bookmark to an older place",
        "sow/topic/batch.py",
        "first_seq=current.first_seq,",
        "first_seq=new.first_seq,",
    ),
    Mutation(
        "copies are alike though their intervals are not",
        "sow/topic/conflated_topic.py",
        "one.filter, one.interval_us, one.schedule",
        "one.filter, one.schedule",
    ),
    Mutation(
        "a copy whose filter is found does not hear of what it holds",
        "sow/streaming/predicate_index.py",
        "            concerned |= copy.those_there(identities)\n",
        "            pass\n",
    ),
    Mutation(
        "a copy that is found hears of one change of a record that comes twice",
        "sow/streaming/predicate_index.py",
        "some = sorted(at for identity in concerned for at in places[identity])",
        "some = sorted(places[identity][0] for identity in concerned)",
    ),
    Mutation(
        "a copy that fails while it hears fails who publishes",
        "sow/topic/conflated_topic.py",
        "return self.conflation.take_in(offered, now_us)\n        except Exception as error:",
        "return self.conflation.take_in(offered, now_us)\n        except KeyError as error:",
    ),
    Mutation(
        "a copy that has stopped keeps what was true once",
        "sow/topic/conflated_topic.py",
        "        self.is_clearing = True\n",
        "",
    ),
    Mutation(
        "another filter looks past what is about to leave",
        "sow/topic/conflated_topic.py",
        "if not self.conflation.will_hold(name)]",
        "if name not in self.copy.table]",
    ),
    Mutation(
        "another filter looks past what is about to enter",
        "sow/topic/conflated_topic.py",
        "if name not in wanted and self.conflation.will_hold(name):",
        "if name not in wanted and name in self.copy.table:",
    ),
    Mutation(
        "a delta is that of the whole documents",
        "sow/topic/batch.py",
        "return shown_of(shape, before), shown_of(shape, after)",
        "return before, after",
    ),
    Mutation(
        "numbers of very many fields that are equal are the same",
        "sow/core/delta.py",
        "PLAIN = frozenset({str, int, bool, type(None)})",
        "PLAIN = frozenset({str, int, float, bool, type(None)})",
    ),
    Mutation(
        "an index keeps what was deleted",
        "sow/topic/records.py",
        "        self.indexes.drop(slots)\n",
        "",
    ),
    Mutation(
        "a sum of merged messages knows the newer one only",
        "sow/topic/queue_policy.py",
        "return _like(total, current, new)",
        "return _like(other, current, new)",
    ),
    Mutation(
        "only the first record of a publish expires",
        "sow/engine/timers.py",
        "        for entry in _entries(expires_us, identities):",
        "        for entry in _entries(expires_us, identities[:1]):",
    ),
    Mutation(
        "fields are read for filters that have gone",
        "sow/topic/fields.py",
        "        if len(self._counts) < known:\n",
        "        if False:\n",
    ),
    Mutation(
        "an event that was edited is as it was after a restart",
        "sow/topic/series.py",
        "self.edit(identities[0], origin.edits, bodies[0], origin.author)",
        "pass",
    ),
)
