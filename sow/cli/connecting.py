"""Commands that use a server: how they are declared, their client; and `sow use`, which names one.

A server may be slow for good reasons, so no command gives up by itself. But a terminal that shows
nothing looks like a hanging command: the client notifies the user once that no answer comes, until
one begins to arrive.

`sow use` makes, chooses, lists and removes contexts (`sow.cli.contexts`). It talks to no server: an
address that is away now may be the right one, and `sow doctor --server` says what is wrong with it.
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
from sow.cli.contexts import Context, Contexts
from sow.cli.options import WITHOUT_PROMPT, access, command, server_options
from sow.cli.output import as_json, printable, show
from sow.client import Client, Unreachable
from sow.client.connector import checked_urls
from sow.errors import ClientError, shown

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


@command(
    "sow use prod --address https://sow.example.com:8443 --token-command 'pass show sow/prod'",
    "sow use prod",
    "sow use",
)
@click.argument("name", required=False)
@click.option("--address", metavar="URL", help="The server's address, or several of one log.")
@click.option("--user", metavar="U", help="The user there; the password is prompted for.")
@click.option(
    "--token-command", metavar="C", help="A command for the shell that writes a token, one line."
)
@click.option("--remove", is_flag=True, help="Forget NAME.")
def use(
    name: str | None, address: str | None, user: str | None, token_command: str | None, remove: bool
) -> None:
    """Make NAME the server that commands use: a context, made by --address; without NAME list all.

    An option of a command stands over the environment (SOW_URL, SOW_TOKEN, SOW_USER), and that over
    the context. The context's credentials go to its own address only. --token-command runs when a
    command connects, and stands over --user. Contexts are kept in ~/.config/sow/contexts.toml.
    """
    has_values = any(value is not None for value in (address, user, token_command))
    if has_values and (name is None or address is None):
        raise click.UsageError(
            "--user and --token-command are of a context: sow use NAME --address URL"
        )
    if remove and (name is None or has_values):
        raise click.UsageError(
            "--remove forgets a context, and stands alone: sow use NAME --remove"
        )
    path = contexts.file_path()
    found = contexts.read(path)
    if name is None:
        _list(found)
        return
    if address is not None:
        context = Context(",".join(checked_urls(address)), user, token_command)
        contexts.checked(name, context)
        found = Contexts(name, {**found.by_name, name: context})
    elif name not in found.by_name:
        raise ClientError(
            f"there is no context {shown(name)}; sow use {name} --address URL makes it"
        )
    elif remove:
        rest = {other: one for other, one in found.by_name.items() if other != name}
        found = Contexts(None if found.current == name else found.current, rest)
    else:
        found = found._replace(current=name)
    contexts.write(path, found)
    _say(name, found, remove)


def _say(name: str, found: Contexts, removed: bool) -> None:
    if removed:
        show({"removed": name}, f"removed {name}")
    else:
        show({"current": name, **found.by_name[name]._asdict()}, f"using {_line(name, found)}")


def _list(found: Contexts) -> None:
    table = {name: one._asdict() for name, one in found.by_name.items()}
    lines = [
        ("* " if name == found.current else "  ") + _line(name, found) for name in found.by_name
    ]
    none = "no contexts; sow use NAME --address URL makes one"
    show({"current": found.current, "contexts": table}, lines or none)


def _line(name: str, found: Contexts) -> str:
    one = found.by_name[name]
    user = f" as {one.user}" if one.user is not None else ""
    by = f", token by {one.token_command}" if one.token_command is not None else ""
    return printable(f"{name}: {one.address}{user}{by}")
