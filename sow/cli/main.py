"""The group of all commands, and the error handling of all of them.

One table names the commands and imports them on use, so that `sow check` loads no network code. An
error that a user can cause ends in one sentence on stderr and exit code 1 (or click's 2 for wrong
usage); only a bug shows a traceback.
"""

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType

import click
from click.shell_completion import CompletionItem

from conflated_topics.user_texts import nearest
from sow import __version__
from sow.cli.options import example
from sow.cli.output import show_error
from sow.errors import NotAvailable, SowError, shown

WRONG_USAGE = 2
"""The exit code, as in click, for something that does not exist (yet)."""
INTERRUPTED = 130
"""The exit code after Ctrl-C, as in shells: 128 plus the number of SIGINT."""
SERVER_INSTALL = "pip install 'sow[server]'"

SUBCOMMANDS = {
    "serve": "sow.cli.commands.serve",
    "init": "sow.cli.commands.init",
    "check": "sow.cli.commands.check",
    "demo": "sow.cli.commands.demo",
    "tutorial": "sow.cli.commands.tutorial",
    "replay": "sow.cli.commands.replay",
    "query": "sow.cli.commands.query",
    "watch": "sow.cli.commands.query",
    "events": "sow.cli.commands.query",
    "consume": "sow.cli.commands.query",
    "publish": "sow.cli.commands.publish",
    "delete": "sow.cli.commands.publish",
    "reload": "sow.cli.commands.admin",
    "user": "sow.cli.commands.credentials",
    "token": "sow.cli.commands.credentials",
    "topics": "sow.cli.commands.admin",
    "sessions": "sow.cli.commands.admin",
    "why": "sow.cli.commands.admin",
    "ping": "sow.cli.commands.bench",
    "bench": "sow.cli.commands.bench",
    "doctor": "sow.cli.commands.doctor",
    "top": "sow.cli.commands.top",
    "backup": "sow.cli.commands.backup",
    "restore": "sow.cli.commands.backup",
    "verify": "sow.cli.commands.backup",
    "log": "sow.cli.commands.backup",
    "rehearse": "sow.cli.commands.rehearse",
    "dump": "sow.cli.commands.dump",
    "load": "sow.cli.commands.dump",
    "pipeline": "sow.cli.commands.pipeline",
    "repair": "sow.cli.commands.backup",
    "mcp": "sow.cli.commands.mcp",
    "use": "sow.cli.connecting",
    "completion": "sow.cli.options",
}
"""The module of each command, which has an attribute of the command's name."""
SENTENCES = {
    "serve": "Run the server that CONFIG (config.xml) describes, or a server with the topics of "
    "--topic.",
    "init": "Write a first config.xml.",
    "check": "Validate CONFIG (config.xml) and name every mistake with its line.",
    "demo": "Run a server with a live market and show what conflation does.",
    "tutorial": "Show in five minutes what SOW does, with real commands on a scratch server.",
    "replay": "Publish a recorded update stream (Parquet) with its own timing.",
    "query": "Write the records of TOPIC that match, or the rows of groups of them.",
    "watch": "Write the records of TOPIC that match, then each update of them, until Ctrl-C.",
    "events": "Write the events of one record of a series: KEY is its SowKey or its key's values.",
    "consume": "Write the messages of QUEUE as lines, and acknowledge each once it is written.",
    "publish": "Publish the messages of FILE, or of standard input (-), to TOPIC.",
    "delete": 'Delete records of TOPIC by --filter ("1=1" for all), --key or --keys.',
    "reload": "Make the server read its configuration again, and show what changed.",
    "user": "Add, remove and list users and their passwords.",
    "token": "Create, remove and list tokens.",
    "topics": "List the topics of a server; those of a pattern are one line.",
    "sessions": "List sessions, those furthest behind first; or describe the session ID.",
    "why": "Explain one record of TOPIC: KEY is its SowKey or its key's values, or --filter "
    "finds it.",
    "ping": "Measure how long the server takes to answer and, with --topic, to make a message "
    "durable and to deliver it to a subscriber.",
    "bench": "Measure durable publishes, queries and subscriptions.",
    "doctor": "Check a machine or a server, and suggest what to do.",
    "top": "Show what a server is doing: rates, conflation, waiting messages, slow sessions.",
    "backup": "Copy everything a running server stores, as of one moment, to a new local "
    "DIRECTORY.",
    "restore": "Make DATA_DIRECTORY, which must be empty or missing, from BACKUP.",
    "verify": "Verify every checksum of stored data, and name each damaged file.",
    "log": "Look at a shared log, verify it and trim it; move data in and out.",
    "rehearse": "Replay a log under another configuration, and show what would differ.",
    "dump": "Write the records of TOPIC to FILE, or to standard output, as they are at one moment.",
    "load": "Publish the records of FILE, or of standard input (-), to TOPIC.",
    "pipeline": "List and run the pipelines of a configuration.",
    "repair": "Keep the intact part of PATH in DATA_DIRECTORY, and set the damaged file aside.",
    "mcp": "Serve a model: tools to list, query, explain and watch topics, by the Model Context "
    "Protocol.",
    "use": "Make NAME the server that commands use: a context, made by --address; without NAME "
    "list all.",
    "completion": "Write the script that completes commands and options in SHELL.",
}
"""The first sentence of each command's help, so that `sow --help` imports none of them: all
together are a server, and take half a second."""


def _imported(name: str) -> ModuleType:
    """Import a module with the garbage collector off: modules stay, and repeated collections take
    a tenth of the time of a server's start."""
    if name in sys.modules:
        return sys.modules[name]
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def _is_library(error: ModuleNotFoundError) -> bool:
    """Whether a library is missing, and not a module of this package, which would be a bug."""
    return (error.name or "").split(".")[0] not in ("sow", "conflated_topics")


def _without(command: str, library: str | None) -> click.Command:
    """A placeholder for a command whose libraries are not installed; it names what to install.

    The command line comes with the client; the server's libraries are an extra of the package
    (docs/decisions/001-parts.md).
    """

    def refuse(**_given: object) -> None:
        raise ModuleNotFoundError(name=library)

    return click.Command(
        command,
        callback=refuse,
        help=f"Not installed here: {SERVER_INSTALL}.",
        add_help_option=False,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
    )


class LazyGroup(click.Group):
    """Imports a command on first use, and reports its errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All commands, in the order of the table."""
        return list(SUBCOMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        """The command of this name, imported now."""
        module = SUBCOMMANDS.get(cmd_name)
        if module is None:
            return None
        try:
            command: click.Command = getattr(_imported(module), cmd_name)
        except ModuleNotFoundError as error:
            if not _is_library(error):
                raise
            return _without(cmd_name, error.name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of all commands, by their sentences, whole."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SENTENCES.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of this name, or an error that suggests a similar one."""
        name = args[0]
        if name in SUBCOMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        meant = nearest(name, SUBCOMMANDS)
        instead = f"did you mean {meant}?" if meant else "sow --help lists all"
        raise click.UsageError(f"there is no command {shown(name)}; {instead}", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completions. Commands complete by name alone, so that TAB does not import all of them."""
        names = [name for name in SUBCOMMANDS if name.startswith(incomplete)]
        return [*map(CompletionItem, names), *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> object:
        """Run a command and handle its errors."""
        try:
            return super().invoke(ctx)
        except SowError as error:
            show_error(ctx, error)
            ctx.exit(WRONG_USAGE if isinstance(error, NotAvailable) else 1)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except click.Abort as error:
            # Ctrl-C or the end of input at a prompt of click.
            if not isinstance(error.__context__, KeyboardInterrupt):
                raise
            click.echo(err=True)
            ctx.exit(INTERRUPTED)
        except ModuleNotFoundError as error:
            if not _is_library(error):
                raise
            requested = ctx.invoked_subcommand
            click.echo(
                f"sow: sow {requested} needs the server's libraries, and {error.name} is not "
                f"installed; {SERVER_INSTALL}",
                err=True,
            )
            ctx.exit(1)
        except BrokenPipeError:
            # The reader of the output has closed it, as in `sow query … | head`. The rest of it is
            # dropped silently, also at the end of the process.
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            click.echo(f"sow: {where}{error.strerror or error}", err=True)
            ctx.exit(1)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=example(
        "sow demo",
        "sow serve config.xml",
        "sow query orders --filter '/qty > 10'",
        "sow watch orders-C",
    ),
)
@click.version_option(__version__, prog_name="sow", message="%(prog)s %(version)s")
def main() -> None:
    """SOW, a state-of-the-world server: serve, query and follow topics."""
    # Bodies are UTF-8 whatever the locale is; a terminal in another encoding shows what it can.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
