"""What `/openapi.json` says of an answer: every test of the edge asks it of every answer."""

import re
from functools import cached_property

from sow.server.api.static_files import description
from sow.server.boot.routes import TABLE

REFUSED_EVERYWHERE = (404, 405)
"""Statuses of an address or method that nothing describes."""


class Described:
    """The description of all addresses."""

    @cached_property
    def _paths(self):
        return {
            re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))): operations
            for path, operations in description(TABLE)["paths"].items()
        }

    def lacks(self, method, path, status, content_type):
        """What is not described of an answer; None where all is."""
        if method == "OPTIONS":
            return None
        path = path.partition("?")[0]
        name = "get" if method == "HEAD" else method.lower()
        found = [
            one[name] for address, one in self._paths.items()
            if address.fullmatch(path) and name in one
        ]  # fmt: skip
        what = f"{method} {path}: {status}"
        if not found:
            # A Host, an Origin or an Expect is refused before.
            return None if status in (*REFUSED_EVERYWHERE, 400, 403, 417, 421) else what
        answers = [
            one["responses"][str(status)] for one in found if str(status) in one["responses"]
        ]
        if not answers:
            return what
        kind = content_type.partition(";")[0]
        if status in (204, 304) or any(kind in one.get("content", ()) for one in answers):
            return None
        return f"{what} {kind}"


DESCRIBED = Described()
