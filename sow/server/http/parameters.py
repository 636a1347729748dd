"""The query string of a request: each parameter at most once, unknown ones are errors.

The parameters of an address are listed in one place, the table of routes
(`sow.server.boot.routes`): requests are checked against it (`admit`), `/openapi.json` and the test
of the docs are generated from it, and a handler gets the checked parameters (`parameters_of`) only.
"""

import math
from collections.abc import Mapping, Sequence

from aiohttp import web

from sow.core.humanize import did_you_mean
from sow.errors import ClientError, NotAvailable, clipped, shown
from sow.protocol.commands import OPTIONS, OPTIONS_IGNORED, Option, Options, Request, options_of
from sow.protocol.options import read_value

REQUESTED = web.RequestKey("requested", dict[str, str])


def admit(request: web.Request, known: Sequence[str], later: Sequence[str] = ()) -> None:
    """Check and keep the parameters of a request: `known` ones; `later` ones are not available
    yet."""
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name in later:
            raise NotAvailable(f"parameter {name} is not available yet")
        if name not in known:
            raise ClientError(f"no parameter {shown(name)}{_other(name)}{_known(name, known)}")
        if name in found:
            raise ClientError(f"parameter {name} is given twice")
        found[name] = value
    request[REQUESTED] = found


def _other(name: str) -> str:
    """A remark on a name that is valid elsewhere."""
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
