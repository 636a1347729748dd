"""Three nodes over a simulated log, with faults, beside a naive model: `run(seed)`.

The model looks at every block when it is stored, and knows at once which groups are in the log and
in which order. Each node is compared with it at each step:

    applied     what a node applies or releases is the next group of the model: so nothing is lost
                or doubled, and all nodes are equal at equal places
    answered    what was acknowledged is in the log, what was refused as not applied never is
    fresh       a primary that does not say that it is stale has everything that was acknowledged
    goes on     when all faults have ended there is one primary, which acknowledges, and all follow

`python -m tests.shared_log.simulation --seeds n` runs many.
"""

import argparse
import heapq
from collections import Counter
from dataclasses import replace
from itertools import count
from random import Random
from unittest.mock import patch

from sow.errors import LogTrimmed
from sow.shared_log import entry
from sow.shared_log.entry import (
    GENESIS,
    ChainState,
    EntryKind,
    Lead,
    LogEnvelope,
    decode,
    decode_lead,
)
from sow.shared_log.roles import (
    ApplyGroup,
    FindEnd,
    FollowFrom,
    LeadFrom,
    LogNode,
    ReadFrom,
    ReleaseGroup,
)
from sow.shared_log.writer import AppendBlock
from tests.shared_log.engine import NO_FAULTS, Faults, SimulatedEngine

LEASE_US = 600_000
SECOND_US = 1_000_000
LONG_US = 40 * SECOND_US
PART_BYTES = 128
"""So much fits into an entry here, a lead just so: many groups take several entries."""


class Model:
    """What is in the log, by the rule as it is written down."""

    def __init__(self):
        self.hash, self.term, self.groups, self.voids = GENESIS, 0, [], 0
        self._parts = []

    def see(self, stored):
        """A block was stored."""
        found = decode(stored.block)
        if found is None or found[0].prev != self.hash:
            self.voids += 1
            return
        one, entry_hash = found
        if one.kind == EntryKind.LEAD:
            if one.term != self.term + 1 or decode_lead(one.content) is None:
                self.voids += 1
                return
            self.term, self._parts = one.term, []
        elif one.term != self.term or not self.term:
            self.voids += 1
            return
        elif one.kind != EntryKind.BEAT:
            self._parts.append(one.content)
            if not one.goes_on:
                self.groups.append(number_of(b"".join(self._parts)))
                self._parts = []
        self.hash = entry_hash


def content_of(number, size):
    return b"%d;" % number + bytes([number % 251]) * size


def number_of(content):
    """The number of a group, whose content is checked."""
    head, _, rest = content.partition(b";")
    assert rest == bytes([int(head) % 251]) * len(rest), "a group that nobody wrote"
    return int(head)


class SimulatedNode:
    """A process with a `LogNode`: killed, started again from its checkpoint, or paused."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.checkpoint = (ChainState(), [])
        self._drift = world.chance.uniform(0.99, 1.01)
        self._offset_us = world.chance.randrange(SECOND_US)
        self._wall_us = world.chance.choice((0, 0, 7200 * SECOND_US))
        self.is_alive = self.is_paused = False
        self.start()

    def start(self):
        """A new life."""
        self.life = object()
        self.is_alive, self.is_paused, self._inbox = True, False, []
        state, applied = self.checkpoint
        self.applied = list(applied)
        self.link, self._reader, self._timer = self.world.engine.connect(), None, 0
        self.world.links.append(self.link)
        lead = Lead(self.name, f"http://{self.name}:8080", LEASE_US)
        chance = self.world.chance
        self.log = LogNode(
            lead,
            state,
            self.now_us(),
            lambda: chance.randbytes(16),
            lambda: self._wall_us + self.world.now_us,
            chance.randint(1, 8),
        )
        self._go_on()

    def now_us(self):
        return self._offset_us + int(self.world.now_us * self._drift)

    def kill(self):
        """Nothing is left but what is on its way."""
        self.life, self.is_alive = None, False
        if self._reader is not None:
            self._reader.close()

    def pause(self):
        self.is_paused = True

    def resume(self):
        """What has come meanwhile is done now."""
        self.is_paused = False
        inbox, self._inbox = self._inbox, []
        for life, work in inbox:
            self._do(life, work)

    def _do(self, life, work):
        if life is not self.life:
            return
        if self.is_paused:
            self._inbox.append((life, work))
            return
        work()
        self._go_on()

    def event(self, work):
        """Something that happens to this life of the node."""
        life = self.life
        return lambda *found: self._do(life, lambda: work(*found))

    def submit(self, number, content):
        """A client publishes; whether the node takes it."""
        if not self.is_alive or self.is_paused:
            return False
        taken = self.log.submit(number, EntryKind.RECORDS, content, self.world.now_us)
        if taken:
            self._go_on()
        return taken

    def take_checkpoint(self):
        """Keep what is applied, if it is not in the middle of a group."""
        chain = self.log.chain
        if self.is_alive and chain.settled is chain.state:
            self.checkpoint = (chain.state, list(self.applied))

    def _go_on(self):
        if not self.is_alive:
            return
        self.log.pass_time(self.now_us())
        for order in self.log.take():
            self._carry_out(order)
        if self.is_alive:
            due_us = self.log.due_us()
            wait_us = max(1000, (due_us - self.now_us()) / self._drift)
            self._timer += 1
            timer = self._timer
            life = self.life

            def fire():
                if timer == self._timer:
                    self._do(life, lambda: None)

            self.world.later(wait_us / 1e6, fire)

    def _carry_out(self, order):
        world = self.world
        match order:
            case AppendBlock(token, block):

                def answered(position):
                    if position is None:
                        self.log.failed(token)
                    else:
                        self.log.acked(token, position, self.now_us())

                self.link.append(block, self.event(answered))
            case FindEnd():
                self.link.last(
                    self.event(lambda end: end is not None and self.log.end_is(end, self.now_us()))
                )
            case ReadFrom(after):
                if self._reader is not None:
                    self._reader.close()
                self._reader = self.link.read(
                    after, self.event(self._read), self.event(self._read_failed)
                )
            case ApplyGroup(group):
                self._apply(number_of(group.content))
            case ReleaseGroup(number):
                self._apply(number)
                world.acknowledge(number, len(self.applied))
            case LeadFrom():
                world.seen["leads"] += 1
            case FollowFrom(_, unreleased):
                world.seen["steps down"] += 1
                world.refuse(unreleased)

    def _read(self, stored):
        self.log.read(stored.position, stored.block, self.now_us())

    def _read_failed(self, error):
        if isinstance(error, LogTrimmed):
            self.world.seen["checkpoints of peers"] += 1
            self.checkpoint = self.world.newest_checkpoint()
            self.kill()
            self.start()
        else:
            self.log.read_failed(self.now_us())

    def _apply(self, number):
        groups = self.world.model.groups
        at = len(self.applied)
        assert at < len(groups), f"{self.name} has {number}, which is not in the log"
        assert groups[at] == number, f"{self.name} has {number} at {at}, the log {groups[at]}"
        self.applied.append(number)


class World:
    """Three nodes, an engine, clients, and what goes wrong."""

    def __init__(self, seed):
        self.chance = Random(seed)
        self.now_us = 0
        self._heap, self._order = [], count()
        self.seen = Counter()
        self.model = Model()
        self.engine = SimulatedEngine(self.chance, self.later, NO_FAULTS, self.model.see)
        self.links = []
        self.acknowledged, self.refused = {}, set()
        self.acknowledged_to = 0
        """Groups of the log up to the newest that was acknowledged."""
        self.numbers = count(1)
        self.nodes = [SimulatedNode(self, name) for name in "abc"]

    def later(self, after_s, work):
        due_us = self.now_us + max(0, int(after_s * 1e6))
        heapq.heappush(self._heap, (due_us, next(self._order), work))

    def pass_time(self, us):
        end_us = self.now_us + us
        while self._heap and self._heap[0][0] <= end_us:
            self.now_us, _, work = heapq.heappop(self._heap)
            work()
        self.now_us = end_us

    # What clients are answered.

    def acknowledge(self, number, place):
        assert number not in self.acknowledged, f"{number} is acknowledged twice"
        assert number not in self.refused, f"{number} was refused"
        self.acknowledged[number] = place
        self.acknowledged_to = max(self.acknowledged_to, place)

    def refuse(self, numbers):
        for number in numbers:
            assert number not in self.acknowledged, f"{number} was acknowledged"
            assert number not in self.model.groups, f"{number} is refused, and in the log"
        self.refused.update(numbers)

    def publish(self):
        number = next(self.numbers)
        size = self.chance.randrange(self.chance.choice((PART_BYTES // 2, 4 * PART_BYTES)))
        for node in self.chance.sample(self.nodes, 3):
            if node.submit(number, content_of(number, size)):
                return number
        return None

    def check_fresh(self):
        """A primary that is not stale has all that was acknowledged."""
        for node in self.nodes:
            if not node.is_alive or node.is_paused or not node.log.is_primary:
                continue
            if not node.log.is_stale(node.now_us()):
                assert len(node.applied) >= self.acknowledged_to, f"{node.name} is out of date"
                self.seen["fresh"] += 1

    # What goes wrong.

    def newest_checkpoint(self):
        return max((one.checkpoint for one in self.nodes), key=lambda kept: kept[0].position)

    def wait_s(self):
        return self.chance.choice((0.05, 0.3, 0.9, 1.5, 4.0)) * self.chance.random()

    def go_wrong(self):
        kind = self.chance.choice(FAULTS)
        self.seen[kind.__name__] += 1
        kind(self)

    def _node(self):
        """A node, the primary more often than others."""
        leads = [one for one in self.nodes if one.is_alive and one.log.is_primary]
        return self.chance.choice(leads if leads and self.chance.random() < 0.6 else self.nodes)

    def kill(self):
        node = self._node()
        if node.is_alive:
            node.kill()
            self.later(self.wait_s(), lambda: node.is_alive or node.start())

    def pause(self):
        node = self._node()
        if node.is_alive and not node.is_paused:
            node.pause()
            self.later(self.wait_s(), lambda: node.is_paused and node.resume())

    def cut(self):
        link, keep = self._node().link, self.chance.choice((0.0, 0.5, 1.0))
        link.cut()
        self.later(self.wait_s(), lambda: link.heal(keep))

    def away(self):
        link = self._node().link
        link.is_away = True

        def back():
            link.is_away = False

        self.later(self.wait_s(), back)

    def lose_answers(self):
        link = self._node().link
        link.loses_answers = True

        def back():
            link.loses_answers = False

        self.later(self.wait_s(), back)

    def stop_engine(self):
        self.engine.is_stopped = True

        def back():
            self.engine.is_stopped = False

        self.later(self.wait_s(), back)

    def slow_down(self):
        self.engine.faults = replace(self.engine.faults, delay_s=0.2 * self.chance.random())

        def back():
            self.engine.faults = replace(self.engine.faults, delay_s=NO_FAULTS.delay_s)

        self.later(self.wait_s(), back)

    def write_garbage(self):
        blocks = [one.block for one in self.engine.blocks[-20:]] or [b""]
        old = self.chance.choice(blocks)
        forged = Lead("mallory", "", LEASE_US).encode()
        term, prev = self.model.term + 1, self.chance.randbytes(16)
        lead = LogEnvelope(EntryKind.LEAD, term, 0, prev, prev, forged)
        garbage = (b"", b"SOWL", self.chance.randbytes(90), old, old[:-1], lead.encode()[0])
        self.engine.store(self.chance.choice(garbage))

    def checkpoint(self):
        self._node().take_checkpoint()

    def trim(self):
        self.engine.trim(self.newest_checkpoint()[0].position + 1)

    def end_faults(self):
        """Everything works again, and every node runs."""
        self.engine.faults, self.engine.is_stopped = NO_FAULTS, False
        for link in self.links:
            link.end_faults()
        for node in self.nodes:
            if not node.is_alive:
                node.start()
            elif node.is_paused:
                node.resume()


FAULTS = (
    World.kill,
    World.pause,
    World.cut,
    World.cut,
    World.away,
    World.lose_answers,
    World.stop_engine,
    World.slow_down,
    World.write_garbage,
    World.checkpoint,
    World.trim,
)


def run(seed, steps=300):
    """One world; what was seen in it. Fails with the seed."""
    world = World(seed)
    try:
        with patch.object(entry, "CONTENT_BYTES_MAX", PART_BYTES):
            _run(world, steps)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    world.seen.update(
        acknowledged=len(world.acknowledged),
        refused=len(world.refused),
        void=world.model.voids,
        terms=world.model.term,
    )
    return world.seen


def _run(world, steps):
    chance = world.chance
    world.engine.faults = Faults(
        lost=chance.choice((0, 0.02)),
        unanswered=chance.choice((0, 0.05)),
        late=chance.choice((0, 0.02)),
        doubled=chance.choice((0, 0.05)),
        dead_reader=chance.choice((0, 0.002)),
    )
    for _ in range(steps):
        for _ in range(chance.randrange(6)):
            world.publish()
        world.pass_time(int(chance.expovariate(1 / 50_000)))
        world.check_fresh()
        if chance.random() < 0.1:
            world.go_wrong()
    world.end_faults()
    world.pass_time(LONG_US)
    world.check_fresh()
    number = world.publish()
    world.pass_time(SECOND_US)
    assert number in world.acknowledged, "nobody acknowledges any more"
    leads = [node.name for node in world.nodes if node.log.is_primary]
    assert len(leads) == 1, f"primaries: {leads}"
    groups = world.model.groups
    assert len(set(groups)) == len(groups), "a group is in the log twice"
    assert world.acknowledged.keys() <= set(groups), "something acknowledged is lost"
    assert not world.refused & set(groups), "something refused is in the log"
    for node in world.nodes:
        assert node.applied == groups, f"{node.name} is not where the log is"


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.shared_log.simulation")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=300)
    wanted = parser.parse_args()
    seen = Counter()
    for seed in range(wanted.first, wanted.first + wanted.seeds):
        seen += run(seed, wanted.steps)
    print(f"{wanted.seeds} seeds: no difference; {dict(seen)}")


if __name__ == "__main__":
    main()
