"""`/openapi.json`: the addresses as OpenAPI 3.1 describes them, for programs that make clients.

It is made of the table of routes and of what travels (`sow.server.api.openapi_examples`), whose
types become its schemas; nothing in it is written twice. Commands of a WebSocket, which OpenAPI has
no word for, stand beside the address as `x-commands` and `x-options`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sow import __version__
from sow.core.media_types import ARROW, BSON, BYTES, FRAMES, JSON, MSGPACK, PROBLEM
from sow.protocol.commands import COMMANDS, OPTIONS, Option
from sow.server.api.openapi_examples import EXCHANGES, Exchange
from sow.server.api.response_schemas import Problem
from sow.server.http.negotiation import FORMAT_NAMES
from sow.server.http.route import READ_METHODS, WEBSOCKET, Route

Described = dict[str, Any]

TEMPLATE = "#/components/schemas/{name}"
PARAMETERS: Mapping[str, Described] = {
    **{key: {"type": "boolean"} for key in ("meta", "explain", "snapshot", "delta")},
    **{key: {"type": "boolean"} for key in ("closed", "expected", "allow_loss")},
    **{key: {"type": "boolean"} for key in ("names", "members", "/metrics topics")},
    **{key: {"type": "integer", "minimum": 0} for key in ("parts", "part", "chunk")},
    "limit": {"type": "integer", "minimum": 1},
    **{key: {"type": "number", "minimum": 0} for key in ("wait", "expiration")},
    "ack": {"type": "string", "enum": ["persisted", "processed"]},
    "format": {"type": "string", "enum": [*FORMAT_NAMES]},
    "rejects": {"type": "string", "enum": ["fail", "skip"]},
}
"""Schemas of parameters that are neither texts nor options of commands; one that is something else
at an address has that before its name."""
SCHEMES: Described = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
}
BINARY = (ARROW, FRAMES, BYTES, BSON, MSGPACK)
PROBLEMS = {
    400: "the request cannot be carried out as it stands",
    401: "nobody says who asks",
    403: "the user may not do that, or a page of another site asks",
    404: "it is not there, or not for him",
    406: "no form or packing that is asked for can be made",
    408: "the body does not come",
    409: "it is not so that this can be done: a batch, a reader, or a value beside its schema",
    410: "the rest of an answer in pages is not held any more",
    412: "the record or answer is in another state than asked for",
    413: "it is too large",
    415: "the body is in no form that is understood",
    416: "Range begins after the end of the answer",
    417: "Expect asks for something that is not known",
    421: "Host is no name of this server",
    429: "too many wrong logons",
    500: "the server failed",
    503: "there is no room for it at the moment, or the server is not ready",
    507: "there is no room to store it",
}
POSITIONS = {"as_of", "bookmark", "from", "to"}
"""Parameters that may name another log."""
ALWAYS = (400, 403, 417, 421, 500, 503)
"""Statuses with which any request may be refused."""
UNCHANGED: Described = {"description": "what If-None-Match names is still the answer"}
LICENSE: Described = {"name": "Apache 2.0", "identifier": "Apache-2.0"}
PACKED = "zstd or gzip, where Accept-Encoding asks for it and the answer is long"
PART = "the part that Range asks for"
TAGGED = "of what is answered, for If-None-Match; not where the answer is very long"
NEXT_PAGE = 'of an answer with a limit the address of the next page: <?cursor=…>; rel="next"'
CONDITIONS = (
    ("If-Match", "carry this out only in one of these states of the record, or in any: *"),
    ("If-None-Match", "and not in these states, or only where there is none: *"),
)


def description(table: Iterable[Route]) -> Described:
    """An OpenAPI document of the table, and of the commands that travel in a WebSocket."""
    table = list(table)
    types = [Problem, *(one for each in EXCHANGES.values() for one in (each.answer, each.body))]
    schemas, components = msgspec.json.schema_components(types, ref_template=TEMPLATE)
    named = {repr(one): schema for one, schema in zip(types, schemas, strict=True)}
    # Generators want it said that the elements of a list may be anything.
    for schema in named.values():
        for one in (schema, *schema.get("anyOf", ())):
            if one.get("type") == "array":
                one.setdefault("items", {})
    paths: dict[str, Described] = {}
    for route in table:
        exchange = EXCHANGES.get(f"{route.method} {route.path}", Exchange(route.path))
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, exchange, named)
    return {
        "openapi": "3.1.0",
        "info": {"title": "SOW", "version": __version__, "license": LICENSE},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": SCHEMES},
    }


def _operation(route: Route, exchange: Exchange, named: Mapping[str, Described]) -> Described:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    operation: Described = {
        "operationId": exchange.operation,
        "summary": route.summary,
        "parameters": [
            *(_parameter(name, "path", route, exchange) for name in names),
            *(_parameter(name, "query", route, exchange) for name in route.parameters),
            *(_headers() if "key" in names and not route.path.endswith("/why") else ()),
        ],
        "responses": _responses(route, exchange, named),
    }
    if exchange.takes:
        operation["requestBody"] = {
            "required": exchange.needs_body,
            "content": _content(exchange.takes, exchange.body, named),
        }
    # Where nobody is asked who he is, nothing has to be shown.
    operation["security"] = [*({name: []} for name in SCHEMES), {}] if _asks(route) else []
    if route.path == WEBSOCKET:
        operation |= {"x-commands": _commands(), "x-options": _options()}
    return operation


def _responses(route: Route, exchange: Exchange, named: Mapping[str, Described]) -> Described:
    """Answers and problems by status; of one status there may be both."""
    responses = _answers(route, exchange, named)
    for status in _problems(route, exchange):
        others = responses.get(str(status), {}).get("content", {})
        responses[str(status)] = {
            "description": PROBLEMS[status],
            "content": {**others, PROBLEM: {"schema": named[repr(Problem)]}},
        }
    return responses


def _answers(route: Route, exchange: Exchange, named: Mapping[str, Described]) -> Described:
    if route.path == WEBSOCKET:
        return {"101": {"description": "a WebSocket"}}
    content = _content(exchange.answers, exchange.answer, named)
    done: Described = {"description": "done"} | ({"content": content} if content else {})
    if route.method == "GET" and content:
        done["headers"] = {
            "Content-Encoding": {"description": PACKED, "schema": {"type": "string"}}
        }
    if exchange.tagged:
        done["headers"]["ETag"] = {"description": TAGGED, "schema": {"type": "string"}}
    return (
        {"200": done}
        | {str(status): done for status in exchange.also}
        | ({"206": done | {"description": PART}} if _has_ranges(route, exchange) else {})
        | ({"304": UNCHANGED} if exchange.tagged else {})
    )


def _has_ranges(route: Route, exchange: Exchange) -> bool:
    """Whether parts of the answer can be asked for: of what is made as a whole for each request."""
    return exchange.tagged and route.demand != "nothing" and not route.path.endswith("/{key}")


def _asks(route: Route) -> bool:
    """Whether credentials that are shown are looked at."""
    return route.demand != "nothing" or route.path == WEBSOCKET


def _content(kinds: Iterable[str], of: object, named: Mapping[str, Described]) -> Described:
    """The media types that something may have, with the schema of it where it is JSON."""
    other = {kind: {"type": "string", "format": "binary"} for kind in BINARY}
    text = {"type": "string"}
    return {
        kind: {"schema": named[repr(of)] if kind == JSON else other.get(kind, text)}
        for kind in kinds
    }


def _problems(route: Route, exchange: Exchange) -> list[int]:
    """The statuses with which a request may be refused."""
    parameters = {*route.parameters}
    found = {*ALWAYS, *exchange.refusals}
    found |= {401, 429} if _asks(route) else set()
    found |= {404} if "{" in route.path or parameters & {"topic", "topics"} else set()
    found |= {406} if route.method in READ_METHODS else set()
    found |= {413} if parameters & {"filter", "keys"} else set()
    found |= {408, 413, 415, 507} if exchange.takes else set()
    found |= {409} if parameters & POSITIONS else set()
    found |= {410} if "cursor" in parameters else set()
    found |= {412} if route.path.endswith("/{key}") or (exchange.tagged and _asks(route)) else set()
    found |= {416} if _has_ranges(route, exchange) else set()
    return sorted(found)


def _parameter(name: str, where: str, route: Route, exchange: Exchange) -> Described:
    """A parameter; one that is an option of commands is described as that."""
    required = where == "path" or name in exchange.requires
    described = {"name": name, "in": where, "required": required}
    option = OPTIONS.get(name)
    if where == "path" or option is None or not option.requests:
        text = {"type": "string"}
        kind = PARAMETERS.get(f"{route.path} {name}", PARAMETERS.get(name, text))
        return described | {"schema": kind if where == "query" else text}
    return described | {"description": option.does, "schema": _schema(option)}


def _headers() -> list[Described]:
    text = {"type": "string"}
    return [
        {"name": name, "in": "header", "required": False, "description": does, "schema": text}
        for name, does in CONDITIONS
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
