"""Who waits for a server that does not answer is told so, once, and goes on waiting.

A server may be slow for good reasons, so no command gives up by itself. But a terminal that shows
nothing cannot be told from one that hangs. It does not look at answers that have begun to come.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast

import aiohttp

from sow.client import Client

PATIENCE_S = 3.0
"""What is answered sooner needs no word; later people begin to wonder."""


class Timer(Protocol):
    """What was put off."""

    def cancel(self) -> None:
        """Do not do it."""


Later = Callable[[float, Callable[[], None]], Timer]


def on_the_loop(after_s: float, do: Callable[[], None]) -> Timer:
    """Put off what is to be done, by the clock of the loop that runs."""
    return asyncio.get_running_loop().call_later(after_s, do)


class WaitNotice:
    """Tells by `say` that the server at `url` lets one wait; `later` puts things off."""

    def __init__(self, url: str, say: Callable[[str], None], later: Later = on_the_loop) -> None:
        self._url = url
        self._say = say
        self._later = later
        self._has_said = False

    def begin(self) -> Timer:
        """A request waits from now on."""
        return self._later(PATIENCE_S, self._tell)

    def _tell(self) -> None:
        if not self._has_said:
            self._has_said = True
            self._say(f"sow: no answer from {self._url} yet; Ctrl-C ends")

    def trace(self) -> aiohttp.TraceConfig:
        """By this a session tells when requests begin, go on and end."""

        def one_request(**_given: Any) -> _OneRequest:
            return _OneRequest(self)

        # Declared to be a class, and called.
        found = aiohttp.TraceConfig(cast("Any", one_request))

        async def goes_on(_session: Any, request: Any, _sent: Any) -> None:
            request.goes_on()

        async def ended(_session: Any, request: Any, _sent: Any) -> None:
            request.ended()

        found.on_request_start.append(goes_on)
        # A long body is on its way as long as it takes.
        found.on_request_chunk_sent.append(goes_on)
        found.on_request_end.append(ended)
        found.on_request_exception.append(ended)
        return found


class _OneRequest:
    """A request that waits for its answer."""

    def __init__(self, unanswered: WaitNotice) -> None:
        self._unanswered = unanswered
        self._timer: Timer | None = None

    def goes_on(self) -> None:
        """Wait from now on."""
        self.ended()
        self._timer = self._unanswered.begin()

    def ended(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()


class NotifyingClient(Client):
    """A client that has somebody told while the server lets it wait."""

    def __init__(self, url: str, unanswered: WaitNotice | None, **access: Any) -> None:
        super().__init__(url, **access)
        self._unanswered = unanswered

    def _traces(self) -> list[aiohttp.TraceConfig]:
        told = [] if self._unanswered is None else [self._unanswered.trace()]
        return [*super()._traces(), *told]
