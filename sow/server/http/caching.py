"""Cache headers: how an answer may be cached, and what it depends on.

A signal adds `Cache-Control: no-cache` to each answer (RFC 9111 §5.2.2.4): it may be stored and
must be revalidated, since records and permissions change at any time. If `Accept` or `Prefer`
selects the form of an answer, it is in `Vary` (RFC 9110 §12.5.5, RFC 7240 §2), whichever form was
selected; `sow.server.http.compression` and `sow.server.http.middleware` add encoding and origin
themselves. Text is declared as UTF-8.
"""

from aiohttp import hdrs, web

from sow.server.http.negotiation import CHOOSERS


async def mark_kept(request: web.Request, response: web.StreamResponse) -> None:
    """Set the cache headers of an answer; a signal."""
    headers = response.headers
    headers.setdefault(hdrs.CACHE_CONTROL, "no-cache")
    for chooser in request.get(CHOOSERS, ()):
        headers.add(hdrs.VARY, chooser)
    kind = headers.get(hdrs.CONTENT_TYPE, "")
    if kind.startswith("text/") and "charset" not in kind:
        headers[hdrs.CONTENT_TYPE] = f"{kind}; charset=utf-8"
