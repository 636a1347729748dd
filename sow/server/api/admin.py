"""Operations: what an operator asks about the process, and not about its records.

How the configuration file stands now, whether or not the server runs by it; and how what runs
beside the server is getting on. The server reads no file and starts no process by itself: who has
started it says how to read the one, and notes on the `Board` what becomes of the others.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from aiohttp import web

from sow.config.diagnostics import Reviewed
from sow.core.definitions import Configuration, without_secrets
from sow.core.pipelines import Pipeline
from sow.errors import ConfigError
from sow.server.http.responses import json_response


class Board:
    """How pipelines are getting on that run beside the server, noted as it becomes known."""

    def __init__(self) -> None:
        self._noted: dict[str, dict[str, Any]] = {}

    def note(self, name: str, **known: Any) -> None:
        """This is known of a pipeline from now on, besides what was."""
        self._noted[name] = {**self._noted.get(name, {}), **known}

    def of(self, name: str) -> dict[str, Any]:
        """What is known of a pipeline."""
        return {**UNKNOWN, **self._noted.get(name, {})}


UNKNOWN: dict[str, Any] = {
    "state": "not run by this server",
    "error": None,
    "rows_in": None,
    "rows_out": None,
    "rows_per_s": None,
    "behind": None,
}
"""What is told of a pipeline of which nothing is known: somebody else may run it."""


class AdminHandler:
    """`look` reads the configuration file, None where there is none, and `reread` gives what a
    reload would go by; `pipelines` are those of the configuration as it is now."""

    def __init__(
        self,
        look: Callable[[], Reviewed] | None = None,
        pipelines: Callable[[], Sequence[Pipeline]] = tuple,
        board: Board | None = None,
        reread: Callable[[], Configuration] | None = None,
    ) -> None:
        self._look = look
        self._reread = reread
        self._pipelines = pipelines
        self._board = board or Board()

    async def file(self, _request: web.Request) -> web.Response:
        """`GET /v1/config/file`."""
        if self._look is None:
            return json_response({"file": None, "text": "", "findings": [], "values": None})
        # A file of some megabytes takes a while to check, and its disk may take longer.
        found = await asyncio.to_thread(self._look)
        values = await asyncio.to_thread(self._values)
        return json_response(
            {
                "file": found.file,
                "text": found.text,
                "findings": [{**asdict(one), "line": int(one.line)} for one in found.findings],
                "values": values,
            }
        )

    def _values(self) -> Configuration | None:
        """What a reload would go by; None where there would be none."""
        try:
            return None if self._reread is None else without_secrets(self._reread())
        except ConfigError:
            return None  # the findings say why

    async def pipelines(self, _request: web.Request) -> web.Response:
        """`GET /v1/pipelines`."""
        return json_response(
            [{**one.described(), **self._board.of(one.name)} for one in self._pipelines()]
        )
