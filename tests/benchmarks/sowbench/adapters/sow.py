"""SOW: one topic with a hash index, durable, as it is usually run; or with two edges, which have
the followers, while the publisher is at the server that they are chained to."""

import http.client
import os
import re
import signal
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import orjson

from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.sockets import PONG, Client, LineCounter, command, frame
from tests.benchmarks.sowbench import nexmark
from tests.benchmarks.sowbench.adapter import Cannot, Following, How, Pace, Setup, exchanged
from tests.benchmarks.sowbench.load import Load
from tests.benchmarks.sowbench.questions import TOP, Answer, Question
from tests.benchmarks.sowbench.row import OURS

HEAD = b'{"c":"publish","t":"%b","n":%d,"cid":"1","a":"persisted"}\n'
BOOKMARK = re.compile(rb'"bm":"([^"]+)"')
PING = b"\x89\x00"
EDGES = 2
TAIL_BYTES = 1000
"""More than a line takes, so a bookmark stands in the last of so many bytes."""
VIEWS = {
    "q1": """<UnderlyingTopic>bid</UnderlyingTopic><Projection><Field>/id</Field>
<Field>/auction</Field><Field>/bidder</Field><Field>/price * 0.908 AS /price</Field></Projection>
<Grouping><Field>/id</Field></Grouping>""",
    "q2": """<UnderlyingTopic>bid</UnderlyingTopic><Filter>/auction % 123 = 0</Filter>
<Projection><Field>/id</Field><Field>/auction</Field><Field>/price</Field></Projection>
<Grouping><Field>/id</Field></Grouping>""",
    "q3": """<UnderlyingTopic><Join type="inner">[q3a]./seller = [q3b]./id</Join></UnderlyingTopic>
<Projection><Field>[q3b]./name AS /name</Field><Field>[q3b]./city AS /city</Field>
<Field>[q3b]./state AS /state</Field><Field>[q3a]./id AS /id</Field></Projection>
<Grouping><Field>[q3a]./id</Field></Grouping>""",
    "q3a": """<UnderlyingTopic>auction</UnderlyingTopic><Filter>/category = 10</Filter>
<Projection><Field>/id</Field><Field>/seller</Field></Projection>
<Grouping><Field>/id</Field></Grouping>""",
    "q3b": """<UnderlyingTopic>person</UnderlyingTopic>
<Filter>/state IN ('OR', 'ID', 'CA')</Filter><Projection><Field>/id</Field><Field>/name</Field>
<Field>/city</Field><Field>/state</Field></Projection><Grouping><Field>/id</Field></Grouping>""",
    "q4": """<UnderlyingTopic>q4a</UnderlyingTopic><Projection><Field>/category</Field>
<Field>AVG(/final) AS /final</Field></Projection><Grouping><Field>/category</Field></Grouping>""",
    "q4a": """<UnderlyingTopic><Join type="inner">[auction]./id = [bid]./auction</Join>
</UnderlyingTopic><Projection><Field>[auction]./id AS /id</Field>
<Field>[auction]./category AS /category</Field>
<Field>MAX(IF([bid]./ts &gt;= [auction]./ts AND [bid]./ts &lt;= [auction]./expires,
[bid]./price, NULL)) AS /final</Field></Projection>
<Grouping><Field>[auction]./id</Field><Field>[auction]./category</Field></Grouping>""",
    "q18": """<UnderlyingTopic>bid</UnderlyingTopic><Projection><Field>/bidder</Field>
<Field>/auction</Field><Field>/id</Field><Field>/price</Field></Projection>
<Grouping><Field>/bidder</Field><Field>/auction</Field></Grouping>""",
    "q20": """<UnderlyingTopic><Join type="inner">[bid]./auction = [q20a]./id</Join>
</UnderlyingTopic><Projection><Field>[bid]./id AS /id</Field><Field>[bid]./price AS /price</Field>
<Field>[q20a]./id AS /auction</Field><Field>[q20a]./seller AS /seller</Field></Projection>
<Grouping><Field>[bid]./id</Field></Grouping>""",
    "q20a": """<UnderlyingTopic>auction</UnderlyingTopic><Filter>/category = 10</Filter>
<Projection><Field>/id</Field><Field>/seller</Field></Projection>
<Grouping><Field>/id</Field></Grouping>""",
}
"""Views by name; those that others are made of have a letter behind the query's number."""


class Adapter:
    """A server process, spoken to over WebSockets and HTTP."""

    VARIANTS = ("durable", "edges")
    ONLY: ClassVar = {"edges": ("W3", "W4", "W6")}
    """Workloads in which a variant takes part, where it is not all of them."""
    promise = "fsync before each acknowledgement and each update"

    def __init__(self, variant: str) -> None:
        self._edges = EDGES if variant == "edges" else 0
        self.name = f"{OURS} with two edges" if self._edges else OURS
        self.address = ""
        """That of the server, and of each edge."""
        self.beside: list[int] = []
        self._followed = 0
        self._nodes = ExitStack()
        self._server: ServerProcess | None = None
        self._http: http.client.HTTPConnection | None = None

    def start(self, folder: Path, setup: Setup) -> None:
        """A server whose data is in the folder."""
        known = [int(one.rpartition(":")[2] or 0) for one in self.address.split(",")]
        port, *ports = known if len(known) > 1 else [*known, *[0] * self._edges]
        xml, enter = configuration(setup), self._nodes.enter_context
        server = self._server = enter(ServerProcess(xml, folder / "data", port=port))
        self.pid, options = server.pid, ("--upstream", server.url)
        edges = [enter(ServerProcess(xml, port=one, options=options)) for one in ports]
        self.beside = [one.pid for one in edges]
        self.address = ",".join(f"{one.host}:{one.port}" for one in (server, *edges))

    def stop(self, kill: bool = False) -> None:
        """End it."""
        if self._http is not None:
            self._http.close()
            self._http = None
        server, self._server = self._server, None
        if server is None:
            return
        for pid in (server.pid, *self.beside) if kill else ():
            os.kill(pid, signal.SIGKILL)
        try:
            self._nodes.close()
        except subprocess.TimeoutExpired:
            raise AssertionError("the server did not stop") from None

    def _client(self, door: int = 0) -> Client:
        host, _, port = self.address.split(",")[door].partition(":")
        return Client(host, int(port))

    def publish(self, load: Load, pace: Pace) -> Generator[int]:
        """A frame for each batch."""
        topic, counter = load.topic.encode(), LineCounter()
        frames = [
            frame(HEAD % (topic, len(batch)) + b"\n".join([body for _, body in batch]))
            for batch in load.batches()
        ]
        connection = self._client().socket

        def acks(piece: bytes) -> int:
            counter.feed(piece)
            if counter.pings:
                counter.pings = 0
                connection.send(PONG)
            return counter.lines

        return exchanged(connection, frames, acks, pace)

    def follow(self, how: How) -> Following:
        """A subscription, or one for each filter; over one edge after the other."""
        self._followed += 1
        client = self._client(1 + self._followed % self._edges if self._edges else 0)
        topic = "orders-C" if how.conflated_ms else "orders"
        fields = {"c": "sow_and_subscribe" if how.snapshot else "subscribe", "t": topic}
        if how.after:
            fields["bm"] = how.after
        filters = [{"filter": f"/symbol = '{each}'"} for each in how.symbols] or [{}]
        for each in filters:
            if how.snapshot or how.after:
                # What it begins with comes right behind the ack, and nothing can be missed.
                client.socket.sendall(command(**fields, **each))
            else:
                client.ask(**fields, **each, cid="1")
        return Subscribed(client.socket)

    def query(self, question: Question | nexmark.Query) -> Answer:
        """Over HTTP, by a connection that is kept."""
        if isinstance(question, nexmark.Query) and question.name not in VIEWS:
            raise Cannot(f"no view has the {TOP} first of each group")
        start = time.perf_counter()
        body = self._get(path_of(question))
        taken_ms = (time.perf_counter() - start) * 1000
        return Answer(taken_ms, orjson.loads(body))

    def state(self) -> dict[int, bytes]:
        """A query without a filter."""
        lines = self._get(WAY % "orders", {"Accept": "application/x-ndjson"}).splitlines()
        return {orjson.loads(line)["id"]: line for line in lines}

    def _get(self, path: str, headers: Mapping[str, str] = {}) -> bytes:
        if self._http is None:
            self._http = http.client.HTTPConnection(self.address.partition(",")[0])
        self._http.request("GET", path, headers=headers)
        response = self._http.getresponse()
        body = response.read()
        assert response.status == 200, body[:500]
        return body


WAY = "/v1/topics/%s/records"


def path_of(question: Question | nexmark.Query) -> str:
    """A question as a query over HTTP."""
    if isinstance(question, nexmark.Query):
        return WAY % question.name
    if question.top:
        return f"{WAY % 'orders'}?order_by={quote('/px DESC')}&top_n={TOP}"
    terms = []
    if question.key is not None:
        terms.append(f"/id = {question.key}")
    if question.symbol is not None:
        terms.append(f"/symbol = '{question.symbol}'")
    if question.region is not None:
        terms.append(f"/region = '{question.region}'")
    if question.px is not None:
        terms.append(f"/px >= {question.px[0]} AND /px < {question.px[1]}")
    return f"{WAY % 'orders'}?filter={quote(' AND '.join(terms))}"


def configuration(setup: Setup) -> str:
    """The XML of what a workload uses."""
    parts = [_topic("orders", "<HashIndex><Key>/symbol</Key></HashIndex>")]
    if setup.conflated_ms:
        parts.append(
            "<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType><UnderlyingTopic>"
            f"orders</UnderlyingTopic><Interval>{setup.conflated_ms}ms</Interval></ConflatedTopic>"
        )
    if setup.view:
        if setup.view not in VIEWS:
            raise Cannot(f"no view has the {TOP} first of each group")
        parts += [_topic(name) for name in nexmark.TOPICS]
        names = [name for name in VIEWS if name.rstrip("ab") == setup.view]
        for name in sorted(names, reverse=True):
            about = f"<Name>{name}</Name><MessageType>json</MessageType>{VIEWS[name]}"
            parts.append(f"<View>{about}</View>")
    return f"<SOWConfig><Name>bench</Name><SOW>{''.join(parts)}</SOW></SOWConfig>"


def _topic(name: str, beside: str = "") -> str:
    about = f"<Name>{name}</Name><MessageType>json</MessageType><Key>/id</Key>{beside}"
    return f"<Topic>{about}</Topic>"


class Subscribed(Following):
    """A WebSocket; bodies stand in its lines as they were published. `place` is the bookmark of the
    last line that was read whole."""

    alive = PONG
    _rest = b""

    def read(self) -> bytes:
        """The lines that are here whole: a bookmark stands behind its body, so a line that is cut
        between the two will come again after `place`, and is not heard yet."""
        piece = self._rest + super().read()
        if b'{"c":"close"' in piece:
            raise ConnectionError("the server closed the connection")
        if piece.endswith(PING):
            self.socket.send(PONG)
        end = 0
        for found in BOOKMARK.finditer(piece, max(0, len(piece) - TAIL_BYTES)):
            self.place, end = found[1].decode(), found.end()
        self._rest = piece[end:]
        return piece[:end]
