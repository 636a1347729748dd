"""`sow completion`: what a shell completes with the script that it writes."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli.completion import SHELLS, VARIABLE
from sow.cli.main import SUBCOMMANDS

BIN = Path(sys.executable).parent


def script(shell):
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    return result.stdout


def completed_by_bash(*words):
    """What TAB offers for the last of these words, in a real bash."""
    line = " ".join(words)
    asked = f"""COMP_WORDS=({line}) COMP_CWORD={len(words) - 1}
_sow_completion sow; printf "%s\n" "${{COMPREPLY[@]}}" """
    done = subprocess.run(
        ["bash", "-c", f"{script('bash')}\n{asked}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
        check=True,
    )
    return done.stdout.split()


def test_bash_completes_commands_options_and_choices():
    assert completed_by_bash("sow", "to") == [name for name in SUBCOMMANDS if name[:2] == "to"]
    assert completed_by_bash("sow", "token", "cr") == ["create"]
    assert completed_by_bash("sow", "query", "orders", "--fi") == ["--filter"]
    assert completed_by_bash("sow", "query", "orders", "--format", "n") == ["ndjson"]
    assert completed_by_bash("sow", "completion", "f") == ["fish"]


@pytest.mark.parametrize(("shell", "head"), [("zsh", "#compdef sow"), ("fish", "function ")])
def test_the_scripts_of_other_shells_ask_sow_too(shell, head):
    assert script(shell).lstrip().startswith(head)
    asked = {VARIABLE: f"{shell}_complete", "COMP_WORDS": "sow to", "COMP_CWORD": "to"}
    if shell == "zsh":
        asked["COMP_CWORD"] = "1"
    done = subprocess.run(
        [BIN / "sow"], capture_output=True, text=True, env={**os.environ, **asked}, check=True
    )
    assert {"token", "top"} <= set(done.stdout.replace("plain,", "").split())


def test_completing_a_command_imports_none(monkeypatch):
    def imported(_name):
        raise AssertionError("a command was imported")

    monkeypatch.setattr(sys.modules["sow.cli.main"], "_imported", imported)
    offered = main.shell_complete(click.Context(main), "")
    assert [one.value for one in offered] == list(SUBCOMMANDS)


def test_another_shell_is_refused_with_those_there_are():
    result = CliRunner().invoke(main, ["completion", "tcsh"])
    assert result.exit_code == 2
    assert all(repr(shell) in result.stderr for shell in SHELLS)
