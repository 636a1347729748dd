"""Answers in JSON, made alike by every door."""

from collections.abc import Mapping

import orjson
from aiohttp import web

JSON = "application/json"


def json_response(document: object, headers: Mapping[str, str] | None = None) -> web.Response:
    """A document as the answer."""
    body = orjson.dumps(document, default=_plain)
    return web.Response(body=body, content_type=JSON, headers=headers)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    raise TypeError(type(value).__name__)
