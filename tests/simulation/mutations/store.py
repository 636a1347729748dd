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
)
