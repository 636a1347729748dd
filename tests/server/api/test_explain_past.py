"""What a subscriber had been told of a record then, also in windows of the subscription."""

import json
import random
from dataclasses import replace

import orjson
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.security_definitions import User
from sow.engine.replay import InForceSince
from sow.errors import ClientError
from sow.protocol.replies import timestamp
from sow.security.authorization import EVERYTHING, RoleSet
from sow.server.api.explain_past import PastSubscriber, options_of
from tests.laws.guarding import guarded, reading, rights
from tests.laws.harness import MS, ORDERS, SECOND, SLOW, World
from tests.server.api.test_explain import Place
from tests.server.stand_ins import asking, stepped

ANN = User("ann")


class Past(World):
    """A world that is asked for its past; times are seconds since it began."""

    began_us = 1_000 * SECOND

    def at(self, seconds, *documents):
        self.advance(self.began_us + round(seconds * SECOND) - self.now)
        self.engine.sequencer.moment(self.now)
        if documents:
            self.publish("orders", *documents)

    def under(self, *allows):
        """Roles that are in force from now on."""
        configuration = replace(self.configuration, security=asking(*allows))
        self.engine.adopt(configuration)

    def reloads(self, *reloads):
        """Roles that came into force after a record and at a second."""
        configurations = [
            replace(self.configuration, security=asking(*one)) for _, _, one in reloads
        ]
        history = [
            InForceSince(one, seq, self.began_us + seconds * SECOND, is_start=False)
            for one, (seq, seconds, _) in zip(configurations, reloads, strict=True)
        ]
        self.engine.configurations.all = lambda: history

    def told(self, seconds, topic="orders-C", opts="", rights_by=lambda _: EVERYTHING, **more):
        told = PastSubscriber(topic, self.key, options_of({"opts": opts}), rights_by, **more)
        moment = timestamp(self.began_us + round(seconds * SECOND))
        run_to_completion(self.executor.subscriptions.past.listen(topic, moment, told))
        return told

    @property
    def key(self):
        return self.engine.topic("orders").records.sow_key_of_values("1")


def line(told):
    """The last line, without what it says of time; of its place, the newest change sent."""
    found = told.last
    return None if found is None else (found["c"], found["reason"], found["bm"].partition(".")[0])


def at(text):
    """The seconds of a time since the world began."""
    return round(float(text.partition("1970-01-01T00:16:")[2].rstrip("Z")) - 40, 6)


def window(told):
    found = told.window
    seconds = [(us - Past.began_us) / SECOND for us in (found.opened_us, found.ends_us)]
    return (*seconds, [one.bookmark for one in found.updates])


@pytest.fixture
def world():
    """Two updates in a window, one in the next, and a delete."""
    world = Past(ORDERS, SLOW)
    world.at(1.0, {"id": 1, "px": 1})
    world.at(1.4, {"id": 1, "px": 2}, {"id": 2, "px": 9})
    world.at(5.0, {"id": 1, "px": 3})
    world.at(9.0)
    world.delete("orders", "/id = 1")
    world.at(20.0)
    return world


def test_inside_a_window_nothing_was_told_of_what_waited(world):
    told = world.told(1.5)
    assert (line(told), told.waiting, told.held) == (None, True, None)
    assert window(told) == (1.0, 2.0, [1, 2])


def test_after_it_the_updates_were_one_line(world):
    told = world.told(2.0)
    assert (line(told), told.waiting) == (("p", None, "2"), False)
    assert orjson.dumps(told.last["d"]) == b'{"id":1,"px":2}'
    assert at(told.last["at"]) == 2.0
    assert window(told) == (1.0, 2.0, [1, 2])
    assert told.held.bookmark == 2


def test_the_next_window_waits_beside_what_was_told(world):
    told = world.told(5.5)
    assert (line(told), told.waiting, window(told)) == (("p", None, "2"), True, (5.0, 6.0, [4]))
    assert at(told.last["at"]) == 2.0


def test_before_the_record_there_was_nothing(world):
    told = world.told(0.5)
    assert (line(told), told.window, told.waiting, told.held) == (None, None, False, None)


def test_after_a_delete_who_asked_for_oof_was_told(world):
    told = world.told(15.0, opts="oof")
    assert line(told) == ("oof", "deleted", "5")
    assert (at(told.last["at"]), told.held) == (10.0, None)
    assert line(world.told(15.0)) == ("p", None, "4")


def test_a_subscription_may_have_windows_of_its_own(world):
    told = world.told(1.5, topic="orders", opts="conflation=2s")
    assert (line(told), told.waiting, window(told)) == (None, True, (1.0, 3.0, [1, 2]))
    told = world.told(3.0, topic="orders", opts="conflation=2s")
    assert (line(told)[0], told.waiting, at(told.last["at"])) == ("p", False, 3.0)
    of_copy = world.told(2.5, opts="conflation=2s")
    assert (line(of_copy), window(of_copy)) == (None, (2.0, 4.0, [2]))


def test_a_topic_without_windows_tells_each_update_as_it_comes(world):
    told = world.told(1.5, topic="orders")
    assert (line(told), at(told.last["at"]), told.window) == (("p", None, "2"), 1.4, None)


def test_fields_that_are_not_selected_are_not_told(world):
    told = world.told(3.0, opts="select=[/px]")
    assert orjson.dumps(told.last["d"]) == b'{"px":2}'


def test_where_windows_touch_each_update_is_in_its_own():
    """The update at the end of a window opens the next one, though the first has to wait for its
    place on the grid."""
    world = Past(ORDERS, SLOW)
    world.at(0.005, {"id": 2})
    for tenth in range(1, 12):
        world.at(tenth / 10, {"id": 1, "px": tenth})
    world.at(10.0)
    assert window(world.told(1.2)) == (1.1, 2.1, [12])
    assert window(world.told(1.05)) == (0.1, 1.1, [*range(2, 12)])


def test_a_long_window_is_counted_and_not_kept():
    world = Past(ORDERS, replace(SLOW, interval_us=3_600 * SECOND))
    for round_ in range(150):
        world.at(round_ / 10, {"id": 1, "px": round_})
    world.at(20.0)
    told = world.told(15.0)
    assert (len(told.window), len(told.window.updates)) == (150, 101)
    assert told.window.updates[-1].bookmark == 150


def by_roles(configuration):
    return RoleSet(configuration.security).rights(ANN)


def test_a_row_that_the_user_might_not_see_was_not_told():
    world = Past(ORDERS, SLOW)
    world.under(reading(".*", filter="/px > 5"))
    world.at(1.0, {"id": 1, "px": 1})
    world.at(3.0, {"id": 1, "px": 7})
    world.at(10.0)
    assert line(world.told(2.5, rights_by=by_roles)) is None
    assert line(world.told(5.0, rights_by=by_roles)) == ("p", None, "2")
    assert world.told(2.5, rights_by=by_roles).held is None


@pytest.fixture
def narrowed():
    """A record that ann could see until the fifth second, and again from the tenth on."""
    world = Past(ORDERS, SLOW)
    some, other = reading(".*", filter="/px > 5"), reading(".*", select=("-/px",))
    world.reloads((0, 0, [reading(".*")]), (1, 5, [some]), (1, 10, [other]))
    world.at(1.0, {"id": 1, "px": 1})
    world.at(20.0)
    return world


def test_where_roles_changed_the_record_left_and_came_back(narrowed):
    before = narrowed.told(4.0, opts="oof", rights_by=by_roles)
    assert (line(before), orjson.dumps(before.last["d"])) == (("p", None, "1"), b'{"id":1,"px":1}')
    between = narrowed.told(8.0, opts="oof", rights_by=by_roles)
    assert (line(between), at(between.last["at"])) == (("oof", "entitlement", "1"), 5.0)
    assert (between.held, orjson.dumps(between.last["d"])) == (None, b"null")
    assert line(narrowed.told(8.0, rights_by=by_roles)) == ("p", None, "1")
    after = narrowed.told(12.0, opts="oof", rights_by=by_roles)
    assert (line(after), at(after.last["at"])) == (("p", None, "1"), 10.0)
    assert orjson.dumps(after.last["d"]) == b'{"id":1}'


def test_who_asks_is_told_nothing_that_may_not_be_seen_now(narrowed):
    limit = rights(reading(".*", filter="/px > 5"))
    told = narrowed.told(4.0, rights_by=by_roles, limit=limit)
    assert (line(told), told.held, told.window is None) == (None, None, False)
    limit = rights(reading(".*", select=("-/px",)))
    told = narrowed.told(4.0, rights_by=by_roles, limit=limit)
    assert orjson.dumps(told.last["d"]) == b'{"id":1}'
    told = narrowed.told(4.0, rights_by=by_roles, limit=rights(reading("orders")))
    assert (line(told), told.held) == (None, None)


def test_without_the_right_to_read_nothing_was_told():
    world = Past(ORDERS, SLOW)
    world.under(reading("orders"))
    world.at(1.0, {"id": 1, "px": 1})
    world.at(10.0)
    told = world.told(5.0, rights_by=by_roles)
    assert (line(told), told.held, told.waiting) == (None, None, False)


@pytest.mark.parametrize(
    "opts", ["top_n=3,live", "conflation=auto", "conflation=1s,conflation_key=[/px]", "skip_n=0"]
)
def test_options_about_other_records_or_a_clients_pace_are_refused(opts):
    with pytest.raises(ClientError, match="leave it out"):
        options_of({"opts": opts})


def shown(found):
    """A line, as a subscriber has it; where it is told, where it stands is told of an oof, too."""
    bookmark = found.get("bm") if found["c"] != "oof" else None
    return found["c"], found.get("reason"), found["d"], bookmark


LIKE = {"topics": ("orders", "orders-C"), "opts": ("", "oof", "oof,conflation=700ms"), "px": (0, 5)}


def live_and_told(seed):
    """What a subscriber has got of a record, and what is told that he had, at some moments."""
    pick = random.Random(seed)
    world = Past(ORDERS, SLOW)
    topic, opts, least = (pick.choice(of) for of in LIKE.values())
    given = rights(reading(".*", filter=f"/px >= {least}"))
    client = guarded(world, given)
    client.say(c="sow_and_subscribe", t=topic, opts=opts)
    got = []
    for _ in range(pick.randrange(5, 15)):
        if pick.random() < 0.2:
            world.delete("orders", "/id = 1")
        else:
            world.publish("orders", {"id": pick.choice((1, 1, 2)), "px": pick.randrange(10)})
        world.advance(pick.randrange(1, 900) * MS + 7)
        world.engine.sequencer.moment(world.now)
        got += [one for one in client.lines() if one.get("k") == world.key]
        told = PastSubscriber(topic, world.key, options_of({"opts": opts}), lambda _: given)
        past = world.executor.subscriptions.past
        run_to_completion(past.listen(topic, timestamp(world.now), told))
        as_told = None if told.last is None else json.loads(orjson.dumps(told.last))
        yield (shown(got[-1]) if got else None), (None if as_told is None else shown(as_told))
        if (topic, opts) == ("orders-C", "oof"):
            conflation = world.engine.topics[topic].copy.conflation
            yield bool(conflation.waiting_among({"1"})), told.waiting


def test_law_what_is_told_is_what_a_subscriber_has_got():
    for seed in range(60):
        for live, told in live_and_told(seed):
            assert told == live, seed


def test_the_law_can_fail(monkeypatch):
    """Planted: what the user may see is not looked at."""
    monkeypatch.setattr(PastSubscriber, "_guards", lambda _told, _topic: [])
    with pytest.raises(AssertionError):
        test_law_what_is_told_is_what_a_subscriber_has_got()


@stepped
async def test_the_answer_has_the_line_the_window_and_sentences():
    async with Place() as place:
        place.at(0.0, b'{"id":1,"px":1}')
        place.at(0.3, b'{"id":1,"px":2}')
        place.at(5.0)
        await place.world.runtime.durable()
        path = f"/v1/topics/orders-C/records/{place.key(1)}/why"
        found = (await place.get(f"{path}?as_of=1")).json
        assert (found["told"], found["waiting"], found["followers"]) == (None, True, [])
        assert found["window"]["updates"] == 1
        assert found["why"][0].endswith("nothing of it had been sent")
        assert found["why"][1].startswith("update 1 waited in a window from ")
        found = (await place.get(f"{path}?as_of=1970-01-01T00:16:42Z")).json
        assert found["told"] == {
            "c": "p", "reason": None, "d": {"id": 1, "px": 2}, "bm": "2.1001000000",
            "at": "1970-01-01T00:16:41.000000Z",
        }  # fmt: skip
        assert found["held"]["bookmark"] == "2"
        assert found["why"][1].startswith("2 updates, 1 to 2, came in its last window, from ")


@stepped
async def test_what_is_wrong_with_the_question_is_a_sentence():
    async with Place() as place:
        place.at(0.0, b'{"id":1,"px":1}')
        await place.world.runtime.durable()
        path = f"/v1/topics/orders-C/records/{place.key(1)}/why"
        for query, status, text in (
            ("opts=oof", 400, "give as_of, too"),
            ("as_of=2999-01-01T00:00:00Z", 400, "is in the future"),
            ("as_of=1&opts=top_n=1", 400, "leave it out"),
            ("as_of=soon", 400, "is not a bookmark"),
        ):
            answer = await place.get(f"{path}?{query}")
            assert (answer.status, text in answer.json["detail"]) == (status, True), answer.json
        missing = path.replace(place.key(1), place.key(7))
        assert (await place.get(f"{missing}?as_of=1")).status == 404
