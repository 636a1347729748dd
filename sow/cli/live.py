"""The live table of `sow watch`: records by SowKey, updated in place.

Messages only change a dictionary. The terminal is redrawn a few times a second and reads only the
rows that fit, so a fast topic costs little more than a slow one.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sow.cli.query import as_table, terminal_console
from sow.client import Message
from sow.core.delta import merged
from sow.messages.flat_cells import cells

REFRESHES_PER_S = 8
"""Redraws per second: as often as eyes can follow figures."""
OTHER_LINES = 3
"""Heading, table header and the line for the cursor."""


class LiveTable:
    """The records in focus of `topic`, drawn on `console` while the context is open or, without a
    terminal, at its end."""

    def __init__(self, topic: str, console: Console | None = None) -> None:
        self._topic = topic
        self._keys: Sequence[str] = ()
        self._console = console or terminal_console()
        self._records: dict[str, bytes] = {}
        self._order: list[str] = []
        """The records of a live window, which are ordered."""
        self._messages = 0
        self._live = Live(
            console=self._console,
            get_renderable=self.render,
            refresh_per_second=REFRESHES_PER_S,
            vertical_overflow="crop",
        )

    def show(self, messages: Sequence[Message]) -> None:
        """Apply messages: set a record, or remove it when it left focus."""
        self._messages += len(messages)
        for message in messages:
            key = f"{message.t} {message.k or ''}"
            if message.c == "gap":
                self._records.clear()
                self._order.clear()
            elif message.c == "oof":
                self._records.pop(key, None)
            elif message.delta and key in self._records:
                document = merged(msgspec.json.decode(self._records[key]), message.document())
                self._records[key] = msgspec.json.encode(document)
            else:
                self._records[key] = bytes(message.d)
            if message.at is not None:
                self._place(key, message)
        if self._order:
            # In one step: another thread draws the table.
            self._records = {key: self._records[key] for key in self._order}

    def _place(self, key: str, message: Message) -> None:
        """Move a record of a live window, or remove it."""
        if key in self._order:
            self._order.remove(key)
        if message.c != "oof":
            self._order.insert(message.at or 0, key)

    def render(self) -> RenderableType:
        """The first records, as many as fit."""
        # Copied in one step: another thread draws the table.
        records = self._records.copy()
        room = self._console.height - OTHER_LINES if self._console.is_terminal else len(records)
        shown = [cells(record) for record in list(records.values())[: max(1, room)]]
        rest = len(records) - len(shown)
        heading = f"{self._topic}: {len(records):,} records, {self._messages:,} messages"
        more = f", {rest:,} records below" if rest > 0 else ""
        table = as_table(shown, self._console.width, self._keys) if shown else Text("")
        return Group(Text(heading + more, style="dim"), table)

    def begin_with(self, keys: Sequence[str]) -> None:
        """Put the identifying columns first."""
        self._keys = keys

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()
        elif self._messages:
            self._console.print(self.render())
