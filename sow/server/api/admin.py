"""Administration: the configuration file as it is now, and the state of pipelines.

The file is shown whether or not the server runs by it. The handler reads no file and starts no
process: the caller that starts the server passes the function that reads the file, and records on
the `Board` what becomes of pipelines.
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
    """The state of pipelines that run beside the server, as last reported."""

    def __init__(self) -> None:
        self._noted: dict[str, dict[str, Any]] = {}

    def note(self, name: str, **known: Any) -> None:
        """Add to what is known of a pipeline."""
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
"""Reported of a pipeline without notes: another process may run it."""


class AdminHandler:
    """`/v1/config/file` and `/v1/pipelines`.

    `look` reads the configuration file (None: there is none), `reread` gives the configuration that
    a reload would apply, and `pipelines` those of the current configuration."""

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
        """`GET /v1/config/file`: its text, the findings of the checks, and the values it sets."""
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
        """The configuration that a reload would apply; None if it would fail."""
        try:
            return None if self._reread is None else without_secrets(self._reread())
        except ConfigError:
            return None  # the findings say why

    async def pipelines(self, _request: web.Request) -> web.Response:
        """`GET /v1/pipelines`: each pipeline of the configuration and its state."""
        return json_response(
            [{**one.described(), **self._board.of(one.name)} for one in self._pipelines()]
        )
