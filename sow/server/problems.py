"""Errors over HTTP: RFC 9457 problem documents, and never a traceback."""

import logging
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError

from sow.errors import Busy, ClientError, SowError, TooLarge, clipped

log = logging.getLogger("sow")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CLIENT_FAULTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError, TimeoutError)

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
    response = web.Response(
        status=status, body=orjson.dumps(document), content_type="application/problem+json"
    )
    if isinstance(error, Busy):
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).removeprefix("400, message: ")


class ClientFaults(logging.Filter):
    """Keeps what a client did wrong out of the log of what went wrong here."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False for connections that broke and requests that were no HTTP."""
        fault = record.exc_info[1] if record.exc_info else None
        return not isinstance(fault, CLIENT_FAULTS)


http_log = logging.getLogger("sow.http")
http_log.addFilter(ClientFaults())
# It warns of whoever asks for a subprotocol, with all that was asked for.
logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)


class Speaking(web.RequestHandler):
    """aiohttp's side of one connection; what is no HTTP is refused like everything else."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The last answer of a connection; its sentence repeats little of what was sent."""
        super().handle_error(request, status, exc, message)  # logs; raises if it is too late
        error: SowError = SowError("the server failed on this request; its log says why")
        if status < 500:
            # What stands in the lines after the first is what was sent.
            said = (message or "").split("\n")[0].rstrip(": ")
            error = ClientError(f"the request is not HTTP: {clipped(said)}")
        response = problem(error, status)
        response.force_close()
        return response


@web.middleware
async def report(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn whatever goes wrong in a handler into a problem document."""
    try:
        return await handler(request)
    except SowError as error:
        return problem(error)
    except web.HTTPRequestEntityTooLarge:
        return problem(TooLarge(HTTP_REASONS[413]))
    except web.RequestPayloadError as error:
        return problem(ClientError(f"the body cannot be read: {_one_line(error)}"))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        response = problem(ClientError(HTTP_REASONS.get(error.status, error.reason)), error.status)
        if allow := error.headers.get("Allow"):
            response.headers["Allow"] = allow
        return response
    except (ConnectionError, TimeoutError):
        # The client has gone; nobody reads this answer.
        return problem(ClientError("the connection was lost before the request was complete"))
    except BadHttpMessage as error:
        return problem(ClientError(f"the request is not HTTP: {error.message.splitlines()[0]}"))
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return problem(SowError("the server failed on this request; its log says why"))
