"""`sow mcp`: a server of the Model Context Protocol on standard input and output.

An assistant starts this command and sends lines of JSON-RPC 2.0, each answered by a line. It acts
with the credentials of its user, as every command does, and changes nothing unless the user has
given --write. Requests run beside each other, a few at a time, so that a watch of a minute does not
hold up a query. Text is data: what a record says never becomes a command here.

The tools are in `sow.cli.mcp_tools`.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click
import orjson

from sow import __version__
from sow.cli.connecting import server_command
from sow.cli.mcp_tools import TOOLS, Tool
from sow.client import Client
from sow.errors import SowError, described, shown

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
