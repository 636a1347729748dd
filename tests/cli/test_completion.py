"""`sow completion`: what a shell completes with the script that it writes."""

import os
import subprocess
import sys
from contextlib import contextmanager

import click
import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli.completion import SHELLS, VARIABLE
from sow.cli.main import SUBCOMMANDS
from tests import forks
from tests.cli.terminal import Terminal


def script(shell):
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    return result.stdout


def completed_by_bash(*words):
    """What TAB offers for the last of these words, in a real bash."""
    line = " ".join(words)
    requested = f"""COMP_WORDS=({line}) COMP_CWORD={len(words) - 1}
_sow_completion sow; printf "%s\n" "${{COMPREPLY[@]}}" """
    done = subprocess.run(
        ["bash", "-c", f"{script('bash')}\n{requested}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{forks.programs()}:{os.environ['PATH']}"},
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
    requested = {VARIABLE: f"{shell}_complete", "COMP_WORDS": "sow to", "COMP_CWORD": "to"}
    if shell == "zsh":
        requested["COMP_CWORD"] = "1"
    done = subprocess.run(
        [forks.programs() / "sow"],
        capture_output=True,
        text=True,
        env={**os.environ, **requested},
        check=True,
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


BASH = ("bash", "--norc", "--noprofile", "-i")


@contextmanager
def bash(tmp_path, url):
    """A bash that somebody sits at, with the script as it is installed."""
    (tmp_path / "sow.bash").write_text(script("bash"))
    path = f"{forks.programs()}:{os.environ['PATH']}"
    with Terminal(program=BASH, TERM="dumb", PS1="> ", PATH=path, SOW_URL=url) as terminal:
        terminal.type(f"source {tmp_path}/sow.bash; echo re''ady\n")
        terminal.wait_for(r"(?m)^ready\n>")
        yield terminal


def test_tab_completes_what_somebody_types_and_the_topics_of_the_server(server, tmp_path):
    with bash(tmp_path, server.url) as terminal:
        terminal.type("sow wat\t")
        terminal.wait_for("sow watch$")
        terminal.type("orde\t")
        terminal.wait_for("sow watch orders$")
        terminal.type("\t\t")
        shown = terminal.wait_for(r"orders\s+orders-C")
        assert "Traceback" not in shown
        terminal.type("-\t--fi\t")
        terminal.wait_for("sow watch orders-C --filter")


def test_tab_is_silent_while_the_server_is_away(tmp_path):
    with bash(tmp_path, "http://127.0.0.1:1") as terminal:
        terminal.type("sow query o\t\t\t; echo do''ne\x01echo be''gun; \n")
        shown = terminal.wait_for("(?m)^begun$")
        assert "connect" not in shown
        assert "Traceback" not in shown


def test_other_shells_are_sent_topics_by_the_same_protocol(server):
    requested = {"SOW_URL": server.url}
    for shell, words in (("zsh", ("sow query or", "2")), ("fish", ("sow query or", "or"))):
        environment = {
            VARIABLE: f"{shell}_complete",
            "COMP_WORDS": words[0],
            "COMP_CWORD": words[1],
        }
        done = subprocess.run(
            [forks.programs() / "sow"], capture_output=True, text=True, check=True,
            env={**os.environ, **requested, **environment},
        )  # fmt: skip
        offered = done.stdout.replace("plain,", "").replace("plain\n", "").replace("\n_", "")
        assert (offered.split(), done.stderr) == (["orders", "orders-C"], "")
