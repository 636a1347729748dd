"""Errors over HTTP: RFC 9457 problem documents, and never a traceback."""

import logging
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web

from sow.errors import ClientError, SowError, TooLarge

log = logging.getLogger("sow")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HTTP_REASONS = {
    404: "no such address; GET /openapi.json lists all",
    405: "this address does not take that method",
    413: "the body is over the limit (Limits/FrameSize)",
}


def problem(error: SowError, status: int | None = None) -> web.Response:
    """The response that reports an error."""
    status = status or error.status
    document = {
        "type": "about:blank",
        "title": error.reason,
        "status": status,
        "reason": error.reason,
        "detail": error.detail,
        **error.fields(),
    }
    return web.Response(
        status=status, body=orjson.dumps(document), content_type="application/problem+json"
    )


@web.middleware
async def report(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn whatever goes wrong in a handler into a problem document."""
    try:
        return await handler(request)
    except SowError as error:
        return problem(error)
    except web.HTTPRequestEntityTooLarge:
        return problem(TooLarge(HTTP_REASONS[413]))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        response = problem(ClientError(HTTP_REASONS.get(error.status, error.reason)), error.status)
        if allow := error.headers.get("Allow"):
            response.headers["Allow"] = allow
        return response
    except (ConnectionError, TimeoutError):
        raise
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return problem(SowError("the server failed on this request; its log says why"))
