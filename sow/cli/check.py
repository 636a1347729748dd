"""`sow check`: finds every mistake in a config.xml without starting a server."""

import dataclasses
import os
from collections.abc import Sequence

import click

from sow.cli.credential_files import unreadable
from sow.cli.options import example, filter_option, json_option, pairs, url_option, variables_option
from sow.cli.plain_output import json_text
from sow.config import Finding, Loaded, load
from sow.config.diagnostics import file_of
from sow.config.reference import schema
from sow.core.humanize import counted
from sow.core.pipelines import Pipeline
from sow.errors import shown


@click.command(epilog=example("sow check", "sow check desk.xml orders --as ann"))
@click.argument("words", nargs=-1, metavar="[CONFIG] [TOPIC]")
@click.option("--spark", is_flag=True, help="Let Spark's parser read the SQL of pipelines too.")
@click.option("--xsd", is_flag=True, help="Write the XML schema of CONFIG, for editors, and end.")
@click.option("--as", "as_user", metavar="USER", help="Show what USER would see of TOPIC, and why.")
@click.option("--group", "groups", multiple=True, help="USER is in this group too; repeated.")
@click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="NAME=VALUE",
    callback=pairs,
    help="An attribute of USER, ${user.NAME} in roles; repeated.",
)
@filter_option
@click.option("--count", is_flag=True, help="Let the server at --url count what USER would see.")
@url_option
@variables_option
@json_option
@click.pass_context
def check(
    ctx: click.Context,
    words: tuple[str, ...],
    spark: bool,
    xsd: bool,
    as_user: str | None,
    groups: tuple[str, ...],
    claims: dict[str, str],
    filter_text: str | None,
    count: bool,
    url: str,
    variables: dict[str, str],
    as_json: bool,
) -> None:
    """Validate CONFIG (config.xml) and name every mistake with its line.

    Each finding is one line: file, line, element, error or warning, what is wrong, what to write
    instead. The last line counts them. With --as, show what a user of CONFIG would see of TOPIC.
    """
    if xsd:
        click.echo(schema(), nl=False)
        return
    config, topic = _named(words, topic_too=as_user is not None)
    if as_user is not None:
        # Imported here: it loads the client, which only --as needs.
        from sow.cli.permission_check import lines, seen

        found = seen(
            config,
            variables,
            as_user,
            topic,
            groups=groups,
            claims=claims,
            filter_text=filter_text,
            url=url if count else None,
        )
        click.echo(json_text(found) if as_json else "\n".join(lines(found)))
        return
    loaded = load(config, variables, os.environ).checked
    loaded = _with_files(config, loaded)
    if spark and loaded.configuration is not None:
        loaded = _parsed(config, loaded, loaded.configuration.pipelines)
    if as_json:
        click.echo(json_text([dataclasses.asdict(found) for found in loaded.findings]))
    else:
        _show(config, loaded)
    ctx.exit(1 if loaded.configuration is None else 0)


def _named(words: Sequence[str], topic_too: bool) -> tuple[str, str]:
    """The configuration and the topic that the arguments name."""
    if topic_too and not words:
        raise click.UsageError("--as needs a TOPIC: sow check CONFIG TOPIC --as USER")
    if len(words) > 1 + topic_too:
        raise click.UsageError(f"unexpected argument {shown(words[-1])}")
    named = list(words)
    topic = named.pop() if topic_too else ""
    return named[0] if named else "config.xml", topic


def _parsed(config: str, loaded: Loaded, pipelines: Sequence[Pipeline]) -> Loaded:
    """The findings, with the errors that Spark's parser reports in queries."""
    from sow.spark.session import problems, spark_java

    requested = [one for one in pipelines if one.sql is not None]
    if not requested:
        return loaded
    with spark_java() as jvm:
        found = problems(jvm, [one.sql or "" for one in requested])
    errors = [
        Finding(
            file_of(one.line) or config,
            one.line,
            "SQL",
            "error",
            f"pipeline {one.name}: {problem}",
        )
        for one, problem in zip(requested, found, strict=True)
        if problem
    ]
    return loaded.with_errors(errors)


def _with_files(config: str, loaded: Loaded) -> Loaded:
    """The findings, with problems of the files that Security names. They are warnings: the secrets
    need not be on the machine that checks a configuration."""
    if loaded.configuration is None:
        return loaded
    found = [
        Finding(config, 1, element, "warning", f"the server would not start here: {wrong}")
        for element, wrong in unreadable(loaded.configuration.security)
    ]
    return dataclasses.replace(loaded, findings=(*loaded.findings, *found)) if found else loaded


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
