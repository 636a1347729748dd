"""The same for everybody, without authentication: JavaScript client, console and `/openapi.json`.

Files are read once, when the server starts, so that all of them are of one version; no other name
is looked up on the disk. A browser or a proxy revalidates its copy with each request (`ETag`), and
gets a 304. The headers restrict the console to its own origin: all its data comes from requests
with the permissions of its user.

`/openapi.json` is the HTTP API as OpenAPI 3.1, for client generators. It is generated from the
routes and their operations (`sow.server.http.route`), whose types become the schemas. The commands
of a WebSocket, which OpenAPI cannot describe, are listed as `x-commands` and `x-options`.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import orjson
from aiohttp import web

from sow import __version__
from sow.core.media_types import (
    ARROW,
    ARROW_FILE,
    BSON,
    BYTES,
    FRAMES,
    JSON,
    MSGPACK,
    PARQUET,
    PLAIN_TEXT,
    PROBLEM,
)
from sow.errors import UnknownRecord, shown
from sow.expressions import described_functions
from sow.protocol.commands import COMMANDS, OPTIONS, Option
from sow.server.api.response_schemas import FunctionDescribed, Problem
from sow.server.http.negotiation import FORMAT_ENDING, FORMAT_ENDINGS, FORMAT_NAMES, is_known
from sow.server.http.request_bodies import IDEMPOTENCY_KEY
from sow.server.http.responses import json_response, json_text
from sow.server.http.route import READ_METHODS, WEBSOCKET, Route, operation, route

CONSOLE_FOLDER = Path(__file__).parents[1] / "console"
SHIPPED_TYPES: Mapping[str, str] = {
    ".js": "text/javascript",
    ".ts": "application/typescript",
    ".html": "text/html",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".LICENSE": PLAIN_TEXT,
}
SHIPPED_FORMATS = tuple(sorted({*SHIPPED_TYPES.values()}))
HEADERS: Mapping[str, str] = {
    # Cached, but revalidated: an upgrade of the server is seen with the next request.
    "Cache-Control": "no-cache",
    # A file opened by itself runs nothing, and its content type is not guessed.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class ShippedFile:
    """One file, by its path below `folder`; `headers` are sent with it."""

    def __init__(
        self, name: str, folder: Path = CONSOLE_FOLDER, headers: Mapping[str, str] = HEADERS
    ) -> None:
        path = folder / name
        self._headers = headers
        self.body = path.read_bytes()
        self.etag = f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'
        self._type = SHIPPED_TYPES[path.suffix]

    async def handle(self, request: web.Request) -> web.Response:
        """The file, or 304 if the client has it."""
        headers = {**self._headers, "ETag": self.etag}
        if is_known(request, self.etag):
            return web.Response(status=304, headers=headers)
        return web.Response(
            body=self.body, content_type=self._type, charset="utf-8", headers=headers
        )


INDEX = "index.html"
PAGE_HEADERS = {
    **HEADERS,
    # A proxy's path prefix needs no entry here: all requests of the page are relative.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Pages:
    """The files below `folder`, by default the console's, and the JavaScript client."""

    def __init__(self, folder: Path = CONSOLE_FOLDER) -> None:
        found = [
            path for path in folder.rglob("*") if path.is_file() and path.suffix in SHIPPED_TYPES
        ]
        names = [path.relative_to(folder).as_posix() for path in found]
        self._files = {name: ShippedFile(name, folder, PAGE_HEADERS) for name in names}
        self._client, self._types = ShippedFile("sow.js"), ShippedFile("sow.d.ts")

    def names(self) -> list[str]:
        """The paths of all files, below the folder."""
        return sorted(self._files)

    @route("GET", "/", "nothing", "The console")
    @operation("open_console", answers=("text/html",), tagged=True)
    async def index(self, request: web.Request) -> web.Response:
        """`GET /`: the console's page."""
        return await self._answer(request, INDEX)

    @route("GET", "/console/{file}", "nothing", "A file of the console")
    @operation("read_console_file", answers=SHIPPED_FORMATS, tagged=True)
    @route("GET", "/console/{folder}/{file}", "nothing", "A file of the console")
    @operation("read_console_page", answers=SHIPPED_FORMATS, tagged=True)
    async def file(self, request: web.Request) -> web.Response:
        """`GET /console/{file}` and `GET /console/{folder}/{file}`; raises UnknownRecord."""
        folder, name = request.match_info.get("folder"), request.match_info["file"]
        return await self._answer(request, f"{folder}/{name}" if folder else name)

    @route("GET", "/sow.js", "nothing", "The JavaScript client")
    @operation("read_javascript_client", answers=("text/javascript",), tagged=True)
    async def client(self, request: web.Request) -> web.Response:
        """`GET /sow.js`."""
        return await self._client.handle(request)

    @route("GET", "/sow.d.ts", "nothing", "Its types")
    @operation("read_javascript_types", answers=("application/typescript",), tagged=True)
    async def types(self, request: web.Request) -> web.Response:
        """`GET /sow.d.ts`."""
        return await self._types.handle(request)

    async def _answer(self, request: web.Request, name: str) -> web.Response:
        found = self._files.get(name)
        if found is None:
            raise UnknownRecord(f"the console has no file {shown(name)}")
        return await found.handle(request)


Described = dict[str, Any]

TEMPLATE = "#/components/schemas/{name}"
PARAMETERS: Mapping[str, Described] = {
    **{key: {"type": "boolean"} for key in ("meta", "explain", "snapshot", "delta", "unnamed")},
    **{key: {"type": "boolean"} for key in ("closed", "expected", "allow_loss")},
    **{key: {"type": "boolean"} for key in ("names", "members", "/metrics topics")},
    **{key: {"type": "integer", "minimum": 0} for key in ("parts", "part", "chunk")},
    "limit": {"type": "integer", "minimum": 1},
    **{key: {"type": "number", "minimum": 0} for key in ("wait", "expiration")},
    "ack": {"type": "string", "enum": ["persisted", "processed"]},
    "format": {"type": "string", "enum": [*FORMAT_NAMES]},
    FORMAT_ENDING: {"type": "string", "enum": [*FORMAT_ENDINGS]},
    "rejects": {"type": "string", "enum": ["fail", "skip"]},
}
"""Schemas of parameters that are neither strings nor options of commands; a key with a path applies
to that path only."""
SCHEMES: Described = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
}
BINARY = (ARROW, ARROW_FILE, PARQUET, FRAMES, BYTES, BSON, MSGPACK)
PROBLEMS = {
    400: "the request is invalid",
    401: "credentials are missing or invalid",
    403: "the user may not do that, or the request comes from a page of another site",
    404: "it does not exist, or the user may not see it",
    406: "no requested format or encoding is available",
    408: "the body did not arrive in time",
    409: "it conflicts with the current state: of a batch, a reader, a publisher or a schema",
    410: "the remaining pages are not available any more",
    412: "the record or answer is not in the state that the condition requires",
    413: "it is too large",
    415: "the format of the body is not supported",
    416: "Range begins after the end of the answer",
    417: "the expectation in Expect is not supported",
    421: "Host is not a name of this server",
    429: "too many failed logons",
    500: "the server failed",
    503: "there is no room for it at the moment, or the server is not ready",
    504: "the bookmark in min_bookmark is not reached in time",
    507: "there is no room to store it",
}
POSITIONS = {"as_of", "bookmark", "from", "to", "min_bookmark"}
"""Parameters that may name another log."""
ALWAYS = (400, 403, 417, 421, 500, 503)
"""Statuses with which any request may be refused."""
UNCHANGED: Described = {"description": "the answer still has the tag in If-None-Match"}
LICENSE: Described = {"name": "Apache 2.0", "identifier": "Apache-2.0"}
PACKED = "zstd or gzip, if Accept-Encoding allows it and the answer is long"
PART = "the part that Range requests"
TAGGED = "the tag of the answer, for If-None-Match; not sent if the answer is very long"
CONDITIONS = (
    ("If-Match", "apply this only in one of these states of the record; *: if it exists"),
    ("If-None-Match", "apply this only in none of these states; *: if it does not exist"),
)
NUMBERS = ((IDEMPOTENCY_KEY, "CLIENT/SEQ: do this once, as messages of a publisher from SEQ on"),)


class DescriptionHandler:
    """`/openapi.json` and `/v1/functions`; `table` gives all routes."""

    def __init__(self, table: Callable[[], Iterable[Route]]) -> None:
        self._table = table

    @route("GET", "/v1/functions", "logon", "The functions of filters and fields")
    @operation("list_functions", list[FunctionDescribed])
    async def functions(self, _request: web.Request) -> web.Response:
        """`GET /v1/functions`."""
        return json_response(described_functions())

    @route("GET", "/openapi.json", "nothing", "This list, as OpenAPI")
    @operation("read_openapi", dict[str, Any])
    async def openapi(self, _request: web.Request) -> web.Response:
        """`GET /openapi.json`."""
        return web.Response(body=self._described, content_type=JSON)

    @cached_property
    def _described(self) -> bytes:
        # Made once: it takes some milliseconds, and any client may request it.
        return json_text(description(self._table()))


def description(table: Iterable[Route]) -> Described:
    """The OpenAPI document of the routes, with the commands of the WebSocket."""
    table = list(table)
    operations = [one.operation for one in table]
    types = [Problem, *(one for each in operations for one in (each.answer, each.body))]
    schemas, components = msgspec.json.schema_components(types, ref_template=TEMPLATE)
    named = {repr(one): schema for one, schema in zip(types, schemas, strict=True)}
    # Generators require a schema of the elements, also where they may be anything.
    for schema in named.values():
        for one in (schema, *schema.get("anyOf", ())):
            if one.get("type") == "array":
                one.setdefault("items", {})
    paths: dict[str, Described] = {}
    for one in table:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, named)
    return {
        "openapi": "3.1.0",
        "info": {"title": "SOW", "version": __version__, "license": LICENSE},
        "servers": [{"url": "/"}],
        "paths": paths,
        # Written and read once: a default may be a tuple, which is no array to validators.
        "components": {
            "schemas": orjson.loads(orjson.dumps(components)),
            "securitySchemes": SCHEMES,
        },
    }


def _operation(route: Route, named: Mapping[str, Described]) -> Described:
    names = re.findall(r"{(\w+)}", route.path)
    operation: Described = {
        "operationId": route.operation.id or route.path,
        "summary": route.summary,
        "parameters": [
            *(_parameter(name, "path", route) for name in names),
            *(_parameter(name, "query", route) for name in route.taken),
            *(_headers(CONDITIONS) if route.path.endswith("{key}") else ()),
            *(_headers(NUMBERS) if route.operation.numbered else ()),
        ],
        "responses": _responses(route, named),
    }
    if route.operation.takes:
        operation["requestBody"] = {
            "required": route.operation.needs_body,
            "content": _content(route.operation.takes, route.operation.body, named),
        }
    # A server without authentication requires no credentials.
    operation["security"] = [*({name: []} for name in SCHEMES), {}] if _checks(route) else []
    if route.path == WEBSOCKET:
        operation |= {"x-commands": _commands(), "x-options": _options()}
    return operation


def _responses(route: Route, named: Mapping[str, Described]) -> Described:
    """Answers and problems by status; a status may have both."""
    responses = _answers(route, named)
    for status in _problems(route):
        others = responses.get(str(status), {}).get("content", {})
        responses[str(status)] = {
            "description": PROBLEMS[status],
            "content": {**others, PROBLEM: {"schema": named[repr(Problem)]}},
        }
    return responses


def _answers(route: Route, named: Mapping[str, Described]) -> Described:
    if route.path == WEBSOCKET:
        return {"101": {"description": "a WebSocket"}}
    content = _content(route.operation.answers, route.operation.answer, named)
    done: Described = {"description": "done"} | ({"content": content} if content else {})
    if route.method == "GET" and content:
        done["headers"] = {
            "Content-Encoding": {"description": PACKED, "schema": {"type": "string"}}
        }
    if route.operation.tagged:
        done["headers"]["ETag"] = {"description": TAGGED, "schema": {"type": "string"}}
    return (
        {"200": done}
        | {str(status): done for status in route.operation.also}
        | ({"206": done | {"description": PART}} if _has_ranges(route) else {})
        | ({"304": UNCHANGED} if route.operation.tagged else {})
    )


def _has_ranges(route: Route) -> bool:
    """Whether Range is supported: for answers that are made whole for each request."""
    return route.operation.tagged and route.demand != "nothing"


def _checks(route: Route) -> bool:
    """Whether credentials are checked."""
    return route.demand != "nothing" or route.path == WEBSOCKET


def _content(kinds: Iterable[str], of: object, named: Mapping[str, Described]) -> Described:
    """The media types of a body, with its schema for JSON."""
    other = {kind: {"type": "string", "format": "binary"} for kind in BINARY}
    text = {"type": "string"}
    return {
        kind: {"schema": named[repr(of)] if kind == JSON else other.get(kind, text)}
        for kind in kinds
    }


def _problems(route: Route) -> list[int]:
    """The statuses with which a request may be refused."""
    parameters = {*route.taken}
    found = {*ALWAYS, *route.operation.refusals}
    found |= {401, 429} if _checks(route) else set()
    found |= {404} if "{" in route.path or parameters & {"topic", "topics"} else set()
    found |= {406} if route.method in READ_METHODS else set()
    found |= {413} if parameters & {"filter", "keys"} else set()
    found |= {408, 413, 415, 507} if route.operation.takes else set()
    found |= {409} if parameters & POSITIONS or route.operation.numbered else set()
    found |= {504} if route.has_moment else set()
    found |= {410} if "cursor" in parameters else set()
    has_conditions = route.path.endswith("/{key}") or (route.operation.tagged and _checks(route))
    found |= {412} if has_conditions else set()
    found |= {416} if _has_ranges(route) else set()
    return sorted(found)


def _parameter(name: str, where: str, route: Route) -> Described:
    """A parameter; an option of commands is described as such."""
    required = where == "path" or name in route.operation.requires
    described = {"name": name, "in": where, "required": required}
    option = OPTIONS.get(name)
    if where == "path" or option is None or not option.requests:
        text = {"type": "string"}
        kind = PARAMETERS.get(f"{route.path} {name}", PARAMETERS.get(name, text))
        return described | {"schema": kind if where == "query" or name == FORMAT_ENDING else text}
    return described | {"description": option.does, "schema": _schema(option)}


def _headers(named: Iterable[tuple[str, str]]) -> list[Described]:
    text = {"type": "string"}
    return [
        {"name": name, "in": "header", "required": False, "description": does, "schema": text}
        for name, does in named
    ]


def _schema(option: Option) -> Described:
    if option.choices:
        return {"type": "string", "enum": list(option.choices)}
    return {"type": {"flag": "boolean", "count": "integer"}.get(option.value, "string")}


def _commands() -> Described:
    return {
        name: {"summary": kind.does, "fields": list(kind.fields)} for name, kind in COMMANDS.items()
    }


def _options() -> Described:
    return {
        name: {"description": option.does, "schema": _schema(option)}
        for name, option in OPTIONS.items()
    }
