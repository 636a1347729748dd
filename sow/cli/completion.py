"""`sow completion`: writes the script that completes commands, options and choices in a shell.

It is click's script. It calls `sow` for candidates at each TAB, so it never gets out of date.
"""

import click
from click.shell_completion import get_completion_class

from sow.cli.options import example

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SOW_COMPLETE"
"""The variable through which the script requests candidates; click derives its name."""


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
