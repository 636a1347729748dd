"""Bugs of the shared log, each of which loses, doubles or hides something in some world."""

from tests.simulation.mutation import Mutation

SHARED_LOG = (
    Mutation(
        "what the engine has answered is released without reading it back",
        "sow/shared_log/roles.py",
        "            self._writer.acked(token, position, now_us)\n",
        "            self._writer.acked(token, position, now_us)\n"
        "            for one in self._writer._flying():\n"
        "                if one.token == token and one.number is not None:\n"
        "                    self._orders.append(ReleaseGroup(one.number))\n"
        "                    one.number = None\n",
    ),
    Mutation(
        "an entry is valid because it was stored, as a condition by position has it",
        "sow/shared_log/entry.py",
        "        return entry.prev == state.hash and entry.term == state.term > 0\n",
        "        return state.term > 0\n",
    ),
    Mutation(
        "what stands where an answer says is taken for what was sent",
        "sow/shared_log/roles.py",
        "            self._writer.passed(position, entry.hash)\n",
        "            for one in self._writer._flying():\n"
        "                if one.position == position and one.number is not None:\n"
        "                    self._orders.append(ReleaseGroup(one.number))\n"
        "                    one.number = None\n"
        "            self._writer.passed(position, entry.hash)\n",
    ),
    Mutation(
        "a block as long as what was sent is taken for it",
        "sow/shared_log/writer.py",
        "block != first.block",
        "len(block) != len(first.block)",
    ),
    Mutation(
        "an answer to an earlier attempt counts for a later one",
        "sow/shared_log/writer.py",
        "            if entry.token == token:\n",
        "            if entry.position is None:\n",
    ),
    Mutation(
        "an earlier attempt that comes late is not recognised",
        "sow/shared_log/writer.py",
        "entry_hash not in self._entries[0].attempts",
        "entry_hash != self._entries[0].hash",
    ),
    Mutation(
        "a lead is valid though its node has not read everything",
        "sow/shared_log/entry.py",
        "            return opens and entry.prev == state.hash\n",
        "            return opens\n",
    ),
    Mutation(
        "half a group is joined to the next one when another node leads",
        "sow/shared_log/entry.py",
        "        if lead is not None:\n            self._parts.clear()\n",
        "        if lead is not None:\n            pass\n",
    ),
    Mutation(
        "a follower leads while the primary need not know that it is not heard",
        "sow/shared_log/roles.py",
        "LEASES_OF_SILENCE = 2\n",
        "LEASES_OF_SILENCE = 0.5\n",
    ),
    Mutation(
        "a primary that is not heard never says so",
        "sow/shared_log/roles.py",
        "        return self.silent_us(now_us) > self.lease_us\n",
        "        return not self.is_primary and self.silent_us(now_us) > self.lease_us\n",
    ),
    Mutation(
        "who has heard of a new log goes on with its time, which began in 1970",
        "sow/server/loop/log_driver.py",
        " and state.time_us > 0",
        "",
    ),
    Mutation(
        "groups that go together change their order",
        "sow/server/loop/log_writer.py",
        "entries, size = [*entries, *more], size + size_of(more)",
        "entries, size = [*more, *entries], size + size_of(more)",
    ),
)
