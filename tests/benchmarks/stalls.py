"""Stalls: how long everybody waits while one client asks for something large.

A server holds a million records, one of a user with a thousand Allows a tenth of that; beside each
operation another client pings every 4 ms (`tests.benchmarks.pinger`), and its longest wait is the
figure. The floor is its longest wait in
two seconds in which nothing is asked. What is asked is read to its end as fast as it comes, by this
process, which shares the machine with both.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import urlencode

import pyarrow as pa

from sow.security.authentication.tokens import sum_of
from tests.benchmarks.measure import Figure
from tests.benchmarks.pinger import Pinger
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.records import every_order, updates
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import READ_BYTES, Client, command, frame

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
REQUEST_RECORDS = 100_000
"""In one request, where an operation is not about the size of requests."""
IDLE_S = 2.0
FEW_RECORDS = 10_000
"""The smoke test has fewer, and neither waits nor asks for much."""
TOLD_FRAMES, TOLD_RECORDS = 3, 250
LONG_BYTES = 64 * 1024
"""Of a large record: 250 of them are a frame of the largest size."""
ALLOWS = 1000
GUARDED_RECORDS_MAX = 100_000
TOKEN = "token"
GROUPED = 32
"""Aggregated subscriptions of a session, at most."""
WINDOW_S = 1.5
"""Windows of a second have ended then: what they hold is released meanwhile, and counts."""
EXPIRY_S, LOOK_S, EXPIRY_S_MAX = 20, 0.2, 120
WORST = "the longest of all"
ONLY = "STALLS_ONLY"
"""Of the environment: a first look at some operations, which `make stalls ONLY=` does not keep."""
ROWS = "STALLS_ROWS"
"""Of the environment: how many rows a load has, `make stalls ONLY=load ROWS=50000000`."""
CONFIG = """<SOWConfig><Name>bench</Name>
<Limits><RequestMemory>2GB</RequestMemory><FrameSize>512MB</FrameSize></Limits><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/order/id</Key>
<HashIndex><Key>/symbol</Key></HashIndex><Expiration>enabled</Expiration></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>1s</Interval></ConflatedTopic>
<Topic><Name>regions</Name><MessageType>json</MessageType><Key>/region</Key></Topic>
{more}</SOW></SOWConfig>"""
COPY = """<ConflatedTopic><Name>orders-{name}</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>1s</Interval>{filter}</ConflatedTopic>"""

VIEW = """<View><Name>accounts</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Projection><Field>/acct</Field>
<Field>COUNT(1) AS /orders</Field><Field>SUM(/qty) AS /qty</Field><Field>AVG(/px) AS /px</Field>
<Field>MIN(/px) AS /low</Field><Field>MAX(/px) AS /high</Field></Projection>
<Grouping><Field>/acct</Field></Grouping></View>"""
JOINED = """<View><Name>exposure</Name><MessageType>json</MessageType><UnderlyingTopic>
<Join>[orders]./region = [regions]./region</Join></UnderlyingTopic>
<Projection><Field>[orders]./region AS /region</Field>
<Field>SUM([orders]./qty * [regions]./rate) AS /worth</Field></Projection>
<Grouping><Field>[orders]./region</Field></Grouping></View>"""

MANY = """<ConflatedTopic><Name>regions-{at}</Name><MessageType>json</MessageType>
<UnderlyingTopic>regions</UnderlyingTopic><Filter>/rate &gt; {at}</Filter></ConflatedTopic>"""


class Bystander:
    """Who asks: requests over HTTP and commands over a WebSocket, read to their ends."""

    def __init__(self, server: ServerProcess, sizes: Sizes, xml: str, token: str) -> None:
        self._server = server
        self._token = token
        self.sizes = sizes
        self.xml = xml

    # HTTP.

    def request(
        self, method: str, path: str, body: bytes | None = None, kind: str = "", **requested: object
    ) -> bytes:
        """Ask, read all of the answer, and check that it is good; returns its last bytes."""
        connection = HTTPConnection(self._server.host, self._server.port)
        headers = {"Accept" if method == "GET" else "Content-Type": kind} if kind else {}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        query = f"?{urlencode(requested)}" if requested else ""
        connection.request(method, path + query, body, headers)
        response = connection.getresponse()
        last = read_all(response)
        connection.close()
        assert response.status == 200, f"{method} {path}: {response.status} {last[:500]!r}"
        return last

    def records(self, kind: str = "application/json", **requested: object) -> None:
        """A query."""
        self.request("GET", "/v1/topics/orders/records", None, kind, **requested)

    def publish(self, bodies: list[bytes], method: str = "POST", **requested: object) -> None:
        """One request with all of these records."""
        path, body = "/v1/topics/orders/records", b"\n".join(bodies)
        self.request(method, path, body, NDJSON, **requested)

    # WebSocket.

    def follow(self, commands: list[bytes], ends: bytes) -> None:
        """Send frames, and read until a line has `ends` in it."""
        client = self.client()
        client.socket.sendall(b"".join(commands))
        tail = b""
        while ends not in tail:
            piece = client.socket.recv(READ_BYTES)
            assert piece, f"closed: {tail[-500:]!r}"
            tail = tail[-len(ends) :] + piece
        client.close()

    def client(self) -> Client:
        """A new connection."""
        return Client(self._server.host, self._server.port, self._token)

    def reconfigure(self, xml: str) -> None:
        """Write the configuration anew and have it read."""
        self._server.configure(xml)
        self.request("POST", "/v1/config/reload")


def read_all(response: HTTPResponse) -> bytes:
    """Read an answer; returns its last piece."""
    last = b""
    while piece := response.read(READ_BYTES):
        last = piece
    return last


Act = Callable[[Bystander], str | None]
"""Returns what is to be noted beside the figure."""


class Operation(NamedTuple):
    """What is asked, by a name; `before` is done first and does not count."""

    name: str
    act: Act
    before: Act = lambda _by: None


def reading(name: str, kind: str = "application/json", **requested: object) -> Operation:
    """A query over HTTP."""
    return Operation(name, lambda by: by.records(kind, **requested))


def following(name: str, **fields: object) -> Operation:
    """A command over a WebSocket, up to its last ack."""
    frames = [command(cid="1", a="completed", t="orders", **fields)]
    return Operation(name, lambda by: by.follow(frames, b'"a":"completed"'))


def replay(by: Bystander) -> None:
    by.follow([command(c="subscribe", t="orders", bm="0", cid="1", a="completed")], b'"completed"')


def snapshot(by: Bystander, **requested: object) -> None:
    answer = by.request("POST", "/v1/snapshots", None, "", topic="orders", parts=4, **requested)
    taken = json.loads(answer)["snapshot"]
    for part in range(4):
        by.request("GET", f"/v1/snapshots/{taken}", part=part)
    by.request("DELETE", f"/v1/snapshots/{taken}")


def fresh(by: Bystander, share: int, seed: int) -> list[bytes]:
    """Updates of one record in so many, `seed` tells them from others."""
    count = by.sizes.records // share
    return updates(count, by.sizes.records, seed)


def frame_of_many(by: Bystander) -> None:
    bodies = fresh(by, 10, 7)
    head = json.dumps({"c": "publish", "t": "orders", "n": len(bodies), "cid": "1"}).encode()
    by.follow([frame(b"\n".join([head, *bodies]))], b'"c":"ack"')


def many_frames(by: Bystander) -> None:
    frames = [command(c="publish", t="orders", d=json.loads(body)) for body in fresh(by, 50, 8)]
    by.follow([*frames, command(c="flush", cid="1")], b'"c":"ack"')


def commit(by: Bystander, writer: str, rows: int) -> None:
    """The commit alone counts: what is staged came before."""
    counts = [min(REQUEST_RECORDS, rows - start) for start in range(0, rows, REQUEST_RECORDS)]
    parts = [
        {"part": part, "attempt": "0", "chunks": 1, "rows": count}
        for part, count in enumerate(counts)
    ]
    body = json.dumps({"topic": "orders", "parts": parts}).encode()
    by.request("POST", f"/v1/writes/{writer}/1/commit", body, "application/json")


def stage(by: Bystander, writer: str, rows: int, seed: int) -> None:
    """Updates in parts of one request each."""
    for part, start in enumerate(range(0, rows, REQUEST_RECORDS)):
        count = min(REQUEST_RECORDS, rows - start)
        bodies = updates(count, by.sizes.records, seed + part)
        table = pa.table({"value": [body.decode() for body in bodies]})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as out:
            out.write_table(table)
        requested = {"topic": "orders", "part": part, "attempt": "0", "chunk": 0}
        content = sink.getvalue().to_pybytes()
        by.request("POST", f"/v1/writes/{writer}/1", content, ARROW, **requested)


def load(by: Bystander) -> str:
    """A load, beside which another client asks for ten records of the topic again and again, and
    others come and subscribe to it."""
    longest_s, is_over = [0.0, 0.0], threading.Event()
    sent = command(c="subscribe", t="orders", filter="/px < 0", cid="new")
    asked = (
        partial(by.records, filter="/symbol = 'S1'", top_n=10),
        partial(by.follow, [sent], b'"new"'),
    )

    def ask() -> None:
        while not is_over.is_set():
            for at, act in enumerate(asked):
                began_s = time.monotonic()
                act()
                longest_s[at] = max(longest_s[at], time.monotonic() - began_s)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        commit(by, "load", loaded(by))
    finally:
        is_over.set()
        asking.join()
    query_ms, subscription_ms = (longest * 1000 for longest in longest_s)
    return (
        f"a query of the topic took at most {query_ms:.0f} ms, a new subscription to it "
        f"{subscription_ms:.0f} ms"
    )


def with_distinct(by: Bystander) -> None:
    """An index in which nearly every record has a value of its own, and a batch for its topic."""
    index = "<HashIndex><Key>/symbol</Key></HashIndex>"
    by.reconfigure(by.xml.replace(index, f"{index}<HashIndex><Key>/ts</Key></HashIndex>"))
    stage(by, "distinct", by.sizes.records // 5, 12)


def commit_distinct(by: Bystander) -> None:
    commit(by, "distinct", by.sizes.records // 5)
    by.reconfigure(by.xml)


def loaded(by: Bystander) -> int:
    """Rows of a load: as many as there are records, or as the environment says."""
    return int(os.environ.get(ROWS) or by.sizes.records)


def expiring(by: Bystander) -> None:
    """Every fifth record, anew, for a while."""
    lifetime_s = EXPIRY_S if by.sizes.records > FEW_RECORDS else 1
    bodies = every_order(by.sizes.records // 5)
    for start in range(0, len(bodies), REQUEST_RECORDS):
        by.publish(bodies[start : start + REQUEST_RECORDS], expiration=lifetime_s)


def expiry(by: Bystander) -> None:
    """Wait until what expires is gone."""
    give_up = time.monotonic() + EXPIRY_S_MAX
    while json.loads(by.request("GET", "/v1/topics/orders"))["records"] > by.sizes.records * 4 // 5:
        assert time.monotonic() < give_up, "what expires stays"
        time.sleep(LOOK_S)


def subscriptions(by: Bystander) -> None:
    """Five thousand of one client, each with a filter of its own, and its end."""
    count = 5000 if by.sizes.records > FEW_RECORDS else 50
    frames = [
        command(c="subscribe", t="orders", filter=f"/px > {at}.5 AND /acct = 'acct-{at}'")
        for at in range(count)
    ]
    by.follow([*frames, command(c="heartbeat", cid="last", a="processed")], b'"last"')


def told(name: str, count: int, **fields: str) -> Operation:
    """Frames of 250 records to so many subscriptions of one client, each with its number in its
    fields. A frame is carried out once the one before it has been told to all."""

    def act(by: Bystander) -> None:
        numbers = range(count if by.sizes.records > FEW_RECORDS else count // 50)
        said = [{k: v.replace("%d", str(at)) for k, v in fields.items()} for at in numbers]
        many = [command(t="orders", **one) for one in said]
        for seed in range(TOLD_FRAMES):
            bodies = updates(TOLD_RECORDS, by.sizes.records, seed)
            head = {"c": "publish", "t": "orders", "n": len(bodies), "cid": f"told {seed}"}
            many.append(frame(b"\n".join([json.dumps(head).encode(), *bodies])))
        by.follow(many, b'"told %d"' % (TOLD_FRAMES - 1))

    return Operation(f"250 records to {name}", act)


def aggregated(by: Bystander) -> None:
    """A frame to 1,280 subscriptions to groups, as many of a client as it may have."""
    clients: list[Client] = []
    requested = "projection=[/acct,COUNT(1) AS /count,SUM(/qty) AS /qty],grouping=[/acct]"
    for number in range(40 if by.sizes.records > FEW_RECORDS else 1):
        client = by.client()
        clients.append(client)
        for at in range(GROUPED):
            field = {"filter": f"/px > {number * GROUPED + at} AND /symbol = 'S1'"}
            frame_of_one = command(
                c="sow_and_subscribe", t="orders", opts=requested, cid=str(at), a="completed",
                **field,
            )  # fmt: skip
            client.socket.sendall(frame_of_one)
        tail = b""
        while b'"cid":"%d"' % (GROUPED - 1) not in tail:
            tail = tail[-20:] + client.socket.recv(READ_BYTES)
    by.publish(updates(TOLD_RECORDS, by.sizes.records, 3))
    for client in clients:
        client.close()


def wide(by: Bystander) -> None:
    """Deltas of one field and of all of a record of 50,000, which one client follows by deltas."""
    count = 50_000 if by.sizes.records > FEW_RECORDS else 50
    fields = {f"f{at}": at for at in range(count)}
    record = {"region": "wide", **fields}
    path = "/v1/topics/regions/records"
    by.request("POST", path, json.dumps(record).encode(), "application/json")
    client = by.client()
    client.socket.sendall(command(c="delta_subscribe", t="regions"))
    for at in range(TOLD_FRAMES):
        for some in ({"f7": -at}, {name: value + at for name, value in fields.items()}):
            delta = json.dumps({"region": "wide", **some}).encode()
            by.request("PATCH", path, delta, "application/json")
    client.close()
    by.request("DELETE", path, filter="/region = 'wide'")


def long_records(by: Bystander) -> None:
    """Frames of large records to a thousand followers, each with a select list of its own."""
    many = by.sizes.records > FEW_RECORDS
    pad, count = "x" * (LONG_BYTES if many else 100), TOLD_RECORDS if many else 5
    options = [f"select=[/region,/rate,/pad,/f{at}]" for at in range(1000 if many else 10)]
    frames = [command(c="delta_subscribe", t="regions", opts=one) for one in options]
    for at in range(TOLD_FRAMES):
        records = ({"region": f"long-{n}", "rate": at, "pad": pad} for n in range(count))
        bodies = [json.dumps(record).encode() for record in records]
        head = {"c": "publish", "t": "regions", "n": count, "cid": f"long {at}"}
        frames.append(frame(b"\n".join([json.dumps(head).encode(), *bodies])))
    by.follow(frames, b'"long %d"' % (TOLD_FRAMES - 1))
    by.request("DELETE", "/v1/topics/regions/records", filter="/region LIKE '^long'")


def unclosed(by: Bystander) -> None:
    """A filter with a list of 32,000 literals that is never closed, which is refused."""
    text = f"/qty IN ({','.join('1' * 32_000)}"
    by.follow([command(c="sow", t="orders", filter=text, cid="unclosed")], b'"unclosed"')


def follow_all(by: Bystander) -> None:
    """All records published anew while a conflated topic and a subscriber take them."""
    for start in range(0, by.sizes.records, REQUEST_RECORDS):
        by.publish(every_order(by.sizes.records, 11)[start : start + REQUEST_RECORDS])
    time.sleep(WINDOW_S)


def with_copy(by: Bystander, condition: str) -> None:
    condition = f"<Filter>{condition}</Filter>" if condition else ""
    by.reconfigure(CONFIG.format(more=COPY.format(name="2", filter=condition)))


def definitions(by: Bystander) -> None:
    """A thousand that come, stay as they are while the file is read again, and go."""
    count = 1000 if by.sizes.records > FEW_RECORDS else 10
    many = "".join(MANY.format(at=at) for at in range(count))
    for more in (many, many, ""):
        by.reconfigure(CONFIG.format(more=more))


def join(by: Bystander) -> None:
    """A record that an eighth of all orders meet, until its rows are told."""
    by.request("POST", "/v1/topics/regions/records", b'{"region":"A","rate":2}', "application/json")
    give_up = time.monotonic() + EXPIRY_S_MAX
    requested = {"filter": "/region = 'A' AND /worth > 0"}
    while by.request("GET", "/v1/topics/exposure/records", **requested) == b"[]":
        assert time.monotonic() < give_up, "what is joined is not told"
        time.sleep(LOOK_S)


def delete(by: Bystander) -> None:
    by.request("DELETE", "/v1/topics/orders/records", filter="/px >= 500")


OPERATIONS = (
    reading("query of all, JSON"),
    reading("query of all, NDJSON", NDJSON),
    reading("query of all with meta", meta="true"),
    reading("query of all with a select list", select="/symbol,/px"),
    reading("query of all, Arrow", ARROW),
    reading("query of all, Arrow with meta", ARROW, meta="true"),
    reading("first query on a field", filter="/qty > 998"),
    reading("half of all by a range", NDJSON, filter="/px > 500"),
    reading("a pattern over all", filter="/note LIKE 'nothing of it'"),
    reading("what no column answers", filter="/acct LIKE '^acct-7.*9$' OR /px > /qty"),
    reading("all by one field", NDJSON, order_by="/px"),
    reading("all by four fields", NDJSON, order_by="/ccy,/side DESC,/region,/px"),
    reading("top 10 of all", order_by="/ts DESC", top_n=10),
    reading("how it would be found", filter="/qty > 10", explain="true"),
    following("sow over WebSocket", c="sow"),
    following("sow with a select list", c="sow", opts="select=[/symbol,/px],timestamp"),
    following("sow_and_subscribe", c="sow_and_subscribe"),
    following("sow_and_delta_subscribe, oof", c="sow_and_delta_subscribe", opts="oof"),
    Operation("snapshot in parts, as Spark reads", snapshot),
    Operation("snapshot as of half the log", lambda by: snapshot(by, as_of=by.sizes.records // 2)),
    Operation("replay from the first bookmark", replay),
    Operation("the log as lines", lambda by: void(by.request("GET", "/v1/log", None, NDJSON))),
    Operation("the log in Arrow", lambda by: void(by.request("GET", "/v1/log", None, ARROW))),
    Operation("extent of the log", lambda by: void(by.request("GET", "/v1/log/extent"))),
    Operation("publish of 300,000 in a request", lambda by: by.publish(fresh(by, 3, 5))),
    Operation("deltas of 100,000 in a request", lambda by: by.publish(fresh(by, 10, 6), "PATCH")),
    Operation("publish of 100,000 in a frame", frame_of_many),
    Operation("publish of 20,000 frames", many_frames),
    Operation(
        "commit of 200,000 staged rows",
        lambda by: commit(by, "bench", by.sizes.records // 5),
        lambda by: stage(by, "bench", by.sizes.records // 5, 9),
    ),
    Operation("commit beside an index of distinct values", commit_distinct, with_distinct),
    Operation(
        "load of 1,000,000 rows in parts",
        load,
        lambda by: stage(by, "load", loaded(by), 100),
    ),
    Operation("5,000 subscriptions and their end", subscriptions),
    told("100 select lists", 100, c="delta_subscribe", opts="select=[/px,/qty,/f%d]"),
    told("1,000 select lists", 1000, c="delta_subscribe", opts="select=[/px,/qty,/f%d]"),
    told("10,000 filters that no index finds", 10_000, c="subscribe", filter="/px + %d < 0"),
    Operation("250 records to 1,280 aggregated subscriptions", aggregated),
    Operation("deltas of a record of 50,000 fields", wide),
    Operation("250 records of 64 kB to 1,000 select lists", long_records),
    Operation("a filter with a list that is not closed", unclosed),
    Operation("all records anew, conflated", follow_all),
    Operation("reload with a view", lambda by: by.reconfigure(CONFIG.format(more=VIEW))),
    Operation("reload with a join", lambda by: by.reconfigure(CONFIG.format(more=JOINED))),
    Operation("a change that 125,000 records meet in a join", join),
    Operation("reload without it", lambda by: by.reconfigure(CONFIG.format(more=""))),
    Operation("reload with another copy", lambda by: with_copy(by, "")),
    Operation("reload with another filter", lambda by: with_copy(by, "/px &gt; 500")),
    Operation("reload of 1,000 definitions", definitions),
    Operation("end of 200,000 lifetimes", expiry, expiring),
    Operation("delete of half by filter", delete),
)
"""In this order: what changes the records comes after what reads them."""


GUARDED = (
    reading("query of all by 1,000 Allows", NDJSON),
    reading("top 10 by 1,000 Allows, a filter beside them", filter="/qty > 10", top_n=10),
    following("sow_and_subscribe by 1,000 Allows", c="sow_and_subscribe"),
    told("20 followers by 1,000 Allows", 20, c="delta_subscribe", filter="/qty > %d"),
    Operation("reload of 1,000 Allows", lambda by: by.reconfigure(by.xml)),
)
"""The same of one whose roles have a thousand Allows."""


def guarded(place: Path) -> str:
    """A configuration in which a user may see what one of a thousand conditions lets through."""
    (place / "tokens").write_text(f"reader {sum_of(TOKEN)}\n")
    allows = "".join(
        f"<Allow><Topic>orders</Topic><Read/><Filter>/acct = 'acct-{at}' AND /px &gt; {at / 2}"
        "</Filter></Allow>"
        for at in range(ALLOWS)
    )
    return CONFIG.format(more="").replace(
        "</SOWConfig>",
        f"""<Security><Authentication><Tokens><File>{place}/tokens</File></Tokens></Authentication>
        <Role><Name>reader</Name><Member>user:reader</Member>{allows}
        <Allow><Topic>orders</Topic><Write/></Allow><Allow><Admin/></Allow></Role></Security>
        </SOWConfig>""",
    )


def void(_answer: bytes) -> None:
    """What was answered does not matter."""


def named(only: str) -> tuple[Operation, ...]:
    """The operations whose names begin like one of these, `;` between them; "": all of them."""
    wanted = tuple(begins.strip() for begins in only.split(";") if begins.strip()) or ("",)
    every = OPERATIONS + GUARDED
    found = tuple(one for one in every if one.name.startswith(wanted))
    if not found:
        sys.exit(f"no operation begins with {only!r}: {'; '.join(one.name for one in every)}")
    return found


def stalls(sizes: Sizes) -> Iterator[Figure]:
    """The longest wait beside each operation, or each of those that `STALLS_ONLY` names."""
    found: list[Figure] = []
    operations = named(os.environ.get(ONLY, ""))
    fewer = replace(sizes, records=min(sizes.records, GUARDED_RECORDS_MAX))
    with TemporaryDirectory(prefix="sow-bench-") as place:
        for xml, of, token, some in (
            (CONFIG.format(more=""), sizes, "", OPERATIONS),
            (guarded(Path(place)), fewer, TOKEN, GUARDED),
        ):
            chosen = [one for one in operations if one in some]
            for figure in served(xml, of, token, chosen) if chosen else ():
                found.append(figure)
                yield figure
    worst = max(found, key=lambda figure: figure.value)
    yield replace(worst, case=WORST, note=worst.case)


def served(xml: str, sizes: Sizes, token: str, operations: Sequence[Operation]) -> Iterator[Figure]:
    """The longest wait beside each of these operations of one server."""
    with ServerProcess(xml) as server:
        by = Bystander(server, sizes, xml, token)
        bodies = every_order(sizes.records)
        for start in range(0, len(bodies), REQUEST_RECORDS):
            by.publish(bodies[start : start + REQUEST_RECORDS])
        with Pinger(server.host, server.port, token) as pinger:
            for operation in operations:
                yield beside(operation, by, pinger)


def beside(operation: Operation, by: Bystander, pinger: Pinger) -> Figure:
    """The longest wait while an operation lasts, and as long while nothing is asked."""
    operation.before(by)
    idle_s = IDLE_S if by.sizes.records > FEW_RECORDS else 0.02
    time.sleep(idle_s)
    pinger.longest_ms()
    time.sleep(idle_s)
    idle_ms, _ = pinger.longest_ms()
    began = time.monotonic()
    noted = operation.act(by)
    took_s = time.monotonic() - began
    longest_ms, _ = pinger.longest_ms()
    return Figure(
        "longest wait beside it",
        operation.name,
        "ms",
        [longest_ms],
        [max(idle_ms, 0.01)],
        "nothing asked",
        note=f"took {took_s:.1f} s" + (f"; {noted}" if noted else ""),
    )
