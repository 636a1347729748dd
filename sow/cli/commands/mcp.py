"""`sow mcp`: a server of the Model Context Protocol on standard input and output, and its tools.

An assistant starts this command and sends lines of JSON-RPC 2.0, each answered by a line. It acts
with the credentials of its user, as every command does, and changes nothing unless the user has
given --write. Requests run beside each other, a few at a time, so that a watch of a minute does not
hold up a query. Text is data: what a record says never becomes a command here.

A tool is a coroutine function from a client and checked arguments to the lines of its answer. An
answer is read by a model, whose memory is small and dear: it has at most `ANSWER_BYTES_MAX`, and
says what it lacks. Nothing is gathered beyond that: rows are dropped as they arrive.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import click
import orjson

from sow import __version__
from sow.cli.commands.query import ENCODER, RECORD_LINES
from sow.cli.connecting import server_command
from sow.client import Client
from sow.errors import ClientError, SowError, described, shown

ANSWER_BYTES_MAX = 1024**2
"""Of an answer, as JSON: far more than a model reads with care."""
ENVELOPE_BYTES = 1_024
"""Room for what stands around the text of an answer, and for its last line."""
SECONDS_MAX = 60
"""A model that waits longer has lost the thread, and so has its user."""
SECONDS_DEFAULT = 5
"""What a chat has patience for; most topics move in less."""


class AnswerText:
    """The lines of an answer, up to its limit."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0
        """The lines there are, whether they are in it or not."""
        self._left = ANSWER_BYTES_MAX - ENVELOPE_BYTES
        self._is_cut = False

    def add(self, line: bytes | str) -> None:
        """A line of the answer, which counts."""
        self.count += 1
        self._is_cut = self._is_cut or not self._put(line)

    def remark(self, line: str) -> None:
        """A line about the answer."""
        self._put(line)

    def _put(self, line: bytes | str) -> bool:
        if self._is_cut:
            return False
        text = line if isinstance(line, str) else line.decode(errors="replace")
        size = len(orjson.dumps(text))  # its quotes are as long as a line break
        if size > self._left:
            return False
        self._left -= size
        self.lines.append(text)
        return True

    def text(self, remarks: int = 0, total: int | None = None) -> str:
        """The answer, of `total` lines if more than those that were added, with `remarks`."""
        total = self.count if total is None else max(total, self.count)
        has = len(self.lines) - remarks
        cut = [f"cut: {has} of {total}"] if self._is_cut else []
        return "\n".join([*self.lines, *cut])


class Tool(NamedTuple):
    """A tool: what it is for, its arguments as JSON Schema, and what runs."""

    does: str
    arguments: Mapping[str, Mapping[str, object]]
    required: tuple[str, ...]
    run: Callable[..., Awaitable[str]]
    writes: bool = False

    def described(self, name: str) -> dict[str, object]:
        """Its entry in the list of tools."""
        schema = {
            "type": "object",
            "properties": self.arguments,
            "required": self.required,
            "additionalProperties": False,
        }
        hints = {"readOnlyHint": not self.writes, "destructiveHint": name == "delete"}
        return {"name": name, "description": self.does, "inputSchema": schema, "annotations": hints}

    def checked(self, given: object) -> dict[str, Any]:
        """The arguments; raises ClientError for what is wrong with them."""
        if not isinstance(given, dict):
            raise ClientError("arguments are an object of names and values")
        for name in given:
            if name not in self.arguments:
                known = ", ".join(self.arguments) or "none"
                raise ClientError(f"there is no argument {shown(str(name))}; there are: {known}")
        for name in self.required:
            if name not in given:
                raise ClientError(f"the argument {name} is missing")
        for name, value in given.items():
            kind = str(self.arguments[name]["type"])
            if not isinstance(value, KINDS[kind]) or isinstance(value, bool):
                raise ClientError(f"{name} is {shown(str(value))}, and has to be of type {kind}")
        return given


KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
}


async def topics(client: Client) -> str:
    """The topics of the server."""
    answer = AnswerText()
    for one in await client.topics():
        fields = {name: one.get(name) for name in ("name", "kind", "records", "message_type")}
        answer.add(orjson.dumps({**fields, "keys": one.get("keys", [])}))
    return answer.text() or "the server has no topics that you may see"


async def query(client: Client, topic: str, **question: Any) -> str:
    """The records that match, as lines."""
    answer = AnswerText()
    async with client.rows(topic, **question) as rows:
        for sentence in rows.advice:
            answer.remark(sentence)
        async for row in rows:
            answer.add(row)
        matches = rows.matches
    return answer.text(len(rows.advice)) or f"no records; {matches} match"


async def explain(client: Client, topic: str, **question: Any) -> str:
    """The plan of a query."""
    answer = AnswerText()
    answer.add(orjson.dumps(await client.explain(topic, **question)))
    return answer.text()


async def watch(
    client: Client, topic: str, seconds: float = SECONDS_DEFAULT, filter: str | None = None
) -> str:
    """The records that match, and what changes of them within some seconds."""
    if not 0 < seconds <= SECONDS_MAX:
        raise ClientError(f"seconds is {seconds}; write a number up to {SECONDS_MAX}")
    answer = AnswerText()
    subscription = client.sow_and_subscribe(topic, filter=filter, oof=True)
    try:
        await subscription.open()
        for sentence in subscription.advice:
            answer.remark(sentence)
        async with asyncio.timeout(seconds):
            while messages := await subscription.batch():
                for message in messages:
                    if message.c in RECORD_LINES:
                        answer.add(ENCODER.encode(message))
    except TimeoutError:
        pass
    finally:
        await subscription.close()
    return answer.text(len(subscription.advice)) or f"no records, and no changes in {seconds:g} s"


async def publish(client: Client, topic: str, messages: list[Any]) -> str:
    """Publish messages."""
    if not messages:
        raise ClientError("messages is empty; give one at least")
    bookmark = await client.publish(topic, messages)
    return f"published {len(messages)}, durable at bookmark {bookmark}"


async def delete(
    client: Client, topic: str, filter: str | None = None, keys: list[str] | None = None
) -> str:
    """Delete records."""
    return f"deleted {await client.delete(topic, filter=filter, keys=keys)}"


def _text(does: str) -> Mapping[str, object]:
    return {"type": "string", "description": does}


TOPIC_NAME = {"topic": _text("The name of the topic, as `topics` lists it.")}
FILTER = {
    "filter": _text("An expression over fields, such as /symbol = 'IBM' AND /qty > 10; 1=1: all.")
}
QUESTION = {
    **TOPIC_NAME,
    **FILTER,
    "order_by": _text("Such as /px DESC, /id."),
    "top_n": {"type": "integer", "description": "At most so many records.", "minimum": 0},
    "skip_n": {"type": "integer", "description": "Leave out the first ones.", "minimum": 0},
    "select": _text("Only these fields: /id,/px, or -/notes for all but one."),
    "projection": _text("Rows of groups: /desk, SUM(/qty) AS /qty."),
    "grouping": _text("With projection, the fields of a group: /desk."),
    "as_of": _text("The state at a bookmark or a time such as 2026-11-21T14:32:05Z."),
}
SECONDS = {
    "type": "number",
    "description": f"How long, {SECONDS_DEFAULT} if not given.",
    "exclusiveMinimum": 0,
    "maximum": SECONDS_MAX,
}
MESSAGES = {"type": "array", "description": "The messages, as JSON.", "minItems": 1}
KEYS = {"type": "array", "items": {"type": "string"}, "description": "SowKeys of records."}
CUT = " A long answer ends with `cut: n of m`: ask for less."

TOOLS = {
    "topics": Tool(
        "List topics: name, kind, records, message type, key fields." + CUT, {}, (), topics
    ),
    "query": Tool(
        "Current records of a topic, or those of a moment, one JSON document a line." + CUT,
        QUESTION,
        ("topic",),
        query,
    ),
    "explain": Tool(
        "How the server answers a query: the index of each term, rows touched, advice.",
        QUESTION,
        ("topic",),
        explain,
    ),
    "watch": Tool(
        "Records that match, then their changes for some seconds, a JSON line each: c is sow (was "
        "there), p (changed) or oof (has left), k the key, d the record." + CUT,
        {**TOPIC_NAME, **FILTER, "seconds": SECONDS},
        ("topic",),
        watch,
    ),
    "publish": Tool(
        "Publish messages to a topic; returns when they are durable.",
        {**TOPIC_NAME, "messages": MESSAGES},
        ("topic", "messages"),
        publish,
        writes=True,
    ),
    "delete": Tool(
        "Delete records of a topic, by filter or by SowKeys; returns when that is durable.",
        {**TOPIC_NAME, **FILTER, "keys": KEYS},
        ("topic",),
        delete,
        writes=True,
    ),
}
"""What there is; tools that write only with --write."""


PROTOCOLS = ("2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions of the protocol that are alike in what is used here, the newest first."""
LINE_BYTES_MAX = 4 * 1024**2
"""Of a request: a publish of some thousand messages."""
RUNNING_MAX = 8
"""Calls at a time; others wait."""
ID_CHARS_MAX = 200
"""Of a request's id, which its answer repeats."""
PARSE_ERROR, INVALID_REQUEST, NO_METHOD = -32700, -32600, -32601
INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603
"""The codes of JSON-RPC."""
Line = dict[str, Any]


@server_command("sow mcp --url http://127.0.0.1:8080", "sow mcp --write")
@click.option("--write", is_flag=True, help="Offer the tools publish and delete, too.")
async def mcp(client: Client, write: bool) -> None:
    """Serve a model: tools to list, query, explain and watch topics, by the Model Context Protocol.

    An assistant starts it, and sends lines of JSON-RPC to standard input. It ends with its input.
    Give credentials by the environment or a context: nobody can answer a prompt.
    """
    offered = {name: tool for name, tool in TOOLS.items() if write or not tool.writes}
    await Conversation(client, offered, _write).run(_read)


async def _read() -> bytes:
    """The next line; empty at the end. A line that is too long comes without its end."""
    found: bytes = await asyncio.to_thread(sys.stdin.buffer.readline, LINE_BYTES_MAX + 1)
    return found


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


class RpcError(Exception):
    """A request that is answered by an error of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Conversation:
    """One client of the protocol: `tools` are offered to it, `write` takes each line for it."""

    def __init__(
        self, client: Client, tools: Mapping[str, Tool], write: Callable[[bytes], None]
    ) -> None:
        self._client = client
        self._tools = tools
        self._write = write
        self._room = asyncio.Semaphore(RUNNING_MAX)
        self._running: dict[str | int | float, asyncio.Task[None]] = {}

    async def run(self, read: Callable[[], Any]) -> None:
        """Answer lines until there are no more, and all that have come before the end."""
        is_rest = False
        while line := await read():
            was_rest, is_rest = is_rest, not line.endswith(b"\n") and len(line) > LINE_BYTES_MAX
            if is_rest and not was_rest:
                self._fail(None, PARSE_ERROR, f"a line has more than {LINE_BYTES_MAX} bytes")
            elif not was_rest and line.strip():
                await self.take(line)
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def take(self, line: bytes) -> None:
        """Begin with one line."""
        try:
            request = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            self._fail(None, PARSE_ERROR, f"a line is not JSON: {error}")
            return
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            self._fail(None, INVALID_REQUEST, "a line is not a request: it has no method")
            return
        if "id" not in request:
            self._notified(request)
            return
        named = request["id"]
        if not isinstance(named, str | int | float) or len(str(named)) > ID_CHARS_MAX:
            self._fail(None, INVALID_REQUEST, "an id is a number or a short text")
            return
        task = asyncio.create_task(self._answer(named, request))
        self._running[named] = task
        await asyncio.sleep(0)

    def _notified(self, request: Line) -> None:
        """What wants no answer: a call may be cancelled."""
        params = request.get("params")
        if request["method"] == "notifications/cancelled" and isinstance(params, dict):
            named = params.get("requestId")
            task = self._running.get(named) if isinstance(named, str | int | float) else None
            if task is not None:
                task.cancel()

    async def _answer(self, named: str | int | float, request: Line) -> None:
        try:
            result = await self._result(request["method"], request.get("params") or {})
            self._send({"jsonrpc": "2.0", "id": named, "result": result})
        except RpcError as refused:
            self._fail(named, refused.code, str(refused))
        except Exception as error:
            # A bug; its client must not wait for ever.
            self._fail(named, INTERNAL_ERROR, described(error))
        finally:
            self._running.pop(named, None)

    async def _result(self, method: str, params: object) -> object:
        if not isinstance(params, dict):
            raise RpcError(INVALID_PARAMS, "params is not an object")
        if method == "initialize":
            wanted = params.get("protocolVersion")
            return {
                "protocolVersion": wanted if wanted in PROTOCOLS else PROTOCOLS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "sow", "version": __version__},
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": [tool.described(name) for name, tool in self._tools.items()]}
        if method == "tools/call":
            return await self._called(params)
        raise RpcError(NO_METHOD, f"there is no method {shown(method)}")

    async def _called(self, params: Line) -> object:
        name = str(params.get("name"))
        tool = self._tools.get(name)
        if tool is None:
            more = "; start sow mcp with --write for it" if name in TOOLS else ""
            raise RpcError(INVALID_PARAMS, f"there is no tool {shown(name)}{more}")
        try:
            arguments = tool.checked(params.get("arguments") or {})
            async with self._room:
                text = await tool.run(self._client, **arguments)
        except SowError as error:
            return {"content": [{"type": "text", "text": error.detail}], "isError": True}
        return {"content": [{"type": "text", "text": text}], "isError": False}

    def _fail(self, named: str | int | float | None, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        self._send({"jsonrpc": "2.0", "id": named, "error": error})

    def _send(self, line: Line) -> None:
        self._write(orjson.dumps(line))
