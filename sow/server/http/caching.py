"""What caches are told: how an answer may be kept, and what it depends on.

A signal says of each answer that it may be kept and has to be asked about before it is used again
(`Cache-Control: no-cache`, RFC 9111 §5.2.2.4): records change at any time, and so do rights. An
address of which `Accept` or `Prefer` chooses the form says so in `Vary` (RFC 9110 §12.5.5, RFC 7240
§2), whichever form was chosen; of the packing and the origin `sow.server.http.compression` and
`sow.server.http.middleware` say so themselves. A text says that it is UTF-8.
"""

from aiohttp import hdrs, web

from sow.server.http.negotiation import CHOOSERS


async def mark_kept(request: web.Request, response: web.StreamResponse) -> None:
    """Say of an answer whose head is about to leave how it may be kept; a signal."""
    headers = response.headers
    headers.setdefault(hdrs.CACHE_CONTROL, "no-cache")
    for chooser in request.get(CHOOSERS, ()):
        headers.add(hdrs.VARY, chooser)
    kind = headers.get(hdrs.CONTENT_TYPE, "")
    if kind.startswith("text/") and "charset" not in kind:
        headers[hdrs.CONTENT_TYPE] = f"{kind}; charset=utf-8"
