"""Routes of the server: declared with their handlers, and checked before these are called.

A handler is a method of a resource's class. `route` above it declares its address, the permission
that it needs and its parameters, `operation` what `/openapi.json` says of its body and its answer.
A request reaches it once its client is identified and permitted, with each parameter at most once
and no unknown ones; the handler gets these checked parameters (`parameters_of`) only.

Every GET route answers HEAD, by the same handler with the same permissions; a streamed answer ends
after its headers. OPTIONS lists the methods of an address, for any client, since `/openapi.json`
does the same. It does not look at topics, so a hidden topic looks like a missing one. Requests of
other sites' pages (CORS) are handled by `sow.server.http.request_origin`. `sow.server.boot.routes`
collects all routes.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from aiohttp import hdrs, web

from sow.core.comma_lists import comma_list
from sow.core.humanize import did_you_mean
from sow.core.media_types import JSON
from sow.core.security_definitions import OF_TOPICS
from sow.errors import ClientError, SowError, UnknownRecord, clipped, shown
from sow.protocol.commands import (
    OPTIONS,
    OPTIONS_IGNORED,
    Option,
    Options,
    Request,
    options_of,
    read_value,
)
from sow.security.authorization import Demand, Permissions
from sow.server.http.authn_middleware import AUTHN, reauthorize_stream
from sow.server.http.body_reading import client_key
from sow.server.http.negotiation import CODING, FORMAT_ENDING, coding_of
from sow.server.http.preconditions import ADDRESSES, MOMENTS
from sow.server.loop.scheduler import CLIENT
from sow.topic.records import Records

WEBSOCKET = "/v1/ws"
SNAPSHOTS = "/v1/snapshots"
READ_METHODS = ("GET", "HEAD")
"""Methods that change nothing: HEAD is added to GET routes by `with_heads`."""
OF_MOMENTS = ("min_bookmark", "wait", "stale")
"""Parameters of all addresses that read: wait so many seconds for a bookmark; whether the answer
may be out of date."""
NO_READS = (
    WEBSOCKET,
    "/v1/status",
    "/v1/log/status",
    "/v1/sessions",
    "/v1/sessions/{id}",
    "/v1/sessions/{id}/why",
)
"""What every server answers at any time, of itself."""


class Operation(NamedTuple):
    """The body and answer of a route, for `/openapi.json`: `answer` and `body` are the types of
    JSON, `answers` and `takes` the media types, the usual one first (none: no body). `also` are
    further statuses of the answer beside 200, `requires` are the required parameters, `tagged`
    answers have an ETag, `numbered` requests may have an Idempotency-Key, and `refusals` are
    statuses of problems that do not follow from the rest (`sow.server.api.static_files`).
    """

    id: str
    answer: Any = Any
    answers: tuple[str, ...] = (JSON,)
    body: Any = Any
    takes: tuple[str, ...] = ()
    also: tuple[int, ...] = ()
    needs_body: bool = True
    requires: tuple[str, ...] = ()
    tagged: bool = False
    numbered: bool = False
    refusals: tuple[int, ...] = ()


class Route(NamedTuple):
    """One route: `parameters` are the names that the query string may have.

    Those of moments come to these (`taken`). `demand` is the permission that the client needs: on
    the topic in the path or in the parameter `topic`, if there is one. If the body names it, the
    handler checks.
    """

    method: str
    path: str
    demand: Demand
    handler: Callable[..., Awaitable[web.StreamResponse]]
    summary: str
    parameters: tuple[str, ...] = ()
    operation: Operation = Operation("")

    @property
    def has_moment(self) -> bool:
        """Whether its answer is as of a moment, which a request may wait for."""
        return _has_moment(self.method, self.path)

    @property
    def taken(self) -> tuple[str, ...]:
        """All parameters that it takes."""
        return _taken(self.method, self.path, self.parameters)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Authenticate and check a request, and answer it."""
        authn = request.app[AUTHN]
        rights: Permissions | None = None
        try:
            rights = await authn.admit(request, self.demand)
            CLIENT.set(rights.owner or client_key(request))
            if not rights.is_open:
                self._check(request, rights)
            admit(request, self.taken if request.query else ())
            # As `reach_moment` does, without a call for each request.
            moments = request.app[MOMENTS]
            parameters = parameters_of(request)
            if moments.doubt_s is not None or "stale" in parameters:
                self._check_stale(request)
            sought = moments.sought(parameters)
            if sought is not None:
                await moments.wait(sought, read_seconds(parameters, "wait"))
            if self.method in READ_METHODS:
                request[CODING] = coding_of(request)
            if self.demand == "admin" and self.method not in READ_METHODS:
                authn.note_admin(request, rights)
            answer = await self.handler(request)
            if moments.doubt_s is not None and not answer.prepared:
                self._check_stale(request)  # it may have begun before
            if self.method in READ_METHODS and self.demand != "nothing" and not answer.prepared:
                # It may have waited for the scheduler or the disk since it was produced.
                await reauthorize_stream(request)
            return answer
        except SowError as error:
            rights = rights or authn.anonymous
            authn.note_refused(request, rights, error)
            raise authn.redact(error, rights) from None

    def _check_stale(self, request: web.Request) -> None:
        """Raise Stale for a read of what may be out of date."""
        if self.has_moment and self.path not in NO_READS:
            request.app[MOMENTS].check(parameters_of(request).get("stale"))

    def _check(self, request: web.Request, rights: Permissions) -> None:
        """Raise NotEntitled if these permissions do not allow the request."""
        named = request.match_info.get("topic")
        if named is None and "topic" in self.parameters:
            # A parameter that is given twice is refused later.
            named = request.query.get("topic")
        if named is not None:
            rights.check(self.demand, named)
        elif self.demand not in OF_TOPICS:
            rights.check(self.demand)


async def reach_moment(request: web.Request) -> None:
    """Return once the server has come to the moment that a request is to show; raises what
    `Moments.wait` does."""
    moments, parameters = request.app[MOMENTS], parameters_of(request)
    sought = moments.sought(parameters)
    if sought is not None:
        await moments.wait(sought, read_seconds(parameters, "wait"))


def _has_moment(method: str, path: str) -> bool:
    return (method in READ_METHODS or path == SNAPSHOTS) and path.startswith(ADDRESSES)


@cache
def _taken(method: str, path: str, parameters: tuple[str, ...]) -> tuple[str, ...]:
    more = OF_MOMENTS if _has_moment(method, path) else ()
    return (*parameters, *(name for name in more if name not in parameters))


Method = TypeVar("Method", bound=Callable[..., Awaitable[web.StreamResponse]])
ROUTES, OPERATION = "routes", "operation"
"""Attributes of a handler that its decorators set."""


def route(
    method: str, path: str, demand: Demand, summary: str, parameters: tuple[str, ...] = ()
) -> Callable[[Method], Method]:
    """Declares a route above its handler and its `operation`; a handler may have several."""

    def mark(handler: Method) -> Method:
        described = vars(handler).pop(OPERATION, Operation(""))
        declared = Route(method, path, demand, handler, summary, parameters, operation=described)
        vars(handler).setdefault(ROUTES, []).insert(0, declared)
        return handler

    return mark


def operation(*values: Any, **more: Any) -> Callable[[Method], Method]:
    """Describes the operation of the route above it; arguments are those of `Operation`."""

    def mark(handler: Method) -> Method:
        vars(handler)[OPERATION] = Operation(*values, **more)
        return handler

    return mark


def routes_of(resource: type) -> list[Route]:
    """The routes of a class, in the order of its methods; their handlers are not bound yet."""
    return [one for method in vars(resource).values() for one in getattr(method, ROUTES, ())]


def with_heads(table: Iterable[Route]) -> list[Route]:
    """The table, with HEAD for every GET; a WebSocket has nothing but its upgrade."""
    return [
        one
        for route in table
        for one in (route, route._replace(method=hdrs.METH_HEAD))
        if one is route or (route.method == hdrs.METH_GET and route.path != WEBSOCKET)
    ]


def allowed(table: Iterable[Route]) -> dict[str, str]:
    """The methods of each path, as the header `Allow` lists them."""
    methods: dict[str, list[str]] = {}
    for route in with_heads(table):
        methods.setdefault(route.path, [hdrs.METH_OPTIONS]).append(route.method)
    return {path: ", ".join(sorted(names)) for path, names in methods.items()}


def add_routes(router: web.UrlDispatcher, table: Iterable[Route]) -> None:
    """Add the routes of the table to a router, with HEAD and OPTIONS."""
    table = list(table)
    for route in with_heads(table):
        router.add_route(route.method, route.path, route.handle)
    for path, methods in allowed(table).items():
        router.add_route(hdrs.METH_OPTIONS, path, partial(_allow, methods))


async def _allow(methods: str, _request: web.Request) -> web.Response:
    """Answer OPTIONS with the methods of the path."""
    return web.Response(status=204, headers={hdrs.ALLOW: methods})


# Parameters.

REQUESTED = web.RequestKey("requested", dict[str, str])


def admit(request: web.Request, known: Sequence[str]) -> None:
    """Check and keep the parameters of a request; raises ClientError for any but `known` ones."""
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name not in known:
            other = _other(request, name)
            raise ClientError(f"no parameter {shown(name)}{other}{_known(name, known)}")
        if name in found:
            raise ClientError(f"parameter {name} is given twice")
        found[name] = value
    request[REQUESTED] = found


def _other(request: web.Request, name: str) -> str:
    """A remark on a name that is valid elsewhere."""
    if name == "format" and FORMAT_ENDING in request.match_info:
        return " here (the end of the address names the format)"
    return " here (it is an option of commands over a WebSocket)" if name in OPTIONS else ""


def _known(name: str, known: Sequence[str]) -> str:
    return did_you_mean(clipped(name), known) if known else "; this address takes none"


def parameters_of(request: web.Request) -> dict[str, str]:
    """The checked parameters of a request."""
    return request[REQUESTED]


def read_options(requested: Mapping[str, str], request: Request) -> Options:
    """The command options among the parameters; the topic's name in an address is literal."""
    ignored = tuple(name for name in OPTIONS_IGNORED if name in requested)
    options = Options(non_regex_topic=True, ignored=ignored)
    for name in options_of(request):
        if name in requested:
            setattr(options, name, _read_option(requested, OPTIONS[name]))
    return options


def _read_option(requested: Mapping[str, str], option: Option) -> object:
    """The value of an option; flags and counts are parsed like those of other parameters."""
    if option.value == "flag":
        return read_flag(requested, option.name)
    if option.value == "count":
        return read_count(requested, option.name)
    return read_value(option, requested[option.name])


def read_flag(requested: Mapping[str, str], name: str) -> bool:
    """A boolean parameter; the default is false."""
    value = requested.get(name, "false")
    if value not in ("true", "false"):
        raise ClientError(f"{name}={clipped(value)} must be true or false")
    return value == "true"


def read_count(requested: Mapping[str, str], name: str) -> int | None:
    """A whole number, or None if it is not given."""
    value = requested.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise ClientError(f"{name}={clipped(value)} must be a whole number, 0 or more")
    return int(value)


def read_seconds(requested: Mapping[str, str], name: str) -> float | None:
    """A number of seconds, or None if it is not given."""
    value = requested.get(name)
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0:
        raise ClientError(f"{name}={clipped(value)} must be a number of seconds, 0 or more")
    return seconds


BY_VALUES = "key="
"""What an address begins with in place of a SowKey, if it names a record by values."""


def read_sow_keys(requested: Mapping[str, str], records: Records) -> tuple[str, ...] | None:
    """The SowKeys that `keys` names, or of the one record that `key` names by its values; None
    without either. Raises ClientError."""
    if "key" not in requested:
        return tuple(comma_list(requested["keys"])) if "keys" in requested else None
    if "keys" in requested:
        raise ClientError("give keys, which are SowKeys, or key, the values of a Key: not both")
    return (records.sow_key_of_values(requested["key"]),)


def sow_key_of(request: web.Request, records: Records) -> str:
    """The SowKey of the record in the address: itself, or found by values. A key that a publisher
    gave may begin in the same way: a record that has it goes first. Raises ClientError."""
    text = request.match_info["key"]
    if not text.startswith(BY_VALUES) or (not records.makes_keys and text in records.table.slots):
        return text
    return records.sow_key_of_values(text.removeprefix(BY_VALUES))


def no_such_record(topic: str, named: str) -> UnknownRecord:
    """The error for a record that is not there, or that the client may not see."""
    return UnknownRecord(f"topic {topic} has no such record: {shown(named)}")


def check_named(topic: str, requested: Mapping[str, str], count: int) -> None:
    """Raise UnknownRecord if the record that `key` names is not among `count` found ones."""
    if "key" in requested and not count:
        raise no_such_record(topic, f"{BY_VALUES}{requested['key']}")
