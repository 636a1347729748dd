"""Where replays begin: near a moment they give what one of the whole log does.

Places in the middle of the log at which a replay may begin: it gives what one of the whole log
does. `tests/simulation/sent.py` has them in many lives of a server.
"""

import json
from dataclasses import replace
from random import Random

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import CONFIGURATIONS, ConflatedTopic, Merge, Topic, View
from sow.engine.configurations import noted
from sow.engine.replay import Moment, Reach, Replay
from sow.engine.running_topics import CopyTopic
from sow.sessions.queries import replay_starts
from sow.sessions.queries import replay_starts as module
from sow.sessions.queries.past_states import PastStates
from sow.sessions.queries.replay_starts import newest_state, open_windows, places_before
from sow.store import log_indexes
from sow.store.protocols import LogEntry
from sow.topic.carried_windows import pinned
from tests.effort import lines_run, seeds
from tests.laws.harness import MS, ORDERS, SECOND, SLOW
from tests.simulation.past import NotingWorld

SUMS = View("sums", "json", ("orders",), ("/symbol AS /symbol", "SUM(/n) AS /n"), ("/symbol",))
ABOVE = ConflatedTopic("above", "json", "orders-C", interval_us=SECOND // 2, filter="/n > 2")
SOME = ConflatedTopic("some", "json", "orders", interval_us=SECOND, filter="/n > 2")
TICK = ConflatedTopic("tick", "json", "orders", interval_us=SECOND, schedule="tick")
SUMS_C = ConflatedTopic("sums-C", "json", "sums", interval_us=SECOND)
OVER = View("over", "json", ("orders-C",), ("/symbol AS /symbol", "SUM(/n) AS /n"), ("/symbol",))
NEAR = (ORDERS, SLOW, ABOVE, SOME, TICK, SUMS, SUMS_C, OVER)


def lived(random):
    """A life with pauses, starts and reloads, and bookmarks and times in it."""
    world, moments = NotingWorld(*NEAR, CONFIGURATIONS), []
    for number in range(24):
        some = [
            {"id": random.randrange(5), "symbol": random.choice("AB"), "n": random.randrange(6)}
            for _ in range(random.choice((1, 1, 3)))
        ]
        moments.append(world.publish("orders", *some))
        world.advance(random.choice((1, 90 * MS, 300 * MS, 700 * MS)))
        if random.random() < 0.1:
            world.delete("orders", f"/id = {random.randrange(5)}")
        if number in (5, 9, 17):
            world.advance(random.choice((4 * SECOND, 12 * SECOND)))
        if number == 13:
            topics = tuple(one for one in NEAR if one is not TICK or random.random() < 0.5)
            world = world.restart(*topics, CONFIGURATIONS)
            world.advance(1)
        moments.append(f"{world.engine.seq}.{world.now}")
    world = world.restart(*NEAR, CONFIGURATIONS)
    world.advance(9 * SECOND)
    return world, random.sample(moments[-28:], 3)


def answers(world, moments):
    for one in NEAR[1:]:
        for moment in moments:
            for more in (
                {"c": "sow", "as_of": str(moment)},
                {"c": "sow", "as_of": str(moment), "opts": "timestamp"},
                {"c": "subscribe", "bm": str(moment), "opts": "oof"},
            ):
                lines = world.client().say(t=one.name, **more)
                yield one.name, more, [json.dumps({**line, "s": "q"}) for line in lines]


@pytest.mark.parametrize("seed", range(2))
def test_near_a_moment_all_is_the_same_byte_for_byte(monkeypatch, seed):
    monkeypatch.setattr(replay_starts, "GONE_ON_MAX", 0 if seed % 2 else 1_000)
    world, moments = lived(Random(seed))
    begun, replay = [], PastStates.replay

    def noted(past, topic, start, *arguments, **more):
        begun.append(start.seq)
        return replay(past, topic, start, *arguments, **more)

    monkeypatch.setattr(PastStates, "replay", noted)
    monkeypatch.setattr(module, "FEW", 2**63)
    whole = [*answers(world, moments)]
    assert set(begun) == {0}
    monkeypatch.setattr(module, "FEW", 0)
    assert [*answers(world, moments)] == whole
    near = [one for one in begun if one]
    assert len(near) > len(whole) // 3, "many begin near"


FILTERED = ConflatedTopic("some", "json", "orders", interval_us=SECOND, filter="/n > 2")
ABOVE_SUMS = ConflatedTopic("above", "json", "orders-C", interval_us=SECOND // 2)
PLAIN_SUMS = View("sums", "json", ("orders",), ("/s AS /s", "SUM(/n) AS /n"), ("/s",))
MERGED = ConflatedTopic(
    "merged", "json", "orders", interval_us=SECOND, merges=(Merge("/n", "sum"),)
)
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/[0-9]$")
DESKS_C = ConflatedTopic("desks-C", "json", "desks", interval_us=SECOND, topic_format="%n-C")
TOPICS = (
    ORDERS,
    SLOW,
    FILTERED,
    ABOVE_SUMS,
    TICK,
    PLAIN_SUMS,
    SUMS_C,
    MERGED,
    DESKS,
    DESKS_C,
)
COPIES = ("orders-C", "some", "above", "tick", "sums-C", "merged", "/desk/1-C")


def lived_with_places(seed, topics=TOPICS):
    """A world in which records change all the time, with some places that are kept."""
    random, world = Random(seed), NotingWorld(*topics, CONFIGURATIONS)
    for number in range(60):
        document = {"id": random.randrange(4), "s": random.choice("AB"), "n": random.randrange(6)}
        world.publish(random.choice(("orders", "orders", "/desk/1")), document)
        world.advance(random.choice((40 * MS, 130 * MS, 300 * MS)))
        if random.random() < 0.1:
            world.delete("orders", f"/id = {random.randrange(4)}")
            world.advance(1)
        if number % 15 == 7:
            world.begin_place()
        elif number % 15 == 9:
            world.end_place()
    return world


def shown(engine, name, is_stamped):
    """The records of a topic in their order, and all that waits."""
    topic = engine.topics[name]
    table = topic.records.table
    stamps = table.seqs.tolist()
    records = [
        (table.identities[slot], table.bodies[slot], stamps[slot] * is_stamped)
        for slot in table.live().tolist()
    ]
    if not isinstance(topic, CopyTopic):
        return records
    *place, (_, windows), (names, bodies, *_) = pinned(topic.copy)()
    return records, place, windows, sorted(zip(names, bodies, strict=True))


def state_at(world, name, until):
    history = world.engine.configurations.all()
    reach = Reach([one.configuration for one in history], (name,))
    return run_to_completion(
        newest_state(
            history, reach, world.engine.configuration, world.checkpoints, world.journal, until
        )
    )


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("name", COPIES)
def test_from_a_place_all_is_as_from_the_beginning(seed, name):
    world = lived_with_places(seed)
    history, journal = world.engine.configurations.all(), world.journal
    *_, place = journal.windows.places
    state = state_at(world, name, Moment(world.engine.seq, world.now))
    assert (state.seq, state.time_us) == tuple(place)
    assert state.seq > 40
    near, whole = (
        Replay(history, (name,), journal, one) for one in (state, module.FROM_THE_BEGINNING)
    )
    for at in ((place.seq, place.time_us), (world.engine.seq, world.now)):
        for one in (near, whole):
            run_to_completion(one.advance(Moment(*at)))
        is_stamped = not near.reach.has_views
        assert shown(near.engine, name, is_stamped) == shown(whole.engine, name, is_stamped)
    near.engine.check()


def test_no_number_of_intervals_before_a_moment_says_which_windows_are_open():
    """Why places are kept: while a record changes all the time, each of its windows begins where
    the one before has left it, and that never meets what begins elsewhere."""
    world = NotingWorld(ORDERS, SLOW, CONFIGURATIONS)
    for number in range(200):
        world.publish("orders", {"id": 1, "n": number})
        world.advance(300 * MS)
    history, names = world.engine.configurations.all(), ("orders-C",)
    opened = set()
    for seq in (0, 1, 2):
        state = module.FROM_THE_BEGINNING._replace(seq=seq)
        replay = Replay(history, names, world.journal, state)
        run_to_completion(replay.advance(Moment(world.engine.seq, world.now)))
        opened.add(replay.engine.topics["orders-C"].copy.conflation.oldest_us())
    assert len(opened) > 1, "after fifty intervals"


def beginning(world, name):
    """The steps in which a replay begins at the last place, all windows being open."""
    history, end = world.engine.configurations.all(), Moment(world.engine.seq, world.now)
    reach = Reach([one.configuration for one in history], (name,))
    known = reach, world.engine.configuration, world.checkpoints, world.journal, end
    state = yield from newest_state(history, *known)
    replay = Replay(history, (name,), world.journal, state)
    yield from replay.advance(end)
    topic = replay.engine.topics[name]
    assert topic.copy.conflation.pending == len(topic.records.table)


def test_a_step_takes_no_longer_however_many_windows_are_open(monkeypatch):
    monkeypatch.setattr(log_indexes, "READ_BYTES", 4_000)
    most = []
    for count in (500, 1_500):
        world = NotingWorld(ORDERS, SLOW, MERGED, CONFIGURATIONS)
        documents = [{"id": number, "s": "A", "n": 3} for number in range(count)]
        for wait_us in (2 * SECOND, 0):
            for start in range(0, count, 100):
                world.publish("orders", *documents[start : start + 100])
            world.advance(wait_us)
        world.begin_place()
        world.end_place()
        names = "orders-C", "merged"
        most.append([max(lines_run(beginning(world, name))) for name in names])
    for few, many in zip(*most, strict=True):
        assert many < 1.2 * few


def asked(world, name, bookmark):
    lines = world.client().say(c="subscribe", t=name, opts="oof", bm=bookmark)
    return [json.dumps({**line, "s": "q"}) for line in lines]


@pytest.mark.parametrize("name", COPIES)
def test_what_was_sent_is_sent_from_there_byte_for_byte(monkeypatch, name):
    world, begun, replay = lived_with_places(3), [], PastStates.replay
    bookmarks = [str(world.journal.windows.places[-1].seq + 1), f"{world.engine.seq}.{world.now}"]

    def noted_replay(past, topic, start, *arguments, **more):
        begun.append(start.seq)
        return replay(past, topic, start, *arguments, **more)

    monkeypatch.setattr(PastStates, "replay", noted_replay)
    whole = [asked(world, name, bookmark) for bookmark in bookmarks]
    assert begun == [0, 0], "so few are processed sooner than looked for"
    monkeypatch.setattr(replay_starts, "FEW", 0)
    assert [asked(world, name, bookmark) for bookmark in bookmarks] == whole
    assert min(begun[2:]) > 40


class TestWhatIsNotUsed:
    def ends(self, world):
        return Moment(world.engine.seq, world.now)

    def test_a_place_behind_the_moment(self):
        world = lived_with_places(1)
        first, *_ = world.journal.windows.places
        assert state_at(world, "orders-C", Moment(first.seq, first.time_us)).seq == first.seq
        assert state_at(world, "orders-C", Moment(first.seq, first.time_us - 1)) is None

    def test_one_that_a_repair_has_cut_off(self):
        """What came again has other times."""
        world = lived_with_places(1)
        *_, last = world.journal.windows.places
        world.journal._entries = [
            replace(entry, ts_us=last.time_us + 1) if entry.seq >= last.seq else entry
            for entry in world.journal._entries
        ]
        assert last not in places_before(world.journal, self.ends(world))

    def test_one_without_its_file_or_its_records(self):
        world = lived_with_places(1)
        first, *_, last = world.journal.windows.places
        del world.journal.windows._held[last]
        assert first.seq <= state_at(world, "orders-C", self.ends(world)).seq < last.seq
        world.checkpoints["orders"].forget(99)
        assert state_at(world, "orders-C", self.ends(world)) is None

    def test_one_of_records_with_other_keys(self):
        world = lived_with_places(1)
        history = world.engine.configurations.all()
        now = world.engine.configuration
        topics = [replace(one, keys=("/s",)) if one is ORDERS else one for one in now.topics]
        other = replace(now, topics=tuple(topics))
        reach = Reach([now], ("orders-C",))
        end = self.ends(world)
        arguments = history, reach, other, world.checkpoints, world.journal, end
        assert not run_to_completion(newest_state(*arguments))

    def test_one_that_retention_has_passed(self):
        world = lived_with_places(1)
        *_, last = world.journal.windows.places
        world.journal._retention_bytes = 0
        world.journal.trim(world.now, last.seq + 3)
        assert state_at(world, "orders-C", self.ends(world)) is None


class TestStarts:
    """Windows go on over a start though the log is long, or without its beginning."""

    @pytest.mark.parametrize("is_trimmed", [False, True])
    def test_they_go_on_from_a_place(self, monkeypatch, is_trimmed):
        world = lived_with_places(2)
        *_, last = world.journal.windows.places
        monkeypatch.setattr(module, "GONE_ON_MAX", world.engine.seq - last.seq)
        if is_trimmed:
            world.journal._retention_bytes = 0
            world.journal.trim(world.now, last.seq - 1)
            assert world.journal.first_seq > 1
        history = noted(world.journal.accounts())
        arguments = history, world.configuration, world.journal, world.now
        assert run_to_completion(open_windows(*arguments)) is None
        engine = run_to_completion(open_windows(*arguments, world.checkpoints))
        for name in ("orders-C", "some", "tick", "merged", "/desk/1-C"):
            assert shown(engine, name, True) == shown(world.engine, name, True)

    def test_who_was_there_before_is_sent_the_same_after(self, monkeypatch):
        world = lived_with_places(2)
        monkeypatch.setattr(module, "GONE_ON_MAX", 40)
        monkeypatch.setattr(replay_starts, "FEW", 0)
        world.publish("orders", {"id": 1, "n": 1})
        world.advance(1)
        world = world.restart()
        assert world.goes_on
        world.advance(3 * SECOND)
        bookmark = str(world.journal.windows.places[-1].seq + 1)
        near = asked(world, "orders-C", bookmark)
        monkeypatch.setattr(replay_starts, "FEW", 2**63)
        assert asked(world, "orders-C", bookmark) == near


def test_a_window_of_a_topic_that_is_there_no_more_is_left_out():
    world = lived_with_places(1)
    state = state_at(world, "orders-C", Moment(world.engine.seq, world.now))
    state = state._replace(windows=[*state.windows, ("gone", "gone-C", [])])
    replay = Replay(world.engine.configurations.all(), ("orders-C",), world.journal, state)
    run_to_completion(replay.advance(Moment(world.engine.seq, world.now)))
    assert shown(replay.engine, "orders-C", True) == shown(world.engine, "orders-C", True)


def test_entries_of_other_topics_are_not_processed():
    world = lived_with_places(1)
    entry = LogEntry("publish", "other", world.engine.seq + 1, world.now, ["a"], [b"{}"])
    world.journal.append([entry])
    state = state_at(world, "orders-C", Moment(entry.seq, world.now))
    assert state is not None
