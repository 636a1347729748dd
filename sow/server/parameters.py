"""The query string of a request: each parameter at most once, unknown ones refused."""

import math
from collections.abc import Mapping

from aiohttp import web

from sow.errors import ClientError, NotAvailable, clipped, shown
from sow.wire import nearest


def read_parameters(
    request: web.Request, known: tuple[str, ...], later: tuple[str, ...] = ()
) -> dict[str, str]:
    """The query string, each parameter at most once; unknown ones are refused."""
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name in later:
            raise NotAvailable(f"parameter {name} is not available yet")
        if name not in known:
            raise ClientError(f"no parameter {shown(name)}{nearest(clipped(name), known)}")
        if name in found:
            raise ClientError(f"parameter {name} is given twice")
        found[name] = value
    return found


def read_flag(asked: Mapping[str, str], name: str) -> bool:
    """A parameter that is true or false (the default)."""
    value = asked.get(name, "false")
    if value not in ("true", "false"):
        raise ClientError(f"{name}={clipped(value)} must be true or false")
    return value == "true"


def read_count(asked: Mapping[str, str], name: str) -> int | None:
    """A whole number, or None when it is not given."""
    value = asked.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise ClientError(f"{name}={clipped(value)} must be a whole number, 0 or more")
    return int(value)


def read_seconds(asked: Mapping[str, str], name: str) -> float | None:
    """A number of seconds, or None when it is not given."""
    value = asked.get(name)
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise ClientError(f"{name}={clipped(value)} must be a number of seconds")
    return seconds
