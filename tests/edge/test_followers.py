"""A server that follows another one, over real sockets: the same answers, and nothing else."""

import asyncio
import shutil
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sow.core.clock import LogClock
from sow.core.definitions import QueueSettings, Topic
from sow.errors import DiskFull
from sow.security.authentication.tokens import sum_of
from sow.server.boot.follower import Follower, Upstream
from sow.streaming.sessions import BARRED
from tests.edge.serving import Events, Running, configuration, stream
from tests.ports import free_port
from tests.virtual_clock import VirtualClock

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>fleeting</Name><MessageType>json</MessageType><Key>/id</Key>
  <Durability>transient</Durability></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic><Interval>200ms</Interval></ConflatedTopic>
<View><Name>sums</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
  <Projection><Field>/desk AS /desk</Field><Field>SUM(/n) AS /n</Field></Projection>
  <Grouping><Field>/desk</Field></Grouping></View>
"""
DESKS = """<Topic><Name>desks</Name><MessageType>json</MessageType><Key>/id</Key>
  <Pattern>^/desk/</Pattern></Topic>"""
CONFIG = configuration(TOPICS)


class Following(Running):
    """A follower of a running server."""

    def __init__(self, primary, directory, token="", clock=None, **own):
        self._own = replace(CONFIG, data_directory=str(directory), **own)
        self._primary, self._token, self._wall = primary, token, clock
        super().__init__(self._own, directory)

    async def _start(self):
        upstream = Upstream(self._primary.url, self._token)
        self.follower = Follower(upstream, self._own, LogClock())
        self._more = {"follower": self.follower, "clock": self._wall}
        return await super()._start()

    def reach(self, bookmark):
        answer = self.get(f"/v1/topics?min_bookmark={bookmark}&wait=60")
        assert answer.status == 200, answer.body


@pytest.fixture
def primary(tmp_path):
    server = Running(replace(CONFIG, port=free_port()), tmp_path / "primary")
    yield server
    server.close()


@contextmanager
def following(primary, directory):
    server = Following(primary, directory)
    try:
        yield server
    finally:
        server.close()
    assert server.errors == []


def status(server):
    return server.get("/v1/status").json


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_it_shows_what_the_primary_shows(primary, tmp_path):
    primary.publish("orders", *({"id": at, "desk": at % 2, "n": at} for at in range(10)))
    with following(primary, tmp_path / "one") as follower:
        assert follower.records("orders") == primary.records("orders")
        bookmark = primary.publish("orders", {"id": 3, "desk": 1, "n": 100}).json["bookmark"]
        follower.reach(bookmark)
        for name in ("orders", "sums"):
            assert follower.records(name) == primary.records(name)
        # Each ends its windows by itself.
        for one in (primary, follower):
            until(lambda one=one: {"id": 3, "desk": 1, "n": 100} in one.records("orders-C"))
        assert follower.records("orders-C") == primary.records("orders-C")
        ours, its = status(primary), status(follower)
        assert (ours["role"], its["role"]) == ("primary", "follower")
        assert its["upstream"] == primary.url
        for name in ("log", "bookmark", "state_hash", "name"):
            assert its[name] == ours[name]
        until(
            lambda: (
                [one["state_hash"] for one in status(primary)["nodes"]] == 2 * [its["state_hash"]]
            )
        )
        for path in ("/v1/log?topics=orders", "/v1/log.parquet", "/v1/topics/orders/records.arrow"):
            found, known = follower.get(path), primary.get(path)
            assert found.body == known.body
            assert found.headers["ETag"] == known.headers["ETag"]


def test_it_takes_no_writes_and_says_who_does(primary, tmp_path):
    primary.publish("fleeting", {"id": 1})
    with following(primary, tmp_path / "one") as follower:
        for answer in (
            follower.publish("orders", {"id": 1}),
            follower.request("DELETE", "/v1/topics/orders/records?filter=1=1"),
            follower.request("POST", "/v1/config/reload"),
            follower.get("/v1/topics/fleeting/records"),
        ):
            assert (answer.status, answer.json["reason"]) == (421, "not primary")
            assert answer.headers["SOW-Primary"] == primary.url == answer.json["primary"]
        with follower.socket() as ws:
            (ack,) = ws.ask({"c": "publish", "t": "orders", "d": {"id": 1}})
            assert (ack["status"], ack["reason"], ack["primary"]) == (
                "failure",
                "not primary",
                primary.url,
            )
            (ack,) = ws.ask({"c": "sow", "t": "fleeting"}, cid="2")
            assert ack["reason"] == "not primary"


def test_subscribers_get_what_is_published_to_the_primary(primary, tmp_path):
    with following(primary, tmp_path / "one") as follower, follower.socket() as ws:
        ws.ask({"c": "sow_and_subscribe", "t": "orders"})
        bookmark = primary.publish("orders", {"id": 1, "n": 1}).json["bookmark"]
        *_, line = ws.until(c="p")
        assert (line["d"], line["bm"]) == ({"id": 1, "n": 1}, bookmark)


def test_a_subscription_waits_for_a_bookmark_that_another_server_has_given(primary, tmp_path):
    with following(primary, tmp_path / "one") as follower, follower.socket() as ws:
        (late,) = ws.ask({"c": "subscribe", "t": "orders", "bm": "2", "wait": 0})
        assert (late["status"], late["reason"]) == ("failure", "not yet")
        ws.send({"c": "subscribe", "t": "orders", "bm": "1", "cid": "2"})
        primary.publish("orders", {"id": 1}, {"id": 2})
        ack, line = ws.until(c="p")
        assert (ack["status"], line["bm"]) == ("success", "2")


BEGINNINGS = {
    "events": "/v1/topics/orders/stream?bookmark=",
    "the log": "/v1/log?from=",
    "a query": "/v1/topics/orders/records?as_of=",
}


@pytest.mark.parametrize("path", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_request_waits_for_the_bookmark_at_which_it_begins(primary, tmp_path, path):
    with following(primary, tmp_path / "follower") as follower:
        follower.reach(primary.publish("orders", {"id": 1}).json["bookmark"])
        log_id = primary.get("/v1/status").json["log"]
        for ahead in ("2", f"{log_id}-2"):
            answer = follower.get(f"{path}{ahead}&wait=0.001")
            assert (answer.status, answer.json["reason"]) == (504, "not yet")
        elsewhere = "0" * 16 + "-2"
        assert follower.get(f"{path}{elsewhere}&wait=0.001").json["reason"] == "another log"
        assert primary.get(f"{path}9").json["reason"] == "invalid bookmark"


def test_events_go_on_behind_a_bookmark_that_a_follower_reaches_later(primary, tmp_path):
    with following(primary, tmp_path / "follower") as follower:
        follower.reach(primary.publish("orders", {"id": 1}).json["bookmark"])
        log_id = primary.get("/v1/status").json["log"]

        async def begun():
            more = {"headers": {"Last-Event-ID": f"{log_id}-2"}}
            waits = asyncio.ensure_future(
                follower._http.get(follower.url + stream("orders"), **more)
            )
            await asyncio.sleep(0)
            return waits

        waits = follower.wait(begun())
        primary.publish("orders", {"id": 2})
        primary.publish("orders", {"id": 3})

        async def answered():
            return await waits

        response = follower.wait(answered())
        assert Events(follower, response).until("p")[-1].line["d"] == {"id": 3}
        follower.call(response.close)


def test_it_goes_on_where_it_was_after_a_stop_and_after_the_primarys(primary, tmp_path):
    primary.publish("orders", {"id": 1, "n": 1})
    with following(primary, tmp_path / "one") as follower:
        follower.stop()
        bookmark = primary.publish("orders", {"id": 2, "n": 2}).json["bookmark"]
        follower.start()
        follower.reach(bookmark)
        assert follower.records("orders") == primary.records("orders")
        assert status(follower)["state_hash"] == status(primary)["state_hash"]


def test_it_starts_anew_when_the_primary_has_and_goes_on_by_the_log(primary, tmp_path):
    primary.publish("orders", {"id": 1, "n": 1})
    with following(primary, tmp_path / "one") as follower:
        primary.stop()
        assert follower.records("orders") == [{"id": 1, "n": 1}]
        primary.start()
        follower.wait(follower.follower.is_over.wait())
        follower.stop()
        bookmark = primary.publish("orders", {"id": 2, "n": 2}).json["bookmark"]
        follower.start()
        follower.reach(bookmark)
        assert status(follower)["state_hash"] == status(primary)["state_hash"]


def test_several_starts_of_the_primary_take_one_of_a_follower(primary, tmp_path):
    primary.stop()
    primary.start()
    primary.publish("orders", {"id": 1, "n": 1})
    with following(primary, tmp_path / "one") as follower:
        follower.stop()
        for number in range(2, 5):
            primary.stop()
            primary.start()
            bookmark = primary.publish("orders", {"id": number, "n": number}).json["bookmark"]
        follower.start()
        follower.reach(bookmark)
        assert not follower.follower.is_over.is_set()
        assert status(follower)["state_hash"] == status(primary)["state_hash"]
        # Its window ends by the clock of this machine.
        until(lambda: primary.records("orders-C") == follower.records("orders-C") != [])


def test_what_is_of_another_log_is_copied_again(primary, tmp_path):
    primary.publish("orders", {"id": 1, "n": 1})
    with following(primary, tmp_path / "one") as follower:
        follower.stop()
        other = Running(CONFIG, tmp_path / "other")
        try:
            other.publish("orders", {"id": 7, "n": 7})
            follower._primary = other
            follower.start()
            assert follower.records("orders") == [{"id": 7, "n": 7}]
            assert status(follower)["log"] == status(other)["log"]
            follower.stop()
        finally:
            other.close()
        follower._primary = primary
        follower.start()
        assert follower.records("orders") == [{"id": 1, "n": 1}]


def test_a_reload_reaches_it_at_its_place(primary, tmp_path):
    later = replace(CONFIG, topics=(*CONFIG.topics, replace(CONFIG.topics[2], name="slower")))
    with following(primary, tmp_path / "one") as follower:
        primary.publish("orders", {"id": 1, "n": 1})
        primary.server._reloader._reread = lambda: replace(later, port=primary._config.port)
        assert primary.request("POST", "/v1/config/reload").status == 200
        until(lambda: follower.get("/v1/topics/slower").status == 200)
        assert follower.records("slower") == primary.records("slower") == [{"id": 1, "n": 1}]
        assert not follower.follower.is_over.is_set()


def under(primary, topics):
    """The primary's topics from now on, by a reload that gives up what has no place."""
    primary.server._reloader._reread = lambda: replace(
        CONFIG, topics=topics, port=primary._config.port
    )
    answer = primary.request("POST", "/v1/config/reload?allow_loss=true")
    assert answer.status == 200, answer.body


JOBS = Topic("jobs", "json", conflation_policy="off", queue=QueueSettings("orders"))


@pytest.mark.parametrize("is_away", [True, False])
def test_a_queue_that_a_reload_adds_reaches_it_and_lives_on(primary, tmp_path, is_away):
    def is_same():
        keys = "bookmark", "state_hash"
        (ours, its) = ({key: status(one)[key] for key in keys} for one in (primary, follower))
        return ours == its

    primary.publish("orders", {"id": 1, "n": 1})
    with following(primary, tmp_path / "one") as follower:
        if is_away:
            follower.stop()
        under(primary, (*CONFIG.topics, JOBS))
        primary.publish("orders", {"id": 2, "n": 2})
        if is_away:
            follower.start()
        until(is_same)
        follower.stop()
        follower.start()
        until(is_same)
        assert len(follower.server.engine.topics["jobs"].records.table.slots) == 1
        assert follower.get("/v1/topics/jobs").json.keys().isdisjoint({"leased", "waiting"})
        for answer in (
            follower.request("POST", "/v1/topics/jobs/lease"),
            follower.get("/v1/topics/jobs/records"),
            follower.get("/v1/topics/jobs/stream"),
        ):
            assert (answer.status, answer.json["reason"]) == (421, "not primary")
            assert answer.json["primary"] == primary.url


def test_what_a_start_of_the_primary_gave_up_is_given_up(primary, tmp_path):
    primary.publish("orders", {"id": 1, "n": 1})
    with following(primary, tmp_path / "one") as follower:
        primary._config = replace(CONFIG, topics=CONFIG.topics[1:2], port=primary._config.port)
        primary._more = {"allow_loss": True}
        primary.stop()
        primary.start()
        follower.wait(follower.follower.is_over.wait())
        follower.stop()
        follower.start()
        assert follower.get("/v1/topics/orders").status == 404
        assert status(follower)["state_hash"] == status(primary)["state_hash"]


def test_what_was_given_up_while_it_was_away_does_not_come_back(tmp_path):
    desks = configuration(TOPICS + DESKS)
    taken = replace(desks.topics[2], name="/desk/1")
    primary = Running(desks, tmp_path / "primary")
    try:
        primary.publish("/desk/1", {"id": 1, "n": 1})
        with following(primary, tmp_path / "one") as follower:
            follower.stop()
            under(primary, (*desks.topics, taken))
            under(primary, desks.topics)
            bookmark = primary.publish("/desk/1", {"id": 2, "n": 2}).json["bookmark"]
            follower.start()
            follower.reach(bookmark)
            assert follower.records("/desk/1") == primary.records("/desk/1") == [{"id": 2, "n": 2}]
            assert status(follower)["state_hash"] == status(primary)["state_hash"]
    finally:
        primary.close()


@pytest.mark.parametrize("is_away", [True, False])
def test_a_directory_of_an_earlier_moment_under_the_primary_is_noticed(primary, tmp_path, is_away):
    primary.publish("orders", {"id": 1, "n": 1})
    primary.stop()
    shutil.copytree(tmp_path / "primary", tmp_path / "earlier")
    primary.start()
    primary.publish("orders", *({"id": at, "n": 0} for at in range(2, 5)))
    with following(primary, tmp_path / "one") as follower:
        follower.stop()
        primary.stop()
        shutil.rmtree(tmp_path / "primary")
        shutil.copytree(tmp_path / "earlier", tmp_path / "primary")
        if not is_away:
            follower.start()
        primary.start()
        bookmark = primary.publish("orders", *({"id": at, "n": 1} for at in range(5, 15)))
        if not is_away:
            follower.wait(follower.follower.is_over.wait())
            follower.stop()
        follower.start()
        follower.reach(bookmark.json["bookmark"])
        assert follower.records("orders") == primary.records("orders")
        assert status(follower)["state_hash"] == status(primary)["state_hash"]


def test_while_its_disk_is_full_it_takes_no_more_and_then_goes_on(primary, tmp_path, monkeypatch):
    def refuse(_entries):
        raise DiskFull("there is no room")

    with following(primary, tmp_path / "one") as follower:
        runtime, engine = follower.server.runtime, follower.server.engine
        monkeypatch.setattr(runtime.journal, "append", refuse)
        primary.publish("orders", {"id": 0, "n": 0})
        until(lambda: follower.call(lambda: runtime.failure) is not None)
        taken = follower.call(lambda: engine.seq)
        for at in range(20):
            primary.publish("orders", {"id": at, "n": at})
        under(primary, CONFIG.topics[:-1])
        bookmark = primary.publish("orders", {"id": 20, "n": 20}).json["bookmark"]
        assert follower.call(lambda: engine.seq) == taken
        monkeypatch.undo()
        follower.reach(bookmark)
        assert follower.get("/v1/topics/sums").status == 404
        assert status(follower)["state_hash"] == status(primary)["state_hash"]
        assert follower.errors == ["there is no room"]
        follower.errors.clear()


def test_what_comes_right_after_a_start_is_of_the_topics_of_that_start(primary, tmp_path):
    later = replace(CONFIG.topics[0], name="trades", file_name="trades.sow")
    with following(primary, tmp_path / "one") as follower:
        primary._config = replace(CONFIG, topics=(*CONFIG.topics, later), port=primary._config.port)
        primary.stop()
        primary.start()
        # Before it is found again.
        bookmark = primary.publish("trades", {"id": 1, "n": 1}).json["bookmark"]
        follower.wait(follower.follower.is_over.wait())
        follower.stop()
        follower.start()
        follower.reach(bookmark)
        assert follower.records("trades") == [{"id": 1, "n": 1}]
        assert status(follower)["state_hash"] == status(primary)["state_hash"]


SECURED = """<Security><Authentication><Tokens><File>{0}</File></Tokens></Authentication>
<Role><Name>all</Name><Member>*</Member><Allow><Topic>.*</Topic><Read/></Allow>
  <Allow><Admin/></Allow></Role></Security>"""
START_US, ENDS, HOURS_US = 1_700_000_000_000_000, "2023-11-15T00:00:00Z", 86_400_000_000


def test_a_session_ends_with_its_token_also_while_the_primary_is_lost(tmp_path, monkeypatch):
    """The time of the log stands still then."""
    monkeypatch.setattr("sow.server.loop.background_work.EXPIRED_S", 0.01)
    file = tmp_path / "tokens"
    file.write_text(f"ann {sum_of('ann')} {ENDS}\nnode {sum_of('node')}\n")
    clock = VirtualClock(START_US)
    config = configuration(TOPICS, SECURED.format(file))
    primary = Running(config, tmp_path / "primary", clock=VirtualClock(START_US))
    follower = Following(primary, tmp_path / "follower", "node", clock)
    with follower.socket(headers={"Authorization": "Bearer ann"}) as one:
        assert one.ask({"c": "subscribe", "t": "orders"})[-1]["status"] == "success"
        primary.close()
        follower.call(clock.advance, HOURS_US)
        assert [(line["c"], line.get("reason")) for line in (one.line(), one.line())] == [
            ("unsubscribed", "AUTHORIZATION"),
            ("close", BARRED),
        ]
    answer = follower.request("GET", "/v1/topics", headers={"Authorization": "Bearer ann"})
    assert answer.status == 401
    follower.close()
