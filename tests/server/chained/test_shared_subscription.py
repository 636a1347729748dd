"""Subscriptions of every kind: equal ones are one upstream, and their clients are sent what clients
of the upstream itself are sent.

Live windows that sessions share: they scroll, and one is upstream for equal ones.
"""

import asyncio
import sys
from types import SimpleNamespace

import pytest

from sow.messages import message_type
from sow.server.chained.link import read_line
from sow.server.chained.shared_channel import ChannelCalls
from sow.server.chained.shared_subscription import SharedSubscription, SharedWindow
from sow.streaming.update_encoder import FeedKey
from tests.edge.serving import records
from tests.messages.examples import EXAMPLES, OPTIONS, topic_of
from tests.server.chained.chains import ALL, Pair, begin, hurry, known
from tests.server.chained.test_shared import until
from tests.topic.making import records as topic_records

CALLS_A_LINE = 16
"""Of Python and of C, from the line that was read to the one that waits for its members."""
GROUPS = "projection=[/desk AS /desk,SUM(/x) AS /x],grouping=[/desk]"
KINDS = {
    "no keys": {**ALL, "opts": "no_sowkey"},
    "no keys of those in focus": {**ALL, "opts": "no_sowkey,oof", "filter": "/x > 1"},
    "deltas": {**ALL, "c": "sow_and_delta_subscribe", "opts": "oof,no_empties", "filter": "/x > 1"},
    "windows": {**ALL, "opts": "conflation=50ms"},
    "windows with oof": {**ALL, "opts": "conflation=50ms,oof", "filter": "/x > 1"},
    "windows with deltas": {
        **ALL,
        "c": "sow_and_delta_subscribe",
        "opts": "conflation=50ms,oof,no_empties",
        "filter": "/x > 1",
    },
    "windows by a field": {**ALL, "opts": "conflation=50ms,conflation_key=[/id]"},
    "the client's pace": {**ALL, "opts": "conflation=auto,timestamp", "filter": "/x > 1"},
    "groups": {**ALL, "opts": GROUPS},
    "groups with oof": {**ALL, "opts": f"{GROUPS},oof", "filter": "/x > 1"},
    "deltas of groups": {**ALL, "c": "sow_and_delta_subscribe", "opts": GROUPS},
    "live windows": {**ALL, "order_by": "/x DESC", "top_n": 3, "opts": "live,oof"},
    "live windows of the middle": {
        **ALL,
        "order_by": "/x",
        "top_n": 4,
        "skip_n": 1,
        "opts": "positions,oof",
        "filter": "/x > 0",
    },
    "live windows with deltas": {
        **ALL,
        "c": "sow_and_delta_subscribe",
        "order_by": "/x DESC",
        "top_n": 4,
        "opts": "live,positions,no_empties,timestamp,oof",
    },
    "live windows in windows": {
        **ALL,
        "order_by": "/x DESC",
        "top_n": 4,
        "opts": "live,positions,conflation=50ms,oof",
    },
    "groups in windows": {**ALL, "opts": f"{GROUPS},conflation=50ms,oof"},
}


def without_names(lines):
    return [{key: line[key] for key in line if key not in ("s", "bm", "ts")} for line in lines]


def pages_of(lines, held):
    """What a client of a live window holds at the end of each turn, or of the snapshot, with the
    bookmark of that moment."""
    held, pages = dict(held), []
    for line in lines:
        known([line], held)
        if line["c"] in ("turn_end", "group_end"):
            pages.append((line["bm"], dict(held)))
    return pages


def is_part(some, all_of_them):
    """Whether these are found among the others, in the same order."""
    others = iter(all_of_them)
    return all(one in others for one in some)


def publish(pair, step):
    documents = [
        {"id": number, "x": (number * step) % 5, "desk": f"d{number % 3}"} for number in range(6)
    ]
    pair.upstream.publish("orders", *documents)
    pair.upstream.request("DELETE", f"/v1/topics/orders/records?filter=/id%20=%20{step}")


@pytest.mark.parametrize("kind", KINDS)
def test_equal_ones_are_one_upstream_and_as_exact_as_it(pair, kind):
    wanted, steps = KINDS[kind], iter(range(1, 20))
    publish(pair, next(steps))
    with pair.chained.socket() as one, pair.chained.socket() as two, pair.chained.socket() as late:
        begun = [begin(socket, wanted) for socket in (one, two)]
        assert pair.followed() == 1
        with pair.upstream.socket() as straight:
            begun.append(begin(straight, wanted))
            sockets = [one, two, straight]
            assert without_names(begun[0]) == without_names(begun[1]) == without_names(begun[2])
            for _ in range(3):
                publish(pair, next(steps))
            lines = collected(pair, sockets, wanted)
            begun.append(begin(late, wanted))
            for _ in range(3):
                publish(pair, next(steps))
            sockets.append(late)
            more = collected(pair, sockets, wanted)
        if "conflation" not in wanted["opts"]:
            assert without_names(lines[0]) == without_names(lines[1])
            assert without_names(more[0]) == without_names(more[3])
            if "order_by" in wanted:
                _, begins = pages_of(begun[0], {})[-1]
                chained = pages_of(lines[0] + more[0], begins)
                direct = pages_of(lines[2] + more[2], begins)
                assert chained[-1] == direct[-1]
                assert is_part(chained, direct)
            else:
                assert without_names(lines[0]) == without_names(lines[2])
                assert without_names(more[0]) == without_names(more[2])
        assert pair.followed() == 1
        lines.append([])
        if "no_sowkey" in wanted["opts"]:
            assert not any("k" in line for mine in begun + lines + more for line in mine)
            return
        held = [
            known([*first, *then, *last])
            for first, then, last in zip(begun, lines, more, strict=True)
        ]
        if "oof" in wanted["opts"]:
            assert held[0] == held[1] == held[2] == held[3]
        else:
            # Without oof a client keeps what has left.
            assert held[3].items() <= held[0].items() == held[1].items() == held[2].items()


def collected(pair, sockets, wanted):
    """All lines up to that of a record that comes last."""
    collected.number += 1
    number = collected.number
    x = number + 10 if "DESC" in wanted.get("order_by", "") else 2
    x = 1 / number if wanted.get("order_by") == "/x" else x
    mark = {"id": 1000 + number, "x": x, "desk": f"mark {number}"}
    if wanted.get("order_by") == "/x":
        pair.upstream.publish("orders", {"id": 5000 + number, "x": 1 / (number + 0.5)})
    pair.upstream.publish("orders", mark)

    def is_mark(line):
        return line["c"] == "p" and line["d"].get("desk") == mark["desk"]

    found = []
    for socket in sockets:
        lines = [socket.line()]
        while not is_mark(lines[-1]):
            lines.append(socket.line())
        if "order_by" in wanted:
            # Records that have entered come before those that have changed.
            lines += socket.until(c="turn_end")
        found.append([line for line in lines if line["c"] in ("p", "oof", "turn_end")])
    return found


collected.number = 0


def test_turns_that_come_together_are_one(pair):
    """A client that is behind gets the difference; an edge behind its upstream is such a client."""
    wanted, steps = KINDS["live windows with deltas"], iter(range(1, 20))
    publish(pair, next(steps))
    with pair.chained.socket() as one, pair.upstream.socket() as straight:
        begun = [begin(socket, wanted) for socket in (one, straight)]
        pair.relay.be_silent()
        for _ in range(3):
            publish(pair, next(steps))
        seen = straight.line()
        pair.relay.be_silent(False)
        lines = collected(pair, [one, straight], wanted)
        _, begins = pages_of(begun[0], {})[-1]
        chained = pages_of(lines[0], begins)
        direct = pages_of([seen, *lines[1]], begins)
        assert chained[-1] == direct[-1]
        assert is_part(chained, direct)
        assert len(chained) < len(direct)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "keys" not in kind])
def test_what_is_shared_goes_on_after_a_loss(pair, kind):
    wanted, steps = KINDS[kind], iter(range(1, 20))
    publish(pair, next(steps))
    with pair.chained.socket() as one:
        held = known(begin(one, wanted))
        publish(pair, next(steps))
        known(collected(pair, [one], wanted)[0], held)
        pair.upstream.call(pair.relay.drop)
        publish(pair, next(steps))
        known(collected(pair, [one], wanted)[0], held)
        pair.upstream.stop()
        pair.upstream.start()
        publish(pair, next(steps))
        known(collected(pair, [one], wanted)[0], held)
        with pair.upstream.socket() as straight:
            now = known(begin(straight, wanted))
        assert now == held if "oof" in wanted["opts"] else now.items() <= held.items()


@pytest.fixture(scope="module")
def types(tmp_path_factory):
    """A pair of servers with a topic of each message type."""
    elements = "".join(example.element for example in EXAMPLES.values())
    topics = "".join(map(topic_of, EXAMPLES))
    with pytest.MonkeyPatch.context() as patched:
        hurry(patched)
        directory = tmp_path_factory.mktemp("types")
        pair = Pair(directory, topics, f"<MessageTypes>{elements}</MessageTypes>")
        yield pair
        pair.close()
        assert pair.upstream.errors == pair.chained.errors == []


@pytest.mark.parametrize("kind", ["", "delta_", "conflated"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_messages_of_all_types_are_shared(types, name, kind):
    wanted = {**ALL, "t": name, "opts": "oof"}
    if kind == "conflated":
        wanted["opts"] += ",conflation=10ms"
    else:
        wanted["c"] = f"sow_and_{kind}subscribe"
    example, own = EXAMPLES[name], message_type(name, OPTIONS)
    key = {} if example.key else {"k": "1"}

    def post(number, other):
        body = own.encode(example.record(number, other))
        address = records(name, **key)
        octets = {"Content-Type": "application/octet-stream"}
        assert types.upstream.request("POST", address, data=body, headers=octets).status == 200

    post(1, 10)
    with (
        types.chained.socket() as one,
        types.chained.socket() as two,
        types.upstream.socket() as straight,
    ):
        sockets = [one, two, straight]
        before = types.followed()
        begun = [begin(socket, wanted) for socket in sockets]
        assert types.followed() == before + 2
        assert without_names(begun[0]) == without_names(begun[1]) == without_names(begun[2])
        post(1, 11)
        lines = [[socket.line()] for socket in sockets]
        types.upstream.request("DELETE", records(name, filter="1=1"))
        for socket, mine in zip(sockets, lines, strict=True):
            mine.append(socket.line())
        assert without_names(lines[0]) == without_names(lines[1]) == without_names(lines[2])
        assert [line["c"] for line in lines[0]] == ["p", "oof"]


def test_a_line_that_is_passed_on_costs_few_calls():
    """Most of what an edge with a hundred screens spends is spent on lines, and not on screens."""

    async def run():
        wanted = SimpleNamespace(accounts=False, bodies=False, aggregated=False)
        calls = ChannelCalls(*(4 * [lambda *_: None]))
        one = SharedSubscription(wanted, "c", topic_records(), calls, lambda: "f1")
        session = object()
        channel = one.channel_for(FeedKey(None), session, "")
        channel.members[session] = None
        one.be_named("u")
        lines = [b'{"c":"p","s":"u","k":"1","bm":"%d","d":{"id":1}}' % at for at in range(1, 121)]
        changes = [(read_line(line), line) for line in lines]
        counts = []
        for some in (changes[:10], changes[10:]):
            count = [0]

            def counted(_frame, event, _argument, count=count):
                count[0] += event in ("call", "c_call")

            sys.setprofile(counted)
            try:
                assert sum(one.take(some, 0)) == len(some)
            finally:
                sys.setprofile(None)
            counts.append(count[0])
        assert channel.collect() == [line.replace(b'"u"', b'"f1"') for line in lines]
        return (counts[1] - counts[0]) / 100

    assert asyncio.run(run()) <= CALLS_A_LINE


WINDOW = {**ALL, "order_by": "/x DESC", "top_n": 3, "opts": "positions"}


def publish_order(pair, step):
    pair.upstream.publish("orders", *({"id": at, "x": (at * step) % 11} for at in range(10)))


def test_a_window_scrolls_as_upstream_scrolls_it(pair):
    publish_order(pair, 3)
    with pair.chained.socket() as one, pair.upstream.socket() as straight:
        found, names = [], []
        for socket in (one, straight):
            found.append(begin(socket, {**WINDOW, "skip_n": 0}))
            names.append(found[-1][0]["s"])
        for step, skip_n in enumerate((2, 1, 5, 0)):
            for socket, name, mine in zip((one, straight), names, found, strict=True):
                command = {**WINDOW, "skip_n": skip_n, "opts": "positions,replace", "s": name}
                mine += begin(socket, command, f"{step}")
            publish_order(pair, 4 + step)
            for socket, mine in zip((one, straight), found, strict=True):
                mine += socket.until(c="turn_end")
        assert without_names(found[0]) == without_names(found[1])
        wrong = {**ALL, "opts": "replace", "s": names[0], "cid": "9"}
        one.send(wrong)
        assert one.until(c="ack", cid="9")[-1]["status"] == "failure"
        # One of this session, and one of the other.
        until(lambda: pair.followed() == 2)


def test_windows_that_look_otherwise_are_one_upstream(pair):
    publish_order(pair, 3)
    with pair.chained.socket() as one, pair.chained.socket() as two, pair.chained.socket() as three:
        begin(one, {**WINDOW, "opts": "live"})
        begin(two, {**WINDOW, "c": "sow_and_delta_subscribe", "skip_n": 0})
        begin(three, {**WINDOW, "opts": "live,conflation=20ms,no_sowkey"})
        assert pair.followed() == 1
        pair.upstream.publish("orders", {"id": 3, "x": 99})
        lines = [socket.until(c="turn_end") for socket in (one, two, three)]
        assert {line["c"] for mine in lines for line in mine} <= {"p", "oof", "turn_end"}
        assert [mine[-2]["d"] for mine in lines] == [{"id": 3, "x": 99}] * 3
        ((shares,),) = pair.chained.server._source._chain._shares.values()
        assert shares.subscriber_count == 3
        one.ask({"c": "unsubscribe", "s": "all"}, cid="2")
    until(lambda: pair.followed() == 0)


def test_a_planted_disorder_is_found(pair, monkeypatch):
    """Records are put at the end of the page."""
    put = SharedWindow._put_row

    def at_the_end(window, line):
        line.at = None
        put(window, line)

    monkeypatch.setattr(SharedWindow, "_put_row", at_the_end)
    publish_order(pair, 3)
    with pair.chained.socket() as one, pair.upstream.socket() as straight:
        found = [begin(socket, {**WINDOW, "skip_n": 0}) for socket in (one, straight)]
        pair.upstream.publish("orders", {"id": 3, "x": 99})
        for socket, mine in zip((one, straight), found, strict=True):
            mine += socket.until(c="turn_end")
        assert without_names(found[0]) != without_names(found[1])
