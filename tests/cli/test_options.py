"""Options that several commands share mean one thing in all of them, and complete in a shell."""

import asyncio
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli import options as module
from sow.cli.main import SUBCOMMANDS
from sow.cli.options import (
    ACCESS,
    OFFERED_MAX,
    SHELLS,
    VARIABLE,
    access,
    command,
    filter_option,
    order_option,
    run,
    server_options,
    topic_names,
    variables_option,
)
from sow.cli.output import AS_JSON, EXPRESSIONS
from tests import forks
from tests.cli.terminal import Terminal


@command("show --filter '/a = 1'", "show --json", options=server_options)
@filter_option
@order_option
@variables_option
@click.pass_context
def show(ctx, filter_text, order_by, variables):
    click.echo(json.dumps([filter_text, order_by, variables, access().url]))
    click.echo(json.dumps([ctx.meta[AS_JSON], ctx.meta[EXPRESSIONS]]))


def shown(*arguments, **more):
    result = CliRunner().invoke(show, arguments, **more)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_expressions_are_remembered_by_what_an_error_of_theirs_begins_with():
    _, (as_json, expressions) = shown("--filter", "/a = 1", "--order-by", "/b", "--json")
    assert as_json
    assert expressions == {"": "/a = 1", "order_by": "/b"}


def test_the_address_is_given_or_the_environments_or_loopback():
    assert shown()[0][3] == "http://127.0.0.1:8080"
    assert shown(env={"SOW_URL": "http://there"})[0][3] == "http://there"
    assert shown("--url", "http://here", env={"SOW_URL": "http://there"})[0][3] == "http://here"


def test_variables_may_hold_equals_signs_and_nothing():
    assert shown("--set", "A=b=c", "--set", "B=")[0][2] == {"A": "b=c", "B": ""}


@pytest.mark.parametrize("text", ["A", "=b", ""])
def test_a_variable_without_a_name_or_value_is_wrong_usage(text):
    result = CliRunner().invoke(show, ["--set", text])
    assert (result.exit_code, "is not NAME=VALUE" in result.stderr) == (2, True)


def test_the_help_ends_with_what_all_commands_have_and_with_examples():
    text = CliRunner().invoke(show, ["--help"]).stdout
    places = [text.index(f"{option} ") for option in ("--set", "--url", "--ca", "--user", "--json")]
    assert places == sorted(places)
    assert text.endswith("  For example:\n    show --filter '/a = 1'\n    show --json\n")


def test_no_option_of_a_command_is_taken_for_another():
    """Two options of one name, as of the user who is asked about and of the one who asks, would
    both have the value of either."""

    def commands(group):
        context = click.Context(group)
        for name in group.list_commands(context):
            one = group.get_command(context, name)
            yield name, one
            if isinstance(one, click.Group):
                yield from commands(one)

    found = dict(commands(main))
    assert len(found) > len(SUBCOMMANDS)
    for name, one in found.items():
        names = [parameter.name for parameter in one.params]
        assert len(names) == len(set(names)), name


def test_a_coroutine_is_run_to_its_end():
    async def work():
        return 7

    assert run(work()) == 7

    @command()
    @click.argument("word")
    async def echo(word):
        click.echo(word)

    assert CliRunner().invoke(echo, ["seven"]).stdout == "seven\n"


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
PATIENT = """
from sow.cli import main, options
options.WITHIN_S = 60
main(prog_name="sow")
"""


def patient_sow(folder):
    """A folder with a program `sow` that waits for a server as long as a busy machine needs."""
    words = shlex.join([sys.executable, "-P", "-c", PATIENT])
    program = folder / "bin" / "sow"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    return program.parent


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(module, "WITHIN_S", 60)


@contextmanager
def bash(tmp_path, url):
    """A bash that somebody sits at, with the script as it is installed."""
    (tmp_path / "sow.bash").write_text(script("bash"))
    path = f"{patient_sow(tmp_path)}:{os.environ['PATH']}"
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


def test_other_shells_are_sent_topics_by_the_same_protocol(server, tmp_path):
    requested, program = {"SOW_URL": server.url}, patient_sow(tmp_path) / "sow"
    for shell, words in (("zsh", ("sow query or", "2")), ("fish", ("sow query or", "or"))):
        environment = {
            VARIABLE: f"{shell}_complete",
            "COMP_WORDS": words[0],
            "COMP_CWORD": words[1],
        }
        done = subprocess.run(
            [program], capture_output=True, text=True, check=True,
            env={**os.environ, **requested, **environment},
        )  # fmt: skip
        offered = done.stdout.replace("plain,", "").replace("plain\n", "").replace("\n_", "")
        assert (offered.split(), done.stderr) == (["orders", "orders-C"], "")


def offered(url, incomplete="", **given):
    """What stands there after TAB."""
    context = click.Context(click.Command("query"))
    none = dict.fromkeys(["ca", "token", "user", "certificate", "certificate_key"])
    context.meta[ACCESS] = {**none, "url": url, **given}
    return [one.value for one in topic_names(context, SimpleNamespace(), incomplete)]


@contextmanager
def answering(body=b"[]", waits=False):
    """A server that answers all requests alike, or none; yields its address, and what it heard."""
    heard, done = [], threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                one, _ = listening.accept()
            except OSError:
                return
            with one:
                heard.append(one.recv(65536).decode())
                if waits:
                    done.wait(60)
                head = (
                    f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                one.sendall(head.encode() + body)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", heard
    finally:
        done.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def test_topics_are_offered_whose_names_begin_so(server):
    assert offered(server.url, "or") == ["orders", "orders-C"]
    assert {"orders", "desks", "notes"} <= set(offered(server.url))
    assert offered(server.url, "zzz") == []


def test_no_more_are_requested_for_than_are_shown():
    with answering() as (url, heard):
        offered(url, "a")
    assert f"GET /v1/topics?prefix=a&top_n={OFFERED_MAX}&names=true " in heard[0]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "nonsense", "ftp://x", "https://127.0.0.1:1"]
)
def test_a_server_that_is_not_there_offers_nothing_and_says_nothing(url, capfd):
    assert offered(url) == []
    assert capfd.readouterr() == ("", "")


def test_a_server_that_does_not_answer_is_waited_for_a_moment(monkeypatch):
    monkeypatch.setattr(module, "WITHIN_S", 0.05)
    with answering(waits=True) as (url, heard):
        assert offered(url) == []
    assert heard


def test_reading_the_modules_of_a_client_is_no_part_of_that_moment(monkeypatch):
    order, made = [], module._client
    monkeypatch.setattr(module, "_client", lambda ctx: order.append("read") or made(ctx))
    monkeypatch.setattr(
        "asyncio.timeout", lambda _s: order.append("begun") or asyncio.Timeout(None)
    )
    with answering() as (url, _):
        offered(url)
    assert order[:2] == ["read", "begun"]


@pytest.mark.parametrize("body", [b"<html>", b'{"a":1}', b"[1,null]", b'"text"'])
def test_an_answer_that_is_none_offers_nothing(body):
    with answering(body) as (url, _):
        assert offered(url) == []


def test_a_name_that_a_shell_would_carry_out_is_left_out():
    names = ["/my/orders", "a.b-c_1", "a;rm", "$(id)", "a b", "*", "-x", "~", "a\nb", "a:b", "ü"]
    with answering(json.dumps(names).encode()) as (url, heard):
        assert offered(url) == ["/my/orders", "a.b-c_1"]
        assert offered(url, "$(id") == []
    assert len(heard) == 1


def test_credentials_go_to_this_machine_and_over_tls_alone(monkeypatch):
    made = []

    class Noted:
        def __init__(self, url, **how):
            made.append({name: how.get(name) for name in ("token", "user", "password")})
            raise OSError

    monkeypatch.setattr("sow.client.Client", Noted)
    said = {"token": "t", "user": None, "password": None}
    nothing = dict.fromkeys(said)
    for url in (
        "http://127.0.0.1:8080",
        "http://localhost",
        "http://[::1]:1",
        "https://far.example",
    ):
        offered(url, token="t")
        assert made.pop() == said, url
    for url in ("http://far.example", "http://localhost,http://far.example"):
        offered(url, token="t")
        assert made.pop() == nothing
    monkeypatch.delenv("SOW_PASSWORD", raising=False)
    offered("http://localhost", user="ann")
    assert made.pop() == nothing, "no password prompt"
    monkeypatch.setenv("SOW_PASSWORD", "p")
    offered("http://localhost", user="ann", token="t")
    assert made.pop() == {"token": None, "user": "ann", "password": "p"}
