"""Commands that use a server: how they are declared, and their client of the server at --url.

A server may be slow for good reasons, so no command gives up by itself. But a terminal that shows
nothing looks like a hanging command: the client notifies the user once that no answer comes, until
one begins to arrive.
"""

import asyncio
import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, cast

import aiohttp
import click

from sow.cli import contexts
from sow.cli.options import WITHOUT_PROMPT, access, command, server_options
from sow.cli.output import as_json, printable
from sow.client import Client, Unreachable
from sow.errors import ClientError

NO_SERVER = (
    "; for data without a server: start one with sow serve FILE --data-dir DIRECTORY --port 0 and "
    "give the address it prints as --url, or copy the whole data directory while it is stopped"
)
"""The way for a user who needs stored data and has only the directory."""
PATIENCE_S = 3.0
"""Delay of the notice; later people begin to wonder."""


def server_command(*examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command with the options of a server, with these calls as its examples.

    A coroutine function gets a client of the server as its first argument. A plain function calls
    `connected` itself, after what it refuses without a server.
    """
    declare = command(*examples, options=server_options)
    return lambda work: declare(_with_client(work) if inspect.iscoroutinefunction(work) else work)


def _with_client(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
    @functools.wraps(work)
    async def call(**given: Any) -> None:
        async with connected() as client:
            await work(client, **given)

    return call


def connected() -> Client:
    """A client of the server at --url, or of the current context, under the name of the command.

    Prompts for the password of a user unless it is in the environment. Raises ClientError for a key
    without its certificate.
    """
    given, password = access(), os.environ.get("SOW_PASSWORD")
    url, user, token = given.url, given.user, given.token
    if given.context is not None and given.token_command is not None:
        user, token = None, contexts.token_of(given.context, given.token_command)
    if user is not None and password is None:
        password = click.prompt(f"Password of {user}", hide_input=True, err=True)
    if given.certificate_key is not None and given.certificate is None:
        raise ClientError("there is a --certificate-key, but no certificate; give --certificate")
    return NotifyingClient(
        url,
        # Programs expect errors on stderr, and nothing else.
        None if as_json() else WaitNotice(url, lambda text: click.echo(printable(text), err=True)),
        name=f"sow {click.get_current_context().info_name}",
        token=token if user is None else None,
        user=user,
        password=user and password,
        certificate=given.certificate,
        key=given.certificate_key,
        ca=given.ca,
    )


def confirm(deed: str) -> None:
    """Ask at a terminal before `deed`, such as "delete 3 records of orders", which the server at
    --url is to do; raises ClientError for a no. Without a terminal, or with --yes, nothing is
    prompted: the command has `yes_option` of `sow.cli.options`."""
    if click.get_current_context().meta.get(WITHOUT_PROMPT) or not sys.stdin.isatty():
        return
    given = access()
    named = "" if given.context is None else f"context {given.context}, "
    if not click.confirm(printable(f"{deed} at {named}{given.url}?"), err=True):
        raise ClientError("answered no; nothing was changed")


@contextmanager
def of_a_server() -> Iterator[None]:
    """For commands that store what a server holds: if none runs, the error names an alternative."""
    try:
        yield
    except Unreachable as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ECONNREFUSED:
            error.detail += NO_SERVER
        raise


Later = Callable[[float, Callable[[], None]], Any]
"""Schedules a call; returns a timer with a `cancel`."""


def on_the_loop(after_s: float, do: Callable[[], None]) -> asyncio.TimerHandle:
    """Schedule a call on the running loop."""
    return asyncio.get_running_loop().call_later(after_s, do)


class WaitNotice:
    """Calls `notify` once when the server at `url` does not answer; `later` schedules calls."""

    def __init__(self, url: str, notify: Callable[[str], None], later: Later = on_the_loop) -> None:
        self._url = url
        self._notify = notify
        self._later = later
        self._has_notified = False

    def begin(self) -> Any:
        """Start the timer of a request; returns it."""
        return self._later(PATIENCE_S, self._on_timeout)

    def _on_timeout(self) -> None:
        if not self._has_notified:
            self._has_notified = True
            self._notify(f"sow: no answer from {self._url} yet; Ctrl-C ends")

    def trace(self) -> aiohttp.TraceConfig:
        """Traces when requests of a session begin, continue and end."""
        # Declared as a class, but called as a function.
        found = aiohttp.TraceConfig(cast("Any", lambda **_given: _OneRequest(self)))

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
        self._timer: Any = None

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
