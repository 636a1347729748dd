"""The client without asyncio: whatever the asynchronous one has, it has, with the same result."""

import asyncio
import inspect
import queue
import re
import threading

import pytest

from sow.client import client as asynchronous
from sow.client import consuming as consuming_module
from sow.client import http, idempotent, live_view, publisher, subscription, sync
from sow.client.sync import Client
from sow.errors import ClientError, UnknownTopic

PAIRS = [
    (asynchronous.Client, sync.Client),
    (http.Http, sync.Http),
    (http.Rows, sync.Rows),
    (publisher.Publisher, sync.Publisher),
    (idempotent.IdempotentPublisher, sync.IdempotentPublisher),
    (subscription.Subscription, sync.Subscription),
    (live_view.Live, sync.Live),
    (live_view.LiveWindow, sync.LiveWindow),
    (consuming_module.MessageConsumer, sync.MessageConsumer),
    (consuming_module.LeasedMessage, sync.LeasedMessage),
]


@pytest.fixture
def client(server):
    with Client(server.url, name="test") as client:
        yield client


class Plain:
    """How a scenario uses the client without asyncio: things are what they are."""

    def __init__(self, server):
        self.client = Client(server.url, name="test")

    def wait(self, found):
        return found

    def enter(self, manager):
        return manager.__enter__()

    def leave(self, manager):
        manager.__exit__(None, None, None)

    def next(self, iterator):
        return next(iterator)

    def all(self, iterable):
        return list(iterable)

    def read(self, response):
        return response.body

    def close(self):
        self.client.close()


class Awaiting:
    """How the same scenario uses the asynchronous one: each thing is awaited."""

    def __init__(self, server):
        self.loop = asyncio.new_event_loop()
        self.client = asynchronous.Client(server.url, name="test")

    def wait(self, found):
        return self.loop.run_until_complete(found)

    def enter(self, manager):
        return self.wait(manager.__aenter__())

    def leave(self, manager):
        self.wait(manager.__aexit__(None, None, None))

    def next(self, iterator):
        return self.wait(_next(iterator))

    def all(self, iterable):
        return self.wait(_all(iterable))

    def read(self, response):
        return self.wait(response.read())

    def close(self):
        self.wait(self.client.close())
        self.wait(self.loop.shutdown_asyncgens())
        self.loop.close()


async def _next(iterator):
    return await anext(iterator)


async def _all(iterable):
    return [item async for item in iterable]


async def _http(client):
    return client.http


def plain_or_not(way):
    """The client's `http`, which the asynchronous one makes on its loop."""
    client = way.client
    return client.http if isinstance(way, Plain) else way.wait(_http(client))


def publishing(way):
    client = way.client
    bookmarks = [
        way.wait(client.publish("orders", [{"id": 1, "px": 1}, {"id": 2, "px": 2}])),
        way.wait(client.delta_publish("orders", {"id": 1, "q": 5})),
    ]
    deleted = way.wait(client.delete("orders", filter="/id = 2"))
    way.wait(client.publish_once("orders", {"id": 3}, writer=f"{type(way).__name__}", epoch=1))
    return client.name, [int(b) > 0 for b in bookmarks], deleted, client.retry, bool(client.url)


def publishing_fast(way):
    made = way.wait(way.client.publisher("orders", window=2))
    way.enter(made)
    way.wait(made.send([b'{"id":1}', {"id": 2}]))
    way.wait(made.send([{"id": 1, "px": 3}], delta=True))
    way.wait(made.drain())
    way.wait(made.delete([{"id": 2}]))
    way.wait(made.settle())
    counts = made.topic, made.sent, made.published, int(made.bookmark) > 0, made.is_open
    way.leave(made)
    way.wait(made.close())
    return counts


def publishing_exactly_once(way):
    name, counts = f"once {type(way).__name__}", []
    for _ in range(2):
        numbered = way.wait(way.client.publisher("orders", client=name, seq=1))
        way.wait(numbered.send([{"id": 1}, {"id": 2}]))
        way.wait(numbered.drain())
        counts.append((numbered.published, numbered.duplicates, numbered.seq))
        way.wait(numbered.close())
    made = way.client.idempotent_publisher(name)
    way.enter(made)
    way.wait(made.publish("orders", {"id": 3}))
    way.wait(made.delta_publish("orders", {"id": 3, "q": 1}))
    way.wait(made.delete("orders", filter="/id=1"))
    way.wait(made.drain())
    made.restart()
    counts.append((made.name == name, made.waiting))
    way.leave(made)
    way.wait(made.close())
    return counts, way.wait(way.client.query("orders", order_by="/id")).records


def asking(way):
    client = way.client
    way.wait(client.publish("orders", [{"id": 1}, {"id": 2}]))
    answer = way.wait(client.query("orders", filter="/id > 1"))
    names = sorted(topic["name"] for topic in way.wait(client.topics()))
    explained = sorted(way.wait(client.explain("orders", filter="/id > 1")))
    kind = way.wait(client.topic("orders"))["kind"]
    return answer.records, answer.matches, bool(answer.index), names, explained, kind


def reading_rows(way):
    way.wait(way.client.publish("orders", [{"id": 1}, {"id": 2}]))
    found = []
    for use in (
        way.all,
        lambda rows: [row for chunk in way.all(rows.chunks()) for row in chunk],
        lambda rows: way.wait(rows.all()).records,
        lambda rows: (rows.matches, bool(rows.index), int(rows.bookmark) > 0, rows.advice),
    ):
        opening = way.client.rows("orders", order_by="/id")
        found.append(use(way.enter(opening)))
        way.leave(opening)
    return found


def requesting(way):
    way.wait(way.client.publish("orders", {"id": 1}))
    over = plain_or_not(way)
    found = [over.url == way.client.url, way.wait(over.json("GET", "/v1/topics/orders"))["kind"]]
    opening = over.request("GET", "/v1/topics/orders/records", {"top_n": 1})
    response = way.enter(opening)
    found += [response.status, response.headers["SOW-Matches"], way.read(response)]
    way.leave(opening)
    found.append(way.wait(over.table("orders", {"filter": "/id = 1"})).to_pylist())
    found.append(way.wait(over.columns("orders", "/id")).names)
    opening = over.rows("orders", {"filter": "/id = 1"})
    found.append(way.all(way.enter(opening)))
    way.leave(opening)
    return found


def following(way):
    client = way.client
    way.wait(client.publish("orders", {"id": 1}))
    messages = client.sow_and_subscribe("orders", oof=True)
    way.wait(messages.open())
    found = [way.next(messages).c, way.wait(messages.next(60)).c, way.next(messages).c]
    way.wait(client.publish("orders", {"id": 2}))
    found += [message.document() for message in way.wait(messages.batch())]
    found += [bool(messages.name), messages.bookmark.count("-"), messages.resumed, messages.gaps]
    found.append(messages.advice)
    way.wait(messages.close())
    plain = client.subscribe("orders")
    way.enter(plain)
    way.wait(client.publish("orders", {"id": 3}))
    found.append(way.next(plain).document())
    way.leave(plain)
    return found


def living(way):
    client = way.client
    way.wait(client.publish("orders", {"id": 1}))
    window = client.live("orders", top_n=1)
    way.enter(window)
    ends = [window.keys, window.copy(), window.count({"id": 1}), window.index({"id": 1})]
    way.leave(window)
    view = client.live("orders")
    way.enter(view)
    way.wait(view.synced())
    table = way.wait(view.to_arrow())
    found = [ends, list(view.values()), [row["id"] for row in table.to_pylist()]]
    way.wait(client.publish("orders", {"id": 2}))
    found.append(way.wait(view.change(5)).new)
    way.wait(client.publish("orders", {"id": 1, "px": 2}))
    found.append(way.next(iter(view.changes()) if isinstance(way, Plain) else view.changes()).new)
    found += [len(view), list(view) == list(view.keys()), dict(view.items()) == view.copy()]
    found += [[view[key] for key in view], view.get("none"), bool(view.subscription.name)]
    found.append(sorted(row["id"] for row in way.wait(view.to_polars()).to_dicts()))
    found += [view.ended, view.preview().caption, way.wait(view.widget(60)).caption]
    found.append(view.faceted(["/id"], {"/id": "1"}))
    way.wait(view.keep_drawing(way.wait(view.widget()), 60))
    frame = way.wait(view.to_pandas())
    found.append(sorted(row["id"] for row in frame.to_dict("records")))
    way.leave(view)
    found += [view.ended, window.ended, view.preview()]
    return found


def editing(way):
    client = way.client
    way.wait(client.publish("prices", [{"id": 1, "n": 1}, {"id": 1, "n": 2}]))
    first, _ = way.wait(client.events("prices", "key=1"))
    way.wait(client.edit_event("prices", "key=1", first["seq"], {"id": 1, "n": 9}))
    return [row["d"] for row in way.wait(client.events("prices", "key=1", to=first["seq"]))]


def consuming(way):
    client = way.client
    way.wait(client.publish("tasks", [{"id": 1}, {"id": 2}]))
    messages = way.enter(client.consume("work", max_backlog=2))
    way.wait(messages.open())
    first, second = way.wait(messages.next(60)), way.next(messages)
    found = [messages.queue, first.document(), second.body, first.deliveries]
    found += [len(first.key), first.bookmark.isdigit(), way.wait(first.ack())]
    found += [way.wait(second.cancel()), way.wait(way.wait(messages.next(60)).ack())]
    found.append(way.wait(messages.next(0.01)))
    way.leave(messages)
    way.wait(messages.close())
    return found


SCENARIOS = [
    consuming,
    editing,
    publishing,
    publishing_fast,
    publishing_exactly_once,
    asking,
    reading_rows,
    requesting,
    following,
    living,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_both_clients_do_the_same(server, scenario):
    found = []
    for kind in (Plain, Awaiting):
        server.clear()
        way = kind(server)
        try:
            found.append(scenario(way))
        finally:
            way.close()
    assert found[0] == found[1]


def public(kind):
    """The public names of a class: its methods, properties, and what its constructor sets."""
    made = "".join(
        inspect.getsource(one.__init__)
        for one in kind.__mro__
        if "sow" in one.__module__ and "__init__" in vars(one)
    )
    set_there = re.findall(r"self\.(\w+)(?::[^=]+)? = ", made)
    return {name for name in [*dir(kind), *set_there] if not name.startswith("_")}


@pytest.mark.parametrize(("awaited", "plain"), PAIRS, ids=lambda kind: kind.__name__)
def test_what_one_client_has_the_other_has(awaited, plain):
    assert public(awaited) == public(plain) - {"awaited"}


@pytest.mark.parametrize(("awaited", "plain"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_public_name_is_used_by_a_scenario(awaited, plain):
    used = [*SCENARIOS, plain_or_not, test_both_clients_do_the_same]
    text = "".join(map(inspect.getsource, used))
    assert {name for name in public(awaited) if f".{name}" not in text} == set()


def test_a_refusal_is_raised_as_the_same_error(client):
    with pytest.raises(UnknownTopic):
        client.query("nope")
    with pytest.raises(UnknownTopic), client.rows("nope"):
        pass


def test_a_closed_client_says_so(server):
    client = Client(server.url)
    client.close()
    client.close()
    with pytest.raises(ClientError, match="the client is closed"):
        client.topics()


def test_two_threads_may_use_one_client(client):
    def publish(at):
        for number in range(20):
            client.publish("orders", {"id": f"{at}-{number}"})

    threads = [threading.Thread(target=publish, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.query("orders").matches == 40


def test_two_threads_that_read_one_subscription_are_sent(client):
    found = queue.SimpleQueue()

    def read(messages):
        try:
            found.put(messages.batch())
        except ClientError as error:
            found.put(error.detail)

    with client.subscribe("orders") as messages:
        threads = [threading.Thread(target=read, args=(messages,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert "read it in one place" in found.get(timeout=60)
        client.publish("orders", {"id": 1})
        assert [one.document() for one in found.get(timeout=60)] == [{"id": 1}]
        for thread in threads:
            thread.join()


def test_messages_come_one_by_one_also_after_a_timeout(client):
    client.publish("orders", {"id": 1})
    with client.sow_and_subscribe("orders") as messages:
        assert [messages.next(60).c for _ in range(3)] == ["group_begin", "sow", "group_end"]
        client.publish("orders", {"id": 2})
        assert next(messages).document() == {"id": 2}
        for number in range(3, 6):
            with pytest.raises(TimeoutError):
                messages.next(0.01)
            client.publish("orders", {"id": number})
            assert messages.next(60).document() == {"id": number}
