"""Options that several commands have, declared once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from sow.cli.report import AS_JSON, EXPRESSIONS
from sow.core.definitions import URL_DEFAULT

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")
CA_OPTION, TOKEN_OPTION, USER_OPTION, CERTIFICATE_OPTION, CERTIFICATE_KEY_OPTION = ACCESS = (
    "ca", "token", "user", "certificate", "certificate_key",
)  # fmt: skip
"""Context keys under which a command finds these options of trust and credentials."""


def _note_json(ctx: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    ctx.meta[AS_JSON] = value
    return value


def note_expression(what: str) -> Callable[..., str | None]:
    """Remember an expression, so that an error that begins with this word can point into it."""

    def note(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        ctx.meta.setdefault(EXPRESSIONS, {})[what] = value
        return value

    return note


def _note_access(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    ctx.meta[str(parameter.name)] = value


def url_option(command: Command) -> Command:
    """The server to talk to, the user's credentials, and how to trust the server."""
    command = click.option(
        "--user",
        envvar="SOW_USER",
        show_envvar=True,
        metavar="NAME",
        expose_value=False,
        callback=_note_access,
        help="The user; the password comes from SOW_PASSWORD or a prompt.",
    )(command)
    command = click.option(
        "--token",
        envvar="SOW_TOKEN",
        show_envvar=True,
        metavar="TOKEN",
        expose_value=False,
        callback=_note_access,
        help="A token that authenticates the user. Others on the machine can see a command line.",
    )(command)
    command = click.option(
        "--certificate-key",
        envvar="SOW_CERTIFICATE_KEY",
        show_envvar=True,
        metavar="FILE",
        expose_value=False,
        callback=_note_access,
        help="The key of --certificate, in PEM form, if it is not in the same file.",
    )(command)
    command = click.option(
        "--certificate",
        envvar="SOW_CERTIFICATE",
        show_envvar=True,
        metavar="FILE",
        expose_value=False,
        callback=_note_access,
        help="A certificate that authenticates the user, in PEM form.",
    )(command)
    command = click.option(
        "--ca",
        envvar="SOW_CA",
        show_envvar=True,
        metavar="FILE",
        expose_value=False,
        callback=_note_access,
        help="Certificates of trusted authorities for https://, in PEM form.",
    )(command)
    return click.option(
        "--url",
        envvar="SOW_URL",
        default=URL_DEFAULT,
        show_default=True,
        show_envvar=True,
        help="Address of the server.",
    )(command)


def json_option(command: Command) -> Command:
    """JSON output and errors, for programs."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,
        callback=_note_json,
        help="Write JSON, errors included.",
    )(command)


def filter_option(command: Command) -> Command:
    """Which records."""
    return click.option(
        "--filter",
        "filter_text",
        metavar="F",
        callback=note_expression(""),
        help="Only records that match this expression, such as \"/symbol = 'IBM'\".",
    )(command)


def order_option(command: Command) -> Command:
    """The sort order."""
    return click.option(
        "--order-by",
        metavar="O",
        callback=note_expression("order_by"),
        help='Sort, such as "/px DESC, /id" or "/qty * /px".',
    )(command)


def select_option(command: Command) -> Command:
    """Which fields."""
    return click.option(
        "--select",
        metavar="S",
        callback=note_expression("select"),
        help='Only these fields, such as "/id,/px" or "-/notes".',
    )(command)


def groups_options(command: Command) -> Command:
    """Rows of groups of records instead of records."""
    command = click.option(
        "--grouping",
        metavar="G",
        callback=note_expression("grouping"),
        help='With --projection: the fields that make a group, such as "/desk,/symbol".',
    )(command)
    return click.option(
        "--projection",
        metavar="P",
        callback=note_expression("projection"),
        help='Rows made of groups of records, such as "/desk, SUM(/qty) AS /qty".',
    )(command)


def example(*lines: str) -> str:
    """The end of a command's help: example calls, one per line."""
    return "\n".join(["\b", "For example:", *(f"  {line}" for line in lines)])


def variables_option(command: Command) -> Command:
    """Values of ${NAME} in the configuration."""
    return click.option(
        "--set",
        "variables",
        multiple=True,
        metavar="NAME=VALUE",
        callback=pairs,
        help="The value of ${NAME} in the file; the default is the environment's.",
    )(command)


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


def run(
    work: Coroutine[Any, Any, Result],
    make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Result:
    """Run the asynchronous part of a command, on a new event loop."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(work)
