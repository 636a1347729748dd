"""Bugs of what keeps and finds records: tables and indexes."""

from tests.simulation.mutation import Mutation

STORE = (
    Mutation(
        "rows stand in the order in which they were made",
        "sow/store/memory.py",
        "        self._places[where] = places",
        "        pass",
    ),
    Mutation(
        "a record that changes stays under its old value in a hash index",
        "sow/core/inner_loops.py",
        "        if standing[slot] != code:\n",
        "        if standing[slot] == NO_PLACE:\n",
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
        "what all records take is counted without those that go",
        "sow/store/memory.py",
        "self._usage.bytes -= shrunk + RECORD_BYTES * len(olds)",
        "self._usage.bytes -= shrunk",
    ),
    Mutation(
        "names of a moment are those of whoever stands there since",
        "sow/store/memory.py",
        "before[slot] if slot in before else self.identities[slot]",
        "self.identities[slot]",
    ),
    Mutation(
        "a table counts bytes that it has replaced",
        "sow/store/memory.py",
        "sum(map(len, bodies)) - sum(map(len, filter(None, olds)))",
        "sum(map(len, bodies))",
    ),
    Mutation(
        "History lets go of a checkpoint that its Window needs",
        "sow/server/boot/checkpointer.py",
        "return max(old - 1, cut), old > cut",
        "return max(old, cut), old > cut",
    ),
    Mutation(
        "the log behind a checkpoint that History keeps is passed over",
        "sow/history/snapshot_as_of.py",
        "begin = base or Base(journal.first_seq - 1)",
        "begin = Base(bookmark, base.slices) if base else Base(journal.first_seq - 1)",
    ),
    Mutation(
        "a checkpoint that History keeps goes with the next one",
        "sow/store/checkpoint.py",
        "(_SLICES, copied | kept)",
        "(_SLICES, copied)",
    ),
    Mutation(
        "a user has all names of publishers",
        "sow/sessions/commands/publishers.py",
        'whose, most = "of your publishers have", most // SHARE',
        'whose, most = "of your publishers have", most',
    ),
)
