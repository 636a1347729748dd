"""The law of queues: with consumers and the server killed at random no message is lost, none is
with two at once, and each is acknowledged once.

A naive model has each message with its holder and the end of its lease. Consumers subscribe,
acknowledge, give back, lose their connection, return, and end; requests lease over HTTP's door; the
process dies between two steps or with a group that the disk never got; time passes. At last one
consumer takes all that is left, which has to be what was published and not acknowledged.
"""

import json

from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import LEASES, QueueSettings, Topic
from sow.engine.queues import ReceivingConsumer
from sow.engine.recovery.redo import stored_slices
from tests.effort import examples
from tests.laws.harness import ORDERS, SECOND, World

LEASE_US = 10 * SECOND
JOBS = Topic(
    "jobs",
    "json",
    conflation_policy="off",
    queue=QueueSettings("orders", lease_us=LEASE_US, subscription_backlog_max=3),
)
ONCE = Topic(
    "once",
    "json",
    conflation_policy="off",
    queue=QueueSettings("orders", "at-most-once", subscription_backlog_max=3),
)
NAMES = ("a", "b", "c")


class Run:
    """A world, and what is known of each message of `jobs`."""

    def __init__(self):
        self.world = World(ORDERS, JOBS, ONCE, LEASES)
        self.published = {}
        """Bodies by bookmark, of what is durable."""
        self.held = {}
        """By bookmark: who has it, and until when."""
        self.done = set()
        self.sent_once = []
        self.consumers = {}
        self.number = self.ids = 0

    @property
    def queue(self):
        return self.world.executor.queues.find("jobs")

    # What happens.

    def publish(self, id_, count):
        for _ in range(count):
            self.number += 1
            body = {"id": id_, "n": self.number}
            self.published[self.world.publish("orders", body)] = body
        self.read()

    def delete(self, id_):
        """A record goes; its messages stay."""
        self.world.delete("orders", f"/id = {id_}")

    def subscribe(self, name, backlog):
        if name not in self.consumers:
            client = self.consumers[name] = self.world.client()
            client.say(c="logon", client=name)
            client.execute(json.dumps({"c": "subscribe", "t": "once"}).encode())
            opts = f"max_backlog={backlog}"
            client.execute(json.dumps({"c": "subscribe", "t": "jobs", "opts": opts}).encode())
        self.read()

    def read(self):
        for name, client in self.consumers.items():
            for line in client.lines() if client.session.connected else ():
                if line["c"] == "p" and line["t"] == "jobs":
                    self.deliver(int(line["bm"]), line["d"], name)
                elif line["c"] == "p":
                    self.sent_once.append(int(line["bm"]))

    def deliver(self, bookmark, body, holder):
        assert self.published[bookmark] == body
        assert bookmark not in self.done, "an acknowledged message is delivered"
        _, until_us = self.held.get(bookmark, ("", 0))
        assert until_us <= self.world.now, "a message is with two at once"
        self.held[bookmark] = holder, self.world.now + LEASE_US

    def own(self, name):
        return [one for one, (holder, _) in self.held.items() if holder == name]

    def still(self, bookmark):
        return self.held[bookmark][1] > self.world.now

    def acknowledge(self, name, which, cancels):
        own, client = self.own(name), self.consumers.get(name)
        if not own or client is None or not client.session.connected:
            return
        bookmarks = own[: which + 1]
        wanted = [one for one in bookmarks if self.still(one)]
        more = {"opts": "cancel"} if cancels else {}
        client.execute(
            json.dumps(
                {"c": "sow_delete", "cid": "x", "t": "jobs", "bm": [*map(str, bookmarks)], **more}
            ).encode()
        )
        for bookmark in bookmarks:
            del self.held[bookmark]
        self.done |= set() if cancels else set(wanted)
        lines = client.lines()
        (ack,) = [line for line in lines if line["c"] == "ack"]
        assert ack["cancelled" if cancels else "acknowledged"] == len(wanted)
        for line in lines:
            if line["c"] == "p" and line["t"] == "jobs":
                self.deliver(int(line["bm"]), line["d"], name)
            elif line["c"] == "p":
                self.sent_once.append(int(line["bm"]))
        self.read()

    def lease(self, count, is_done):
        """Lease as a request does, and acknowledge at once, or never."""
        got, ids = [], []

        def named(bookmark):
            self.ids += 1
            ids.append(f"{bookmark}-{self.ids}")
            return ids[-1]

        consumer = ReceivingConsumer(count, named, got.extend)
        self.queue.join(consumer, self.world.now)
        self.queue.leave(consumer)
        self.world.settle()
        for one in got:
            self.deliver(one.bookmark, json.loads(one.body), one.lease)
            if is_done:
                assert self.queue.acknowledge([one.bookmark], one.lease, self.world.now) == 1
                assert self.queue.acknowledge([one.bookmark], one.lease, self.world.now) == 0
                self.done.add(one.bookmark)
                del self.held[one.bookmark]
        self.queue.settle(self.world.now)
        self.world.settle()
        self.read()

    def away(self, name):
        """A consumer loses its connection; its session is kept, and its messages with it."""
        client = self.consumers.get(name)
        if client is not None and client.session.connected:
            client.say(c="logon", client=name)
            assert self.world.executor.sessions.drop(client.session, self.world.now)

    def end(self, name):
        client = self.consumers.pop(name, None)
        if client is not None:
            self.world.executor.sessions.close(client.session)
            for bookmark in self.own(name):
                del self.held[bookmark]
            self.world.settle()
            self.read()

    def wait(self, seconds):
        for _ in range(seconds):
            self.world.advance(SECOND)
            self.read()

    def checkpoint(self):
        catalog = self.world.engine.catalog
        for name in ("orders", "jobs", "once"):
            self.world.checkpoints[name].write(
                self.world.engine.seq, stored_slices(catalog, name, 2)
            )

    def kill(self, is_in_flight):
        """The process dies, perhaps with a step that the disk never got."""
        if is_in_flight:
            self.world.engine.publish("orders", [b'{"id":1,"n":-1}'], self.world.now)
            self.queue.settle(self.world.now)
        self.consumers.clear()
        self.world = self.world.restart()

    def compare(self):
        self.world.check()
        left = {one: body for one, body in self.published.items() if one not in self.done}
        queue = self.queue.queue
        assert set(queue.messages) == set(left)
        held = {one for one in self.held if self.still(one)}
        for bookmark in held:
            assert queue.messages[bookmark].holder, "a lease is forgotten"
        client = self.world.client()
        shown = [line["d"] for line in client.say(c="sow", t="jobs") if line["c"] == "sow"]
        self.world.executor.sessions.close(client.session)
        assert shown == [left[one] for one in sorted(left) if not queue.messages[one].holder]
        assert len(self.sent_once) == len(set(self.sent_once)), "sent twice at most once"

    def drain(self):
        """One consumer takes all that is left."""
        for name in NAMES:
            self.end(name)
        self.world.advance(100 * SECOND)
        left = set(self.published) - self.done
        while self.done != set(self.published):
            before = len(self.done)
            self.lease(100, True)
            assert len(self.done) > before, f"of {left} some are lost"
        assert not self.queue.queue.messages


names = st.sampled_from(NAMES)
acts = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 2), st.integers(1, 4)),
    st.tuples(st.just("delete"), st.integers(1, 2)),
    st.tuples(st.just("subscribe"), names, st.integers(1, 5)),
    st.tuples(st.just("acknowledge"), names, st.integers(0, 2), st.booleans()),
    st.tuples(st.just("lease"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("away"), names),
    st.tuples(st.just("end"), names),
    st.tuples(st.just("wait"), st.sampled_from([1, 4, 11])),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("kill"), st.booleans()),
)


@examples(100)
@given(st.lists(acts, max_size=25))
def test_no_message_is_lost_or_with_two_at_once_whatever_dies(taken):
    run = Run()
    for act, *values in taken:
        getattr(run, act)(*values)
        run.compare()
    run.drain()
    run.compare()
