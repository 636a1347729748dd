"""Options that several commands share mean one thing in all of them."""

import json

import click
import pytest
from click.testing import CliRunner

from sow.cli.options import (
    access,
    command,
    filter_option,
    order_option,
    run,
    server_options,
    variables_option,
)
from sow.cli.output import AS_JSON, EXPRESSIONS


@command("show --filter '/a = 1'", "show --json", options=server_options)
@filter_option
@order_option
@variables_option
@click.pass_context
def show(ctx, filter_text, order_by, variables):
    click.echo(json.dumps([filter_text, order_by, variables, access()["url"]]))
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


def test_a_coroutine_is_run_to_its_end():
    async def work():
        return 7

    assert run(work()) == 7

    @command()
    @click.argument("word")
    async def echo(word):
        click.echo(word)

    assert CliRunner().invoke(echo, ["seven"]).stdout == "seven\n"
