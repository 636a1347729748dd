"""The outbox beside a naive one: lists, walked from end to end, and a client that keeps a table.

Every example is a topic, a session that reads seldom and one that reads at once and shares its
feed, and what happens to them.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import SessionSettings, Topic
from sow.protocol.replies import LINES
from sow.streaming.outbox import outbox
from sow.streaming.outbox.entries import Delivery, QueuedDelivery, QueuedUpdate
from sow.topic.queue_policy import DISPLACEMENTS_MAX
from tests.effort import examples
from tests.laws.harness import SlowDisk, World

AMPLE = SessionSettings(queue_messages_max=10_000)
SYMBOLS = (None, "A", "B")

DOCUMENTS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(SYMBOLS)), min_size=1, max_size=4
).map(lambda pairs: ("publish", pairs))
DELETE = st.integers(0, 3).map(lambda number: ("delete", number))
READ = st.just(("read", 1))
DISK = st.sampled_from([("lag", 0), ("lag", 1), ("lag", 3)])
ACTS = st.lists(
    st.one_of(
        DOCUMENTS,
        DOCUMENTS,
        DELETE,
        READ,
        READ,
        DISK,
        st.sampled_from([("conflate", None), ("fold", None)]),
        st.sampled_from([("again", None), ("on", None), ("off", None)]),
    ),
    max_size=40,
)


@pytest.fixture(autouse=True, scope="module")
def small_frames():
    """So that a queue is read in pieces, and folded in steps between which it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "GATHERED_MAX", 2)
        patch.setattr(outbox, "FOLDED_AT_ONCE", 3)
        yield


PLACEMENTS = st.sampled_from(["replace", "append"])


@dataclass
class Player:
    """Acts out an example on a topic `t`, numbering what is published."""

    world: World
    command: dict[str, Any]
    numbers: int = 0
    published: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self):
        self.other = self.world.client()
        self.other.say(**self.command)
        self.client = self.world.client()
        self.client.say(**self.command)

    @property
    def session(self):
        return self.client.session

    def documents(self, pairs):
        for number, symbol in pairs:
            self.numbers += 1
            document = {"id": number, "n": self.numbers}
            if symbol is not None:
                document["sym"] = symbol
            self.published.append(document)
            yield document

    def play(self, act, value):
        """One act; returns what the client read."""
        lines = []
        if act == "publish":
            self.world.publish("t", *self.documents(value))
        elif act == "delete":
            self.world.delete("t", f"/id = {value}")
        elif act == "read":
            lines = self.pull()
        elif act == "again":
            for name in list(self.client.subscriptions):
                self.client.execute(b'{"c":"unsubscribe","s":"%b"}' % name.encode())
            self.client.execute(
                b'{"c":"%b","t":"t","opts":"%b","cid":"again"}'
                % (self.command["c"].encode(), self.command.get("opts", "").encode())
            )
        elif act == "conflate":
            self.session.conflate(self.world.now)
        elif act == "fold":
            self.session.fold_some(self.world.now)
        elif act == "lag":
            self.world.lag = value
        else:
            self.session.allow_folding(act == "on")
        self.other.lines()
        self.world.check()
        return lines

    def rest(self):
        """The lines that are left once the disk has everything."""
        self.world.catch_up()
        return self.client.lines()

    def pull(self):
        """The lines of one frame."""
        box, released = self.session.outbox, self.world.engine.sequencer.released
        pulled = box.pull_alone(released) or box.pull(released)
        return [] if pulled is None else lines_of(pulled.frame)


def lines_of(frame):
    size = frame[1]
    payload = frame[2 if size < 126 else 4 if size == 126 else 10 :]
    return [json.loads(line) for line in payload.split(b"\n")] if payload else []


def world_of(**more):
    return SlowDisk(Topic("t", "json", keys=("/id",), **more), sessions=AMPLE)


class Table:
    """What a client makes of its lines: records by SowKey, and what it must never see."""

    def __init__(self, complete):
        self.complete = complete
        self.records = {}
        self.by_symbol = {}
        self.newest = {}

    def apply(self, line):
        kind = line["c"]
        if kind == "ack":
            # A subscription ends and another begins.
            self.__init__(self.complete)
        elif kind in ("sow", "p"):
            document = line["d"]
            if line.get("delta"):
                document = self.records[line["k"]] | document
            assert document["n"] >= self.newest.get(line["k"], 0), "a record went backwards"
            self.newest[line["k"]] = document["n"]
            self.records[line["k"]] = document
            self.by_symbol[document.get("sym", ("none", document["id"]))] = document["n"]
        elif kind == "oof":
            assert line["k"] in self.records, "an oof of what was never delivered"
            del self.records[line["k"]]

    def documents(self):
        return sorted(self.records.values(), key=lambda document: document["id"])


EXACT = [
    {"c": "sow_and_subscribe", "opts": "oof"},
    {"c": "sow_and_delta_subscribe", "opts": "oof"},
    {"c": "subscribe", "opts": "oof"},
    {"c": "delta_subscribe", "opts": "oof"},
]


@pytest.mark.parametrize("command", EXACT, ids=lambda command: command["c"])
@given(ACTS, PLACEMENTS, st.sampled_from(["always", "conflate"]), st.booleans())
@examples(18)
def test_who_hears_of_leavings_ends_with_what_the_topic_holds(
    command, acts, placement, policy, match
):
    world = world_of(
        placement=placement, conflation_policy=policy, match=("/sym",) if match else ()
    )
    player = Player(world, {**command, "t": "t", "cid": "1"})
    table = Table(command["c"].startswith("sow"))
    since = 0
    for act in acts:
        if act[0] == "again":
            since = player.numbers
        for line in player.play(*act):
            table.apply(line)
    for line in player.rest():
        table.apply(line)
    held = sorted(world.records("t"), key=lambda document: document["id"])
    if not table.complete:
        held = [document for document in held if document["n"] > since]
    assert table.documents() == held


@given(ACTS, PLACEMENTS, st.sampled_from(["always", "conflate"]))
@examples(30)
def test_with_match_the_newest_of_what_matches_arrives(acts, placement, policy):
    world = world_of(placement=placement, conflation_policy=policy, match=("/sym",))
    player = Player(world, {"c": "subscribe", "t": "t", "cid": "1"})
    table, wanted = Table(False), {}
    for act in acts:
        if act[0] == "again":
            wanted.clear()
        before = len(player.published)
        for line in player.play(*act):
            table.apply(line)
        for document in player.published[before:]:
            wanted[document.get("sym", ("none", document["id"]))] = document["n"]
    for line in player.rest():
        table.apply(line)
    assert table.by_symbol == wanted


@given(ACTS, PLACEMENTS, st.sampled_from(["always", "conflate"]))
@examples(15)
def test_a_session_that_is_never_conflated_gets_every_update_in_order(acts, placement, policy):
    world = world_of(placement=placement, conflation_policy=policy)
    player = Player(world, {"c": "subscribe", "t": "t", "cid": "1"})
    player.session.allow_folding(False)
    read = []
    for act, value in acts:
        if act not in ("on", "conflate", "fold"):
            read += player.play(act, value)
    read += player.rest()
    assert [line["d"] for line in read if line["c"] == "p"] == player.published


class Naive:
    """A queue that folds as it is filled, and looks for what matches by walking through it."""

    def __init__(self, appends, match):
        self.appends = appends
        self.match = match
        self.places = []

    def key(self, document):
        if self.match and "sym" in document:
            return "symbol", document["sym"]
        return "record", document["id"]

    def leave(self):
        """What waits stays, and matches nothing that comes."""
        for place in self.places:
            place["key"] = None

    def publish(self, document):
        key, number = self.key(document), document["id"]
        found = [at for at, place in enumerate(self.places) if place["key"] == key]
        if not found:
            self._put(key, document, 0)
            return
        current = self.places[found[-1]]
        overtakes = any(number in place["seen"] for place in self.places[found[-1] + 1 :])
        starved = current["moved"] >= DISPLACEMENTS_MAX
        if not overtakes and (starved or not self.appends):
            current["document"] = document
            current["seen"].add(number)
        elif starved:
            self._put(key, document, 0)
        else:
            # An empty place goes on saying which records stood there.
            current["document"] = current["key"] = None
            self._put(key, document, current["moved"] + 1)

    def _put(self, key, document, moved):
        self.places.append(
            {"key": key, "document": document, "moved": moved, "seen": {document["id"]}}
        )

    def read(self, count):
        while count and self.places:
            count -= self.places.pop(0)["document"] is not None

    def waiting(self):
        return [place["document"] for place in self.places if place["document"] is not None]


@given(ACTS, PLACEMENTS, st.booleans())
@examples(60)
def test_the_queue_holds_what_a_naive_one_does(acts, placement, match):
    world = world_of(
        placement=placement, conflation_policy="always", match=("/sym",) if match else ()
    )
    player = Player(world, {"c": "subscribe", "t": "t"})
    naive = Naive(placement == "append", match)
    for act, value in acts:
        if act == "lag":
            continue
        if act == "publish":
            for pair in value:
                player.play("publish", [pair])
                naive.publish(player.published[-1])
        elif act == "read":
            read = [line["d"] for line in player.play(act, value) if line["c"] == "p"]
            assert read == naive.waiting()[: len(read)]
            naive.read(len(read))
        elif act == "again":
            player.play(act, value)
            naive.leave()
        assert waiting(player.session.outbox) == naive.waiting()


def waiting(box):
    """The documents of the updates that wait."""
    updates = []
    for entry in box.queue.entries:
        if isinstance(entry, QueuedDelivery):
            updates += [update for _, _, update in entry.delivery.keyed()]
        elif isinstance(entry, QueuedUpdate) and entry.lives:
            updates.append(entry.update)
    return [json.loads(update.new) for update in updates]


def test_what_came_and_went_while_a_queue_is_folded_is_no_frame():
    world = World(Topic("t", "json", keys=("/id",), conflation_policy="always"))
    client = world.client()
    client.say(c="sow_and_subscribe", t="t", opts="oof")
    for number in range(200):
        world.publish("t", {"id": number})
    client.session.conflate(world.now)
    assert client.session.folds
    world.engine.publish("t", [b'{"id":999}'], world.now)
    world.delete("t", "/id = 999")
    assert len(client.data()) == 200


def test_a_frame_that_alone_waits_leaves_once_its_group_is_durable():
    box, delivery = outbox.Outbox(AMPLE), Delivery("s", LINES, [b"{}"], [], "conflate")
    box.push_delivery(delivery, 3, 0, True)
    assert box.pull_alone(2) is None
    assert box.pull_alone(3).frame == delivery.frame
    assert (bool(box), box.message_count, box.size_bytes) == (False, 0, 0)
    for _ in range(2):
        box.push_delivery(delivery, 3, 0, True)
    assert box.pull_alone(3) is None, "another one waits behind it"
    assert (box.pull(3).frame, box.pull_alone(3).frame) == (delivery.frame, delivery.frame)
    box.push(b"an ack", 1, 3, 0)
    assert (box.pull_alone(2), box.pull_alone(3).frame) == (None, b"an ack")
    box.push_notice(b"folded", 0)
    assert box.pull_alone(3) is None, "another one would replace it while it waits"
    assert box.pull(3).frame == b"folded"
    box.push_frames(iter([(b"a row", 1)]), 3, 0)
    assert box.pull_alone(3) is None, "it is made when it leaves"
    box.check()
