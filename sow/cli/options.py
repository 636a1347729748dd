"""How a command is declared: its examples, options that several commands have, and completion.

`command` declares one, `sow.cli.connecting.server_command` one that uses a server. Options that
every command handles alike (the address, credentials, --json) are no parameters of its function:
they are kept in the context, where `connected` and `show` read them.

`sow completion` writes the script of a shell, and `topic_argument` completes topics. The script is
click's. It calls `sow` for candidates at each TAB, so it never gets out of date. Names of topics
are requested from the server that the command line names. The user waits, so the request has a
short timeout and a limit of names, and every failure (no server, no permission, no answer) is
silent. Completion prompts for no password, and sends credentials only on this machine or over TLS.
It runs no command of a context.
It leaves out names that a shell would not take as one word: other users choose names, and a shell
executes what it reads.
"""

import functools
import inspect
import os
import re
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem, get_completion_class

from sow.cli import contexts
from sow.cli.output import AS_JSON, EXPRESSIONS
from sow.core.addresses import URL_DEFAULT, is_loopback, listed
from sow.errors import SowError

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")
Option = Callable[[Any], Any]
ACCESS = "sow.cli.access"
WITHOUT_PROMPT = "sow.cli.yes"
"""Keys of `click.Context.meta`: the values of --url, of trust and of credentials, by parameter, and
whether --yes was given."""


CREDENTIALS = ("token", "user", "certificate")


class ServerAccess(NamedTuple):
    """How a command reaches its server, and who the user is there."""

    url: str
    ca: str | None
    token: str | None
    user: str | None
    certificate: str | None
    certificate_key: str | None
    context: str | None
    """The name of the current context, if the server is the one of it."""
    token_command: str | None
    """What writes the token, if the context says who the user is."""


def access(ctx: click.Context | None = None) -> ServerAccess:
    """By a command's options, then the environment, then the current context, whose credentials are
    for its own address; raises ClientError for a file that has no contexts."""
    given = dict((ctx or click.get_current_context()).meta[ACCESS])
    found = contexts.read(contexts.file_path())
    chosen = found.chosen
    url = given.pop("url") or (chosen.address if chosen else URL_DEFAULT)
    if chosen is None or not chosen.has(url):
        return ServerAccess(url, **given, context=None, token_command=None)
    if any(given[name] is not None for name in CREDENTIALS):
        return ServerAccess(url, **given, context=found.current, token_command=None)
    given["user"] = chosen.user
    return ServerAccess(url, **given, context=found.current, token_command=chosen.token_command)


def is_server_named() -> bool:
    """Whether the user has named a server for this command: by --url or SOW_URL."""
    return bool(click.get_current_context().meta[ACCESS]["url"])


def _note_access(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    ctx.meta.setdefault(ACCESS, {})[parameter.name] = value


def _note_json(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    ctx.meta[AS_JSON] = value


def _note_yes(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    ctx.meta[WITHOUT_PROMPT] = value


def _access_option(name: str, metavar: str | None, meaning: str, **more: Any) -> Option:
    return click.option(
        f"--{name}",
        envvar=f"SOW_{name.replace('-', '_').upper()}",
        show_envvar=True,
        metavar=metavar,
        expose_value=False,
        callback=_note_access,
        help=meaning,
        **more,
    )


server_options = (
    _access_option(
        "url",
        None,
        "Address of the server, or several of one log: http://a:8080,http://b:8080.",
        show_default=f"that of `sow use`, or {URL_DEFAULT}",
    ),
    _access_option("ca", "FILE", "Certificates of trusted authorities for https://, in PEM form."),
    _access_option(
        "certificate", "FILE", "A certificate that authenticates the user, in PEM form."
    ),
    _access_option(
        "certificate-key",
        "FILE",
        "The key of --certificate, in PEM form, if it is not in the same file.",
    ),
    _access_option(
        "token",
        "TOKEN",
        "A token that authenticates the user. Others on the machine can see a command line.",
    ),
    _access_option("user", "NAME", "The user; the password comes from SOW_PASSWORD or a prompt."),
)
"""The server to talk to, how to trust it, and the user's credentials."""
yes_option = click.option(
    "--yes",
    is_flag=True,
    expose_value=False,
    callback=_note_yes,
    help="Ask nothing; otherwise a terminal asks first.",
)
"""For commands that call `sow.cli.connecting.confirm`."""
json_option = click.option(
    "--json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_note_json,
    help="Write JSON, errors included.",
)


def command(
    *examples: str, options: Iterable[Option] = ()
) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command, with these calls as its examples, these `options` after its own, and
    --json. A coroutine function runs on a new event loop."""

    def declare(function: Callable[..., Any]) -> click.Command:
        if inspect.iscoroutinefunction(function):
            function = _running(function)
        made = click.command(epilog=example(*examples))(function)
        for option in (*options, json_option):
            option(made)
        return made

    return declare


def _running(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(work)
    def call(**given: Any) -> None:
        run(work(**given))

    return call


def example(*lines: str) -> str:
    """The end of a command's help: example calls, one per line."""
    return "\n".join(["\b", "For example:", *(f"  {line}" for line in lines)])


def note_expression(what: str) -> Callable[..., str | None]:
    """Remember an expression, so that an error that begins with this word can point into it."""

    def note(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        ctx.meta.setdefault(EXPRESSIONS, {})[what] = value
        return value

    return note


filter_option = click.option(
    "--filter",
    "filter_text",
    metavar="F",
    callback=note_expression(""),
    help="Only records that match this expression, such as \"/symbol = 'IBM'\".",
)
order_option = click.option(
    "--order-by",
    metavar="O",
    callback=note_expression("order_by"),
    help='Sort, such as "/px DESC, /id" or "/qty * /px".',
)
key_option = click.option(
    "--key", metavar="V,..", help="One record: the values of its key fields, such as XPAR,ACME."
)
select_option = click.option(
    "--select",
    metavar="S",
    callback=note_expression("select"),
    help='Only these fields, such as "/id,/px" or "-/notes".',
)
projection_option = click.option(
    "--projection",
    metavar="P",
    callback=note_expression("projection"),
    help='Rows made of groups of records, such as "/desk, SUM(/qty) AS /qty".',
)
grouping_option = click.option(
    "--grouping",
    metavar="G",
    callback=note_expression("grouping"),
    help='With --projection: the fields that make a group, such as "/desk,/symbol".',
)


def pairs(
    _ctx: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """Values of options of the form NAME=VALUE, by name."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        found[name] = value
    return found


variables_option = click.option(
    "--set",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    callback=pairs,
    help="The value of ${NAME} in the file; the default is the environment's.",
)


def run(
    work: Coroutine[Any, Any, Result],
    make_loop: "Callable[[], asyncio.AbstractEventLoop] | None" = None,
) -> Result:
    """Run the asynchronous part of a command, on a new event loop."""
    import asyncio  # takes 35 ms, which `sow --help` and `sow --version` need not wait for

    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(work)


SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SOW_COMPLETE"
"""The variable through which the script requests candidates; click derives its name."""
WITHIN_S = 0.5
"""Timeout: a server on the same continent answers in time, and users do not wait longer."""
OFFERED_MAX = 200
"""The most names to offer; shells confirm before they show more than a page or two."""
WORD = re.compile(r"[\w/][\w./%@+-]*", re.ASCII)
"""A name that every shell takes as one plain word."""


@click.command(
    epilog=example(
        "sow completion bash > ~/.local/share/bash-completion/completions/sow",
        'eval "$(sow completion zsh)"',
        "sow completion fish > ~/.config/fish/completions/sow.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Write the script that completes commands and options in SHELL."""
    made_for = get_completion_class(shell)
    assert made_for is not None  # click has all of SHELLS
    root = click.get_current_context().find_root().command
    click.echo(made_for(root, {}, "sow", VARIABLE).source(), nl=False)


def topic_names(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The topics whose names begin with `incomplete`, as click completions."""
    if incomplete and not WORD.fullmatch(incomplete):
        return []
    try:
        found = run(_requested(ctx, incomplete))
    except (SowError, OSError, TimeoutError, ValueError):
        return []
    names = found if isinstance(found, list) else []
    return [CompletionItem(one) for one in names if isinstance(one, str) and WORD.fullmatch(one)]


async def _requested(ctx: click.Context, prefix: str) -> object:
    from asyncio import timeout  # as in `run`

    made = _client(ctx)  # its modules may take as long to read as a server to answer
    async with timeout(WITHIN_S), made as client:
        question = {"prefix": prefix, "top_n": OFFERED_MAX, "names": True}
        return await client.http.json("GET", "/v1/topics", question)


def _client(ctx: click.Context) -> Any:
    """A client of the server that the command would use."""
    # Imported here: shells run `sow completion` when they start.
    from sow.client import Client

    given = access(ctx)
    servers = [urlsplit(url) for url in listed(given.url)]
    user, password = given.user, os.environ.get("SOW_PASSWORD")
    is_safe = all(one.scheme == "https" or is_loopback(one.hostname or "") for one in servers)
    credentials: dict[str, Any] = {}
    if is_safe and user is None:
        credentials = {"token": given.token}
    elif is_safe and password is not None:
        credentials = {"user": user, "password": password}
    return Client(given.url, name="sow completion", ca=given.ca, **credentials)


topic_argument = click.argument("topic", shell_complete=topic_names)
