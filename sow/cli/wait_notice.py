"""Notifies a user once that a server does not answer, and goes on waiting.

A server may be slow for good reasons, so no command gives up by itself. But a terminal that shows
nothing looks like a hanging command. Once an answer begins to arrive there is no notice.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast

import aiohttp

from sow.client import Client

PATIENCE_S = 3.0
"""Delay of the notice; later people begin to wonder."""


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


Later = Callable[[float, Callable[[], None]], Timer]


def on_the_loop(after_s: float, do: Callable[[], None]) -> Timer:
    """Schedule a call on the running loop."""
    return asyncio.get_running_loop().call_later(after_s, do)


class WaitNotice:
    """Calls `notify` once when the server at `url` does not answer; `later` schedules calls."""

    def __init__(self, url: str, notify: Callable[[str], None], later: Later = on_the_loop) -> None:
        self._url = url
        self._notify = notify
        self._later = later
        self._has_notified = False

    def begin(self) -> Timer:
        """Start the timer of a request."""
        return self._later(PATIENCE_S, self._on_timeout)

    def _on_timeout(self) -> None:
        if not self._has_notified:
            self._has_notified = True
            self._notify(f"sow: no answer from {self._url} yet; Ctrl-C ends")

    def trace(self) -> aiohttp.TraceConfig:
        """Traces when requests of a session begin, continue and end."""

        def one_request(**_given: Any) -> _OneRequest:
            return _OneRequest(self)

        # Declared as a class, but called as a function.
        found = aiohttp.TraceConfig(cast("Any", one_request))

        async def goes_on(_session: Any, request: Any, _sent: Any) -> None:
            request.goes_on()

        async def ended(_session: Any, request: Any, _sent: Any) -> None:
            request.ended()

        found.on_request_start.append(goes_on)
        # Sending a long body takes time.
        found.on_request_chunk_sent.append(goes_on)
        found.on_request_end.append(ended)
        found.on_request_exception.append(ended)
        return found


class _OneRequest:
    """The timer of one request."""

    def __init__(self, unanswered: WaitNotice) -> None:
        self._unanswered = unanswered
        self._timer: Timer | None = None

    def goes_on(self) -> None:
        """Restart the timer."""
        self.ended()
        self._timer = self._unanswered.begin()

    def ended(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()


class NotifyingClient(Client):
    """A client that notifies the user while the server does not answer."""

    def __init__(self, url: str, unanswered: WaitNotice | None, **access: Any) -> None:
        super().__init__(url, **access)
        self._unanswered = unanswered

    def _traces(self) -> list[aiohttp.TraceConfig]:
        traces = [] if self._unanswered is None else [self._unanswered.trace()]
        return [*super()._traces(), *traces]
