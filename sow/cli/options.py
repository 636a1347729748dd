"""Options that several commands have, declared once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from sow.cli.report import AS_JSON, EXPRESSIONS
from sow.core.definitions import URL_DEFAULT

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")
CA_SAID, TOKEN_SAID, USER_SAID, CERTIFICATE_SAID, CERTIFICATE_KEY_SAID = ACCESS = (
    "ca", "token", "user", "certificate", "certificate_key",
)  # fmt: skip
"""Where a command keeps what these options say of trust, and of who asks."""


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
    """Which server to talk to, who asks, and by what to know the server again."""
    command = click.option(
        "--user",
        envvar="SOW_USER",
        show_envvar=True,
        metavar="NAME",
        expose_value=False,
        callback=_note_access,
        help="Who asks; his password is SOW_PASSWORD, or is asked for.",
    )(command)
    command = click.option(
        "--token",
        envvar="SOW_TOKEN",
        show_envvar=True,
        metavar="TOKEN",
        expose_value=False,
        callback=_note_access,
        help="A secret that says who asks. All users of the machine see what is on a command line.",
    )(command)
    command = click.option(
        "--certificate-key",
        envvar="SOW_CERTIFICATE_KEY",
        show_envvar=True,
        metavar="FILE",
        expose_value=False,
        callback=_note_access,
        help="The key of --certificate, in PEM form, where it is not in the same file.",
    )(command)
    command = click.option(
        "--certificate",
        envvar="SOW_CERTIFICATE",
        show_envvar=True,
        metavar="FILE",
        expose_value=False,
        callback=_note_access,
        help="A certificate that says who asks, in PEM form.",
    )(command)
    command = click.option(
        "--ca",
        envvar="SOW_CA",
        show_envvar=True,
        metavar="FILE",
        expose_value=False,
        callback=_note_access,
        help="Certificates by which a server at https:// is trusted, in PEM form.",
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
    """Output and errors for programs."""
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
    """In which order."""
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
    """Rows of groups of records in place of records."""
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
    """The end of a command's help: how it may be called, a line each."""
    return "\n".join(["\b", "For example:", *(f"  {line}" for line in lines)])


def variables_option(command: Command) -> Command:
    """What ${NAME} stands for in the configuration."""
    return click.option(
        "--set",
        "variables",
        multiple=True,
        metavar="NAME=VALUE",
        callback=pairs,
        help="What ${NAME} in the file stands for; else the environment is asked.",
    )(command)


def pairs(
    _ctx: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """What was given as NAME=VALUE, by name."""
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
    """Run a command's asynchronous part, on a loop that is made for it."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(work)
