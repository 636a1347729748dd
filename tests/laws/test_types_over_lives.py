"""Types of columns over lives of the process: never narrower than those in an earlier response.

A response is sent when the group that is open at its request is durable. So each prefix of what was
made durable is a state in which a process may have been killed.
"""

import json

from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import KNOWN_COLUMNS, WRITES, WRITES_BEFORE, ConflatedTopic, Topic
from sow.sessions.commands.commit_plan import StagedRows, read
from sow.sessions.commands.staged_writes import StagedWrites
from tests.effort import examples
from tests.laws.harness import SECOND, World
from tests.store.in_memory import MemoryJournal

ORDERS = Topic("orders", "json", keys=("/id",))
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
COPY = ConflatedTopic("copy", "json", "orders", interval_us=SECOND)
TOPICS = (ORDERS, DESKS, COPY, WRITES, WRITES_BEFORE, KNOWN_COLUMNS)
NAMES = ("orders", "/desk/1", "copy")
VALUES = (1, "text", 0.5, 2**60, None, True, 10**30, [1])


class Kept(MemoryJournal):
    """Remembers what was made durable together."""

    def __init__(self, groups=()):
        super().__init__()
        self.groups = []
        for group in groups:
            self.append(group)

    def append(self, entries):
        super().append(entries)
        self.groups.append(list(entries))


def world_of(journal):
    return World(*TOPICS, journal=journal, checkpoints={})


def types_of(world, name):
    """The reported types of fields, in the order of the columns; nothing for no topic."""
    if name not in world.engine.topics:
        return {}
    types = run_to_completion(world.engine.columns.making(world.engine.topic(name)))
    world.settle()
    return dict(types.kinds)


documents = st.builds(
    lambda id_, field, value: {"id": id_, field: value},
    st.integers(1, 2),
    st.sampled_from("vw"),
    st.sampled_from(VALUES),
)
acts = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(NAMES[:2]), st.lists(documents, min_size=1)),
    st.tuples(st.just("staged"), st.lists(documents, min_size=1)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES[:2]), st.integers(1, 2)),
    st.tuples(st.just("ask"), st.sampled_from(NAMES)),
    st.tuples(st.just("wait")),
    st.tuples(st.just("kill")),
)


def body(document):
    return json.dumps(document, separators=(",", ":")).encode()


def carry_out(world, epoch, act):
    match act:
        case "publish", name, some:
            world.publish(name, *some)
        case "staged", some:
            records, count = world.engine.topic("orders").records, len(some)
            rows = StagedRows(["publish"] * count, [None] * count, [body(one) for one in some])
            steps = [read(records, run) for run in rows.runs()]
            writes = StagedWrites(world.engine)
            for _ in writes.applying("writer", epoch, "orders", steps, world.now):
                # What is logged may be durable before it is stored.
                world.settle()
            world.settle()
        case "delete", name, id_ if name in world.engine.topics:
            world.delete(name, f"/id = {id_}")
        case ("wait",):
            world.advance(SECOND)


def is_as_wide(found, told):
    return all(held & ~found.get(field, 0) == 0 for field, held in told.items())


@examples(36)
@given(st.lists(acts, max_size=14))
def test_types_are_never_narrower_than_sent_wherever_the_process_is_killed(taken):
    world, told = world_of(Kept()), []
    for epoch, act in enumerate(taken, 1):
        if act[0] == "kill":
            world = world_of(Kept(world.journal.groups))
        elif act[0] == "ask":
            found = types_of(world, act[1])
            told.append((len(world.journal.groups), act[1], found))
        else:
            carry_out(world, epoch, act)
    for count in range(len(world.journal.groups) + 1):
        other = world_of(Kept(world.journal.groups[:count]))
        for since, name, types in told:
            if since <= count:
                found = types_of(other, name)
                assert is_as_wide(found, types)
                assert list(found)[: len(types)] == list(types)
