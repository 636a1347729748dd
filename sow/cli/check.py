"""`sow check`: everything that is wrong with a config.xml, without starting anything."""

import dataclasses
import os

import click
import orjson

from sow.cli.options import json_option, variables_option
from sow.cli.report import counted
from sow.config import Loaded, load


@click.command()
@click.argument("config", default="config.xml", type=click.Path())
@variables_option
@json_option
@click.pass_context
def check(ctx: click.Context, config: str, variables: dict[str, str], as_json: bool) -> None:
    """Validate CONFIG (config.xml) and name every mistake with its line.

    Each finding is one line: file, line, element, error or warning, what is wrong, what to write
    instead. The last line counts them.
    """
    loaded = load(config, variables, os.environ).checked
    if as_json:
        click.echo(orjson.dumps([dataclasses.asdict(found) for found in loaded.findings]))
    else:
        _show(config, loaded)
    ctx.exit(1 if loaded.configuration is None else 0)


def _show(config: str, loaded: Loaded) -> None:
    for finding in loaded.findings:
        click.echo(finding.labelled)
    warnings = counted(len(loaded.warnings), "warning")
    if loaded.configuration is None:
        click.echo(f"{config}: {counted(len(loaded.errors), 'error')}, {warnings}")
    else:
        found = [counted(len(loaded.configuration.topics), "topic")]
        found += [warnings] if loaded.warnings else []
        click.echo(f"{config}: ok ({', '.join(found)})")
