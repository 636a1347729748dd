"""What a session has on its own connection, and what becomes of it when that is lost."""

import asyncio
from contextlib import ExitStack

import orjson

from sow.client import Client
from sow.protocol.commands import Command
from sow.server.chained import link, own_link, upstream
from sow.server.chained.own_link import Beginning, LinkCalls, OwnLink, StandIn
from sow.server.chained.shared_channel import Joining
from tests.edge.serving import records
from tests.server.chained.chains import ALL, BACK, Pair, begin, lines_up_to, logged_on, until


def test_numbers_of_publishers_are_upstreams(pair):
    with pair.chained.socket() as one:
        assert logged_on(one, sequence=True)["sequence"] == 0
        ack = one.ask({"c": "publish", "t": "orders", "d": {"id": 1}, "seq": 1})[-1]
        assert ack["status"] == "success"
    with pair.upstream.socket() as other:
        assert logged_on(other, sequence=True)["sequence"] == 1
    with pair.chained.socket() as again:
        assert logged_on(again, sequence=True)["sequence"] == 1
        ack = again.ask({"c": "publish", "t": "orders", "d": {"id": 1}, "seq": 1})[-1]
        assert ack["duplicate"] is True
    headers = {"Idempotency-Key": "me/2", "Content-Type": "application/json"}
    for duplicate in (None, "true"):
        answer = pair.chained.request("POST", records("orders"), data=b'{"id": 2}', headers=headers)
        assert answer.headers.get("SOW-Duplicate") == duplicate


def test_a_publisher_of_numbered_messages_goes_on_over_a_loss(pair):
    async def publish():
        async with Client(pair.chained.url) as client:
            publisher = client.idempotent_publisher("me")
            await publisher.publish("orders", [{"id": 1}])
            await publisher.drain()
            await asyncio.to_thread(pair.relay.be_lost)
            await publisher.publish("orders", [{"id": 2}])
            draining = asyncio.create_task(publisher.drain())
            while (await asyncio.to_thread(pair.chained.get, "/readyz")).status != 503:
                pass
            await publisher.publish("orders", [{"id": 3}])
            await asyncio.to_thread(pair.relay.be_silent, False)
            await draining
            await publisher.drain()

    asyncio.run(publish())
    assert [one["id"] for one in pair.upstream.records("orders")] == [1, 2, 3]
    assert pair.upstream.get("/v1/log").body.count(b'"publish"') == 3


def test_a_write_on_its_way_is_never_acknowledged(pair):
    with pair.chained.socket() as one:
        one.ask({"c": "publish", "t": "orders", "d": {"id": 1}})
        pair.relay.hold()
        one.send({"c": "publish", "t": "orders", "d": {"id": 2}, "cid": "2"})
        until(lambda: pair.relay.held)
        pair.relay.be_lost()
        ack = one.until(c="ack", cid="2")[-1]
        assert (ack["status"], ack["reason"]) == ("failure", "upstream lost")
        assert own_link.UNKNOWN in ack["detail"]
        pair.relay.be_silent(False)
        one.until(**BACK)
        assert one.ask({"c": "publish", "t": "orders", "d": {"id": 3}}, cid="3")[-1]["cid"] == "3"


def test_a_client_that_reads_late_gets_all_of_a_long_answer(tmp_path):
    more = "<Sessions><QueueMaxBytes>300KB</QueueMaxBytes></Sessions>"
    pair = Pair(tmp_path, more=more)
    documents = [{"id": number, "x": "x" * 500} for number in range(8_000)]
    for at in range(0, 8_000, 1_000):
        pair.upstream.publish("orders", *documents[at : at + 1_000])
    with pair.chained.socket() as one:
        one.send({"c": "sow", "t": "orders", "cid": "1"})
        pair.chained.publish("orders", {"id": 8_000})
        lines = one.until(c="group_end")
        rows = [line["d"]["id"] for line in lines if line["c"] == "sow"]
        # The two requests came over two connections.
        assert rows in ([*range(8_000)], [*range(8_001)])
        one.send({**ALL, "cid": "2"})
        pair.chained.publish("orders", {"id": 8_001})
        lines = lines_up_to(one, 8_001)
        rows = [line["d"]["id"] for line in lines if line["c"] in ("sow", "p")]
        assert rows == [*range(8_002)]
        (session,) = pair.chained.get("/v1/sessions").json
        assert session["dropped_messages"] == 0
    pair.close()


class Connection:
    """Takes commands, and stands for the pool of connections as well."""

    async def take(self, *_of):
        return self

    async def ready(self):
        pass

    async def send(self, _frame):
        pass


def test_what_follows_the_difference_of_a_replacement_is_left_to_the_shared_one():
    """What is sent twice, or counted as sent when it is not, is wrong in the client for good."""
    said = []
    calls = LinkCalls(said.extend, said.append, print, print, print, print, lambda: False)
    state, joining = Joining(keys={"7"}), Joining(keys=set())
    stand_in = StandIn(state, True, lambda: state.hold_for(joining))
    stand_in.gate.set()
    ack = {"c": "ack", "cid": "node 1", "status": "success", "s": "there"}
    change = {"s": "there", "t": "orders", "d": {"id": 1}}
    lines = [
        {**ack, "a": "processed"},
        {"c": "oof", "k": "8", "reason": "match", **change},
        {"c": "group_begin", "s": "there"},
        {"c": "group_end", "s": "there", "bm": "5"},
        {**ack, "a": "completed"},
        {"c": "oof", "k": "7", "reason": "deleted", **change},
        {"c": "p", "k": "9", "bm": "6", **change},
    ]

    async def replaced(at_once):
        link = OwnLink(None, Connection(), None, calls, "node", "")
        link.stand_for(stand_in)
        command = Command("sow_and_subscribe", "1", "orders")
        beginning = Beginning(command, "here", joining, None, True, stand_in, replaces=True)
        await link.begin({"c": "sow_and_subscribe"}, beginning)
        raw = [orjson.dumps(line) for line in lines]
        for some in [raw] if at_once else [[one] for one in raw]:
            await link.take(some)

    for at_once in (True, False):
        said.clear()
        asyncio.run(replaced(at_once))
        assert [orjson.loads(one)["c"] for one in said if b'"ack"' not in one] == [
            "oof",
            "group_begin",
            "group_end",
        ]
        assert joining.keys == {"7"}
        stand_in.is_replaced = False


def test_a_name_that_another_publisher_has_taken_during_a_loss_is_not_taken_back(pair):
    """The client is told, and takes it back where it wants to."""
    with pair.chained.socket() as one, pair.upstream.socket() as other:
        assert logged_on(one, sequence=True)["sequence"] == 0
        pair.relay.cut()
        assert logged_on(other, sequence=True)["sequence"] == 0
        pair.relay.mend()
        assert one.until(c="close")[-1]["reason"] == "upstream lost"
        ack = other.ask({"c": "publish", "t": "orders", "d": {"id": 1}, "seq": 1}, cid="2")[-1]
        assert ack["status"] == "success"
    with pair.chained.socket() as one:
        assert logged_on(one, sequence=True)["sequence"] == 1


def test_a_name_taken_later_ends_nothing_of_what_the_session_has(pair):
    """What it follows by itself goes on, and every command before is answered, in its order."""
    with pair.chained.socket() as one:
        one.ask({"c": "subscribe", "t": "^orders$"})
        commands = [
            {"c": "publish", "t": "orders", "d": {"id": 1}, "cid": "2"},
            {"c": "sow", "t": "orders", "a": "completed", "cid": "3"},
            {"c": "logon", "client": "me", "sequence": True, "cid": "4"},
            {"c": "publish", "t": "orders", "d": {"id": 2}, "seq": 1, "cid": "5"},
            {**ALL, "a": "completed", "cid": "6"},
        ]
        one.send(*commands)
        acks = [line["cid"] for line in one.until(c="ack", cid="6") if line["c"] == "ack"]
        assert acks == ["2", "3", "4", "5", "6"]
        pair.relay.drop()
        ack = one.ask({"c": "publish", "t": "orders", "d": {"id": 3}, "seq": 2}, cid="7")[-1]
        while ack["status"] == "failure":  # it is not back yet
            ack = one.ask({"c": "publish", "t": "orders", "d": {"id": 3}, "seq": 2}, cid="7")[-1]
        one.settled()
        assert sum(line["c"] == "p" and line["d"] == {"id": 3} for line in one.seen) == 2


def test_a_client_that_goes_without_having_read_leaves_nothing(tmp_path):
    """Nobody makes room in its queue, so what it asked is not answered."""
    pair = Pair(tmp_path, more="<Sessions><QueueMaxMessages>40</QueueMaxMessages></Sessions>")
    documents = [{"id": number, "x": "x" * 5_000} for number in range(2_000)]
    for at in range(0, 2_000, 100):
        pair.upstream.publish("orders", *documents[at : at + 100])
    with pair.chained.socket() as one:
        begin(one, {**ALL, "filter": "/id < 0"})
        one.send(*({"c": "sow", "t": "orders", "cid": str(number)} for number in range(3)), ALL)
        one.until(c="sow")
    while pair.chained.get("/v1/sessions").json or pair.followed():
        pass
    pair.close()


def test_no_command_is_taken_for_one_of_the_chained_server(pair):
    chain = pair.chained.get("/readyz").headers["SOW-Chain"]
    with pair.chained.socket() as one:
        for more in ("1", "logon"):
            cid = f"{chain.split(',')[0]} {more}"
            ack = one.ask({"c": "publish", "t": "orders", "d": {"id": 1}}, cid=cid)[-1]
            assert (ack["status"], ack["reason"]) == ("failure", "bad request")
            assert "write another one" in ack["detail"]
        assert begin(one, ALL)[-1]["status"] == "success"


def test_who_waits_for_an_answer_is_not_idle(tmp_path, monkeypatch):
    monkeypatch.setenv("SOW_LOOP", "asyncio")
    for module in (upstream, link):
        monkeypatch.setattr(module, "ANSWER_S_MAX", 1e6)
    pair = Pair(tmp_path, more="<Limits><IdleTimeout>1000s</IdleTimeout></Limits>")
    with pair.chained.socket() as one:
        one.send({"c": "sow", "t": "orders", "min_bookmark": "9", "wait": 1.5, "cid": "1"})
        until(lambda: pair.chained.server._source._chain._pool._used)
        pair.chained.later(1500)  # upstream waits longer than a client may be idle
        ack = one.until(c="ack")[-1]
        assert (ack["status"], ack["reason"]) == ("failure", "not yet")
        for _ in range(2):
            pair.chained.later(1500)
        assert one.until(c="close")[-1]["reason"].startswith("no request and no subscription")
    pair.close()


def test_publishers_that_come_at_once_are_all_told_who_has_the_name(pair):
    for _ in range(5):
        with ExitStack() as stack:
            sockets = [stack.enter_context(pair.chained.socket()) for _ in range(4)]
            for one in sockets:
                one.send({"c": "logon", "client": "me", "sequence": True, "cid": "l"})
            said = [one.line() for one in sockets]
            assert {line.get("reason") for line in said if line["c"] == "close"} <= {"replaced"}
            owners = [one for one, line in zip(sockets, said, strict=True) if line["c"] == "ack"]
            assert owners
