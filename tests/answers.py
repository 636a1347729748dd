"""An answer over HTTP as tests look at it, wherever it came from."""

import json
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """An HTTP response that was read to its end."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def rows(self):
        """The lines of an NDJSON answer, parsed."""
        return [json.loads(line) for line in self.body.splitlines()]
