"""History: every moment of its Window is answered as it was, and what is older is refused."""

import asyncio
import json
import logging
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import itemgetter
from random import Random

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, History, Series, View
from sow.engine.recovery.redo import stored_slices
from sow.errors import NotKept
from sow.history.bookmarks import moment_us
from sow.history.bookmarks import time_text as written
from sow.query import Query
from sow.server.api.records import RecordsHandler
from sow.server.api.snapshots import AsOfQueries, SnapshotHandler
from sow.server.boot.checkpointer import CHECK_S, Checkpointer
from sow.sessions.queries.past_states import PastStates
from sow.store.checkpoint import _delete, slice_key
from sow.store.restoring import restore
from tests.edge.lives import DESKS, NOW_US, TRADES, backed_up, lives_on
from tests.effort import seeds
from tests.server.stand_ins import ORDERS, SECOND, Served, World, routes_to, stepped
from tests.store.in_memory import MemoryCheckpoint, MemoryJournal

WINDOW_US, APART_US = 60 * SECOND, 10 * SECOND
KEPT = replace(ORDERS, history=History(WINDOW_US, APART_US))
SUMS = View("sums", "json", ("orders",), ("/id AS /id", "SUM(/n) AS /n"), ("/id",))


class Place(Served):
    """A world with a History, its checkpointer, and what was answered at each moment."""

    def __init__(self, topic=KEPT, name="orders", beside=(), **journal):
        self.name, self.beside = name, {one.name: {} for one in beside}
        world = World(topic, *beside, journal=MemoryJournal(**{"retention_bytes": 0} | journal))
        self.checkpoint = MemoryCheckpoint()
        checkpoints = {topic.name: self.checkpoint}
        self.checkpointer = Checkpointer(world.runtime, checkpoints, world.journal.trim)
        self.states = world.executor.subscriptions.past
        self.states.checkpoints = checkpoints
        past = AsOfQueries(world.runtime, self.states)
        snapshots = SnapshotHandler(world.runtime, world.engine, past)
        super().__init__(
            world, *routes_to(RecordsHandler(world.runtime, world.executor, past, snapshots))
        )
        self.answers = {}

    async def __aexit__(self, *error):
        await self.checkpointer.close()
        await super().__aexit__(*error)

    @property
    def now_us(self):
        return self.world.clock.now_us()

    async def asked(self, more="", name=None):
        path = f"/v1/topics/{(name or self.name).replace('/', '%2F')}/records"
        return await self.get(path + more)

    async def note(self):
        """Note what is answered now, which was so before the next microsecond."""
        await self.world.runtime.durable()
        self.answers[self.now_us + 1] = (await self.asked()).body
        for name, answers in self.beside.items():
            answers[self.now_us + 1] = (await self.asked(name=name)).body

    async def publish(self, *documents):
        bodies = [json.dumps(document).encode() for document in documents]
        self.world.publish(*bodies, topic=self.name)
        await self.note()

    async def go_through(self, random, steps):
        """Publish and delete now and then, while the checkpointer works."""
        self.checkpointer.start()
        for number in range(steps):
            self.world.clock.advance(random.randrange(1, 7) * SECOND)
            engine = self.world.engine
            table = engine.topic(self.name).records.table if number else None
            names = [] if table is None else [one for one in table.identities if one is not None]
            if random.random() < 0.2 and names:
                topic = engine.topic(self.name)
                engine.remove(topic, random.sample(names, 1), "delete", self.now_us)
                await self.note()
            elif random.random() < 0.8 or not number:
                ids = random.sample(range(9), random.randrange(1, 4))
                await self.publish(*({"id": id_, "n": number} for id_ in ids))
            await asyncio.sleep(1.5 * CHECK_S)

    async def check(self, since_us):
        """All that was answered since a time is answered again; what is older is right or refused
        with the range."""
        states, topic = self.states, self.world.engine.topic(self.name)
        self.world.clock.advance(1)  # none of them is in the future
        await asyncio.sleep(1.5 * CHECK_S)  # and nothing more goes until it does
        for time_us, body in self.answers.items():
            answer = await self.asked(f"?as_of={written(time_us)}")
            if time_us >= since_us or answer.status == 200:
                assert (answer.status, answer.body) == (200, body), written(time_us)
                bookmark = states.moment(topic, written(time_us), self.world.engine.seq).seq
                steps = states.bodies(topic, bookmark, 2**30)  # as one who goes on from there
                bodies = await self.world.runtime.turns.run("bodies", steps)
                known = sorted(map(json.loads, bodies.values()), key=itemgetter("id"))
                assert known == sorted(json.loads(body), key=itemgetter("id"))
                continue
            assert (answer.status, answer.json["reason"]) == (400, "invalid bookmark")
            oldest = answer.json["oldest"]
            since = moment_us(oldest["time"])
            before = [one for at, one in self.answers.items() if at <= since][-1]
            assert (await self.asked(f"?as_of={oldest['time']}")).body == before
            assert (await self.asked(f"?as_of={oldest['bookmark']}")).body == before


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize(
    ("topic", "name"),
    [
        (KEPT, "orders"),
        (replace(KEPT, series=Series(3)), "orders"),
        (replace(DESKS, history=KEPT.history), "/desk/a"),
    ],
)
@stepped
async def test_every_moment_of_the_window_is_answered_as_it_was(seed, topic, name):
    async with Place(topic, name) as place:
        await place.go_through(Random(seed), 60)
        kept = place.checkpoint.kept
        apart = [b.exact_us - a.exact_us for a, b in pairwise(kept)]
        assert min(apart) >= APART_US
        assert sum(one.exact_us < place.now_us - WINDOW_US for one in kept) == 1
        assert place.world.journal.first_seq == kept[0].seq + 1, "no more of the log is kept"
        assert min(place.answers) < kept[0].exact_us, "or nothing would be too old"
        await place.check(place.now_us - WINDOW_US)


@stepped
async def test_a_view_of_it_begins_with_the_checkpoint_too():
    async with Place(beside=[SUMS]) as place:
        await place.go_through(Random(2), 40)
        place.world.clock.advance(1)
        since_us = place.now_us - WINDOW_US // 2
        wanted = {at: body for at, body in place.beside["sums"].items() if at > since_us}
        assert place.world.journal.first_seq > 1
        assert len(wanted) > 3
        for time_us, body in wanted.items():
            answer = await place.asked(f"?as_of={written(time_us)}", "sums")
            assert (answer.status, answer.body) == (200, body)


@stepped
async def test_a_time_in_which_nothing_came_is_known_when_the_log_has_nothing_left():
    async with Place() as place:
        await place.go_through(Random(1), 12)
        for _ in range(3):
            place.world.clock.advance(WINDOW_US)
            await asyncio.sleep(1.5 * CHECK_S)
        assert place.world.journal.first_seq == place.world.journal.last_seq + 1
        body = (await place.asked()).body
        for ago_us in (0, WINDOW_US // 2, WINDOW_US):
            answer = await place.asked(f"?as_of={written(place.now_us - ago_us)}")
            assert (answer.status, answer.body) == (200, body)
        refused = await place.asked(f"?as_of={written(min(place.answers))}")
        assert (refused.status, "oldest" in refused.json) == (400, True)


@stepped
async def test_without_a_history_nothing_is_kept():
    async with Place(ORDERS) as place:
        await place.go_through(Random(1), 12)
        assert (place.checkpoint.kept, place.checkpoint.seq) == ([], 0)


def reconfigure(place, history):
    world = place.world
    topics = [
        replace(one, history=history) if one.name == "orders" else one
        for one in world.engine.configuration.topics
    ]
    configuration = replace(world.engine.configuration, topics=tuple(topics))
    return world.executor.reconfigure(configuration, place.now_us)


@stepped
async def test_a_reload_that_lowers_the_window_lets_go_and_one_that_raises_it_keeps_from_now_on():
    async with Place() as place:
        await place.go_through(Random(3), 40)
        begin = place.world.journal.first_seq
        assert reconfigure(place, History(2 * APART_US, APART_US)) == ["History of orders changed"]
        await asyncio.sleep(1.5 * CHECK_S)
        assert place.world.journal.first_seq > begin
        await place.check(place.now_us - 2 * APART_US)
        kept = place.checkpoint.kept
        reconfigure(place, History(10 * WINDOW_US, APART_US))
        place.world.clock.advance(WINDOW_US)
        await asyncio.sleep(1.5 * CHECK_S)
        assert place.checkpoint.kept[: len(kept)] == kept
        await place.check(kept[0].exact_us + 1)
        reconfigure(place, None)
        await asyncio.sleep(1.5 * CHECK_S)
        assert place.checkpoint.kept == []


@stepped
async def test_on_a_full_disk_what_is_published_goes_first(caplog):
    async with Place(retention_bytes=60) as place:
        await place.go_through(Random(4), 12)
        journal = place.world.journal
        size_bytes, journal.full = journal.size_bytes, True
        with caplog.at_level(logging.WARNING, "sow"):
            await asyncio.sleep(3.5 * CHECK_S)
        assert caplog.text.count("the log that History keeps beyond RetentionSize goes") == 1
        assert journal.size_bytes < size_bytes
        journal.full = False
        await asyncio.sleep(1.5 * CHECK_S)
        await place.check(place.now_us)
        assert all(one.seq >= journal.first_seq - 1 for one in place.checkpoint.kept)


# On a disk.

DISK = replace(TRADES, history=History(WINDOW_US, APART_US))


def checkpoint(life, at_us):
    """A checkpoint that is kept as of a time."""
    engine = life.engine
    engine.sequencer.moment(at_us)
    slices = stored_slices(engine.catalog, "trades", 2)
    life.opening.checkpoints["trades"].write(engine.seq, slices, lambda: (engine.seq, at_us))


def at(life, time_us, name="trades"):
    """The records as of a time; raises NotKept."""
    life.engine.sequencer.moment(NOW_US + 4 * SECOND)
    past = PastStates(life.engine, life.journal, life.opening.checkpoints)
    then = run_to_completion(past.query(name, written(time_us), Query())).rows
    return [json.loads(body) for body in then.part(0, len(then)).bodies]


def written_down(live):
    """A log that begins behind a checkpoint that is kept, and what there was at which time."""
    with live(DISK) as life:
        life.publish("trades", {"id": 1}, {"id": 2}, {"id": 3}, now_us=NOW_US)
        checkpoint(life, NOW_US + 10)
        life.publish("trades", {"id": 2, "n": 1}, {"id": 4}, now_us=NOW_US + 20)
        checkpoint(life, NOW_US + 30)
        life.publish("trades", {"id": 3, "n": 2}, now_us=NOW_US + 40)
        life.checkpoint()
        first, _ = life.opening.checkpoints["trades"].kept
        while life.journal.trim(NOW_US, first.seq + 1, beyond=True):
            pass
        assert life.journal.first_seq == 4
    one, two, three = {"id": 1}, {"id": 2, "n": 1}, {"id": 3}
    return {
        NOW_US + 11: [one, {"id": 2}, three],
        NOW_US + 21: [one, two, three, {"id": 4}],
        NOW_US + 31: [one, two, three, {"id": 4}],
        NOW_US + 41: [one, two, {"id": 3, "n": 2}, {"id": 4}],
    }


def test_the_past_is_there_after_a_kill_and_a_start(tmp_path):
    live = lives_on(tmp_path)
    then = written_down(live)
    for _ in range(2):
        with live(DISK) as life:
            assert {time_us: at(life, time_us) for time_us in then} == then
            with pytest.raises(NotKept):
                at(life, NOW_US + 5)
            # Half of another one, as a kill leaves it.
            broken = stored_slices(life.engine.catalog, "trades", 1)
            with pytest.raises(InterruptedError):
                life.opening.checkpoints["trades"].write(9, _cut(broken), lambda: (9, NOW_US + 90))


def _cut(slices):
    yield next(slices)
    raise InterruptedError


def test_what_an_earlier_release_has_removed_is_refused_and_never_guessed(tmp_path, caplog):
    live = lives_on(tmp_path)
    then = written_down(live)
    with live(DISK) as life:
        keys = [slice_key(1, 1), slice_key(2, 0), slice_key(2, 1)]
        life.opening.checkpoints["trades"]._env.write(partial(_delete, keys=keys))
    with live(DISK) as life:
        assert "2 of 2 checkpoints that History keeps are not whole" in caplog.text
        assert at(life, NOW_US + 41) == then[NOW_US + 41]
        with pytest.raises(NotKept):
            at(life, NOW_US + 11)
    with live(DISK) as life:
        assert life.opening.checkpoints["trades"].kept == []


def test_a_restored_backup_answers_for_its_past(tmp_path):
    live = lives_on(tmp_path / "data")
    then = written_down(live)
    with live(DISK) as life:
        backup = backed_up(life, tmp_path / "backup")
        assert (backup.contents.format, backup.oldest) == (2, 3)
    assert all(problem == "" for *_, problem in backup.verify())
    restore(backup, tmp_path / "again", now_us=NOW_US + 1000)
    with lives_on(tmp_path / "again")(DISK) as life:
        assert {time_us: at(life, time_us) for time_us in then} == then
        assert life.records("trades") == then[NOW_US + 41]
        with pytest.raises(NotKept):
            at(life, NOW_US + 5)


def test_a_restored_backup_answers_for_the_past_of_copies_and_views(tmp_path):
    copy = ConflatedTopic("trades-C", "json", "trades", interval_us=SECOND)
    sums = View("sums", "json", ("trades",), ("/id AS /id", "SUM(/n) AS /n"), ("/id",))
    topics, times = (TRADES, copy, sums), range(NOW_US + 1, NOW_US + 3 * SECOND, SECOND // 4)

    def told(life):
        return {
            (name, at_us): at(life, at_us, name) for name in ("trades-C", "sums") for at_us in times
        }

    with lives_on(tmp_path / "data")(*topics) as life:
        for number in range(5):
            documents = {"id": 1, "n": number}, {"id": number, "n": 1}
            life.publish("trades", *documents, now_us=NOW_US + number * SECOND // 2)
        before = told(life)
        backup = backed_up(life, tmp_path / "backup")
    assert before["trades-C", times[0]] == []
    assert before["trades-C", times[-1]] != before["sums", times[-1]] != before["sums", times[0]]
    restore(backup, tmp_path / "again", now_us=NOW_US + 5 * SECOND)
    with lives_on(tmp_path / "again")(*topics) as life:
        assert told(life) == before
