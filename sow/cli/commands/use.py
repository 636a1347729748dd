"""`sow use`: make, choose, list and remove contexts, the servers that a user has given names.

It talks to no server: an address that is away now may be the right one, and `sow doctor --server`
says what is wrong with it.
"""

import click

from sow.cli import contexts
from sow.cli.contexts import Context, Contexts
from sow.cli.options import command
from sow.cli.output import printable, show
from sow.client.connector import checked_urls
from sow.errors import ClientError, shown


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
