"""What a client does as tables (`tables.txt`), and how one is played.

A step of the client is done by an agent, which uses a client in its language: `python_agent.py`,
and `agent.mjs` for sow.js. What it returns is JSON, so that one table serves both. What others
do to the server, and what the network does to connections, is done here.
"""

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sow.server.net.websocket import WebSocketHandler
from tests.edge.serving import records

TABLES = Path(__file__).with_name("tables.txt")
TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>passing</Name><MessageType>json</MessageType><Key>/id</Key>
<Durability>transient</Durability></Topic>
<Topic><Name>/desk/1</Name><MessageType>json</MessageType><Key>/id</Key>
<KeyDomain>desk</KeyDomain></Topic>
<Topic><Name>/desk/2</Name><MessageType>json</MessageType><Key>/id</Key>
<KeyDomain>desk</KeyDomain></Topic>
<Topic><Name>prices</Name><MessageType>json</MessageType><Key>/id</Key><Series/></Topic>
<Topic><Name>blobs</Name><MessageType>binary</MessageType></Topic>
<Topic><Name>notes</Name><MessageType>string</MessageType><Key>/value</Key></Topic>
<Topic><Name>fixes</Name><MessageType>nvfix</MessageType><Key>/1</Key></Topic>
"""


class Agent(Protocol):
    """Who does the steps of the client."""

    def act(self, verb: str, words: list[Any]) -> Any:
        """What comes of one; ``{"refused": …}`` with the fields of an error."""
        ...


class Row(NamedTuple):
    """One step: `words` are texts and JSON values; `outcome` None: nothing is said of it."""

    who: str
    verb: str
    words: list[Any]
    outcome: str | None
    text: str


def parse(text: str) -> dict[str, list[Row]]:
    """The tables of a text by their titles."""
    _, *parts = re.split(r"^== ", text, flags=re.M)
    found = {}
    for part in parts:
        title, _, rows = part.partition("\n")
        found[title] = [row(line) for line in rows.splitlines() if line.strip()]
    return found


def row(line: str) -> Row:
    step, _, outcome = line.partition(" => ")
    who, verb, *rest = step.split(" ", 2)
    return Row(who, verb, list(words(rest[0] if rest else "")), outcome or None, line)


def words(text: str):
    """Names up to the first JSON value, then JSON values; a filter is one text."""
    decoder = json.JSONDecoder()
    while text := text.strip():
        if text[0] in '{["-' or text[0].isdigit():
            try:
                value, end = decoder.raw_decode(text)
            except ValueError:
                yield text
                return
            yield value
        else:
            end = len(text.split(" ", 1)[0])
            yield text[:end]
        text = text[end:]


class World:
    """What others do to a server: `server` of tests/edge/serving.py."""

    def __init__(self, server) -> None:
        self._server = server

    def act(self, verb: str, words: list[Any]) -> None:
        getattr(self, verb)(*words)

    def publish(self, topic, messages):
        messages = messages if isinstance(messages, list) else [messages]
        answer = self._server.publish(topic, *messages)
        assert answer.status == 200, answer.body

    def delta(self, topic, message):
        path = records(topic)
        body = json.dumps(message).encode()
        headers = {"Content-Type": "application/json"}
        answer = self._server.request("PATCH", path, data=body, headers=headers)
        assert answer.status == 200, answer.body

    def edit(self, topic, key, place, message):
        """Replace one of the events of a record, counted from the oldest."""
        path = f"{records(topic)}/key={key}/events"
        seq = self._server.get(path).json[place]["seq"]
        body = json.dumps(message).encode()
        headers = {"Content-Type": "application/json"}
        answer = self._server.request("PUT", f"{path}/{seq}", data=body, headers=headers)
        assert answer.status == 200, answer.body

    def delete(self, topic, *condition):
        path = records(topic, filter=" ".join(map(str, condition)))
        answer = self._server.request("DELETE", path)
        assert answer.status == 200, answer.body

    def cut(self):
        """Every connection of a client breaks, as in a network."""

        self._server.call(self._abort)

    def _abort(self):
        for client in list(self._server.server._handlers[WebSocketHandler]._clients):
            if client._request.transport is not None:
                client._request.transport.abort()

    def forget(self):
        """The time to come back is over for all who follow something."""

        async def forget():
            executor = self._server.server.executor

            def following():
                # Anew each time: who has said goodbye meanwhile is there no more.
                return [one for one in executor.sessions if executor.subscriptions.of(one)]

            while any(session.connected for session in following()):
                # Somebody was already on his way back when connections were cut.
                self._abort()
                await asyncio.sleep(0)
            for session in following():
                executor.sessions.close(session, "expired")

        self._server.wait(forget())

    def restart(self):
        """The server stops, and starts where it was."""
        server = self._server
        server.stop()
        server.start()

    def replace(self):
        """The server starts on an empty data directory, and publishers come back to it first: its
        log is as long as the one before was."""
        server = self._server
        newest = int(server.get("/v1/log/extent").json["newest"])
        server.stop()
        shutil.rmtree(server._directory)
        server.start()
        self.publish("/desk/1", [{"id": 0}] * newest)


def play(rows: list[Row], world: World, agent: Agent) -> None:
    """Play a table; raises AssertionError at the first row with another result."""
    names: dict[str, Any] = {}
    for row in rows:
        if row.who == "server":
            world.act(row.verb, row.words)
            continue
        words = [filled(word, names) for word in row.words]
        expected = None if row.outcome is None else outcome(row.outcome)
        if row.verb == "until":
            # The agent waits for it, however many changes it takes.
            words.append(expected)
        came = agent.act(row.verb, words)
        if row.verb in ("bookmark", "reached"):
            names[f"${row.words[0]}"] = came
        elif expected is not None:
            assert fits(came, expected), f"{row.text}\n  came: {json.dumps(came)}"
        else:
            assert not (isinstance(came, dict) and "refused" in came), f"{row.text}\n  {came}"


def outcome(text: str) -> Any:
    if text.startswith("refused "):
        return {"refused": json.loads(text.removeprefix("refused "))}
    return text if text in ("done", "end") else json.loads(text)


def filled(word: Any, names: dict[str, Any]) -> Any:
    if isinstance(word, dict):
        return {name: filled(value, names) for name, value in word.items()}
    return names.get(word, word) if isinstance(word, str) else word


WHOLE = ("record", "old", "new")


def fits(came: Any, expected: Any) -> bool:
    """Whether what came is what was expected: of an object the fields that are named, of these
    records as a whole."""
    if not isinstance(expected, dict):
        return same(came, expected)
    return isinstance(came, dict) and all(
        name in came and (same(came[name], value) if name in WHOLE else fits(came[name], value))
        for name, value in expected.items()
    )


def same(came: Any, expected: Any) -> bool:
    """Equal as JSON, but for the order of fields: true is not 1."""
    return json.dumps(came, sort_keys=True) == json.dumps(expected, sort_keys=True)
