"""`sow check`: finds every mistake in a config.xml without starting a server.

With --as it shows what a user would see of a topic, and why, for authors of roles: each `<Allow>`
of the topic and what it grants this user, the result of all of them, and, if a server runs, the
number of visible records. Nobody logs on: the user's groups come from the files of users and
tokens, or from options.

If a server runs, its records show which fields none of them has: mostly misspelt ones. A View that
sums /qyt is valid, and its sums are null; a hash index of such a field is empty. A topic without
records, or one that the server does not have yet, says nothing.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import click

from sow.cli.options import (
    command,
    filter_option,
    is_server_named,
    pairs,
    run,
    server_options,
    variables_option,
)
from sow.cli.output import show
from sow.config import Finding, Loaded, load, require
from sow.config.diagnostics import file_of
from sow.config.document import COMMENT
from sow.config.elements import Element
from sow.config.elements.table import INCLUDE, ROOT
from sow.core.definitions import Configuration, Topic, View
from sow.core.humanize import counted
from sow.core.media_types import ADVICE_HEADER
from sow.core.paths import Path, parse_path
from sow.core.pipelines import Pipeline
from sow.core.security_definitions import OF_TOPICS, Authentication, Security, User
from sow.errors import ClientError, ConfigError, UnknownTopic, clipped, shown
from sow.expressions import Identifier, Node, compile_filter, parse_grouped, parse_projected, walk
from sow.security.authentication.htpasswd import Users
from sow.security.authentication.tokens import read_lines
from sow.security.authorization import Reason, RoleSet
from sow.security.row_level_security import DENY_ALL

if TYPE_CHECKING:
    from sow.client import Client


@command("sow check", "sow check desk.xml orders --as ann", options=server_options)
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
@variables_option
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
    variables: dict[str, str],
) -> None:
    """Validate CONFIG (config.xml) and name every mistake with its line.

    Each finding is one line: file, line, element, error or warning, what is wrong, what to write
    instead. The last line counts them. With --url or SOW_URL sow looks for fields of Views
    and hash indexes that no record has. With --as, show what a user of CONFIG would see of TOPIC.
    """
    if xsd:
        click.echo(schema(), nl=False)
        return
    config, topic = _named(words, topic_too=as_user is not None)
    if as_user is not None:
        security = require(config, variables, os.environ).security
        if security.authentication is None:
            raise ClientError(f"{config} has no Authentication: everybody sees everything")
        user = _user(security.authentication, as_user, groups, claims)
        found = seen(RoleSet(security), user, topic, filter_text)
        if count and "read" in found["may"]:
            found["matches"] = run(_count(topic, found["rows"]))
        show(found, "\n".join(lines(found)))
        return
    loaded = load(config, variables, os.environ).checked
    loaded = _with_files(config, loaded)
    if spark and loaded.configuration is not None:
        loaded = _parsed(config, loaded, loaded.configuration.pipelines)
    if loaded.configuration is not None and is_server_named():
        loaded = loaded.with_warnings(run(_absent(config, loaded.configuration)))
    show([dataclasses.asdict(found) for found in loaded.findings], lambda: _write(config, loaded))
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
            file_of(one.line) or config, one.line, "SQL", "error", f"pipeline {one.name}: {problem}"
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
    return loaded.with_warnings(found)


async def _absent(config: str, configuration: Configuration) -> list[Finding]:
    """Warnings of fields that no record of the server at --url has."""
    # Imported here: a check without a server needs no client.
    from sow.cli.connecting import connected

    async with connected() as client:
        return await absent_fields(client, config, fields_of(configuration))


def unreadable(security: Security) -> Iterator[tuple[str, str]]:
    """The problem of each unreadable file that a configuration names, with its element."""
    # Imported here: a configuration without Security does not need these libraries.
    from sow.security.authentication.jwt import FiledKeys
    from sow.server.http.connections import server_context

    requested: list[tuple[str, Callable[[], object]]] = []
    if tls := security.tls:
        requested.append(("TLS", lambda: server_context(tls)))
    if by := security.authentication:
        if by.users_file:
            requested.append(("Users", lambda: Users.read(by.users_file)))
        if by.tokens_file:
            requested.append(("Tokens", lambda: read_lines(by.tokens_file)))
        if by.jwt and not by.jwt.keys.startswith("https://"):
            keys = by.jwt.keys
            requested.append(("JWT", lambda: FiledKeys(keys)))
    for element, reading in requested:
        try:
            reading()
        except ConfigError as error:
            yield element, str(error)


def _write(config: str, loaded: Loaded) -> None:
    for finding in loaded.findings:
        click.echo(finding.labelled)
    warnings = counted(len(loaded.warnings), "warning")
    if loaded.configuration is None:
        click.echo(f"{config}: {counted(len(loaded.errors), 'error')}, {warnings}")
    else:
        found = [counted(len(loaded.configuration.topics), "topic")]
        found += [warnings] if loaded.warnings else []
        click.echo(f"{config}: ok ({', '.join(found)})")


Seen = dict[str, Any]
"""What a user sees, as JSON."""


def seen(role_set: RoleSet, user: User, topic: str, filter_text: str | None) -> Seen:
    """What a user would see of a topic, of the records that match a filter; raises ClientError."""
    rights = role_set.rights(user)
    guard = rights.guard(topic) if rights.may("read", topic) else DENY_ALL
    own = compile_filter(filter_text) if filter_text else None
    condition = own if guard is None else guard.condition(own)
    return {
        "user": user.name,
        "groups": sorted(user.groups),
        "topic": topic,
        "may": [verb for verb in OF_TOPICS if rights.may(verb, topic)],
        "because": [_because(one) for one in role_set.reasons(user, topic)],
        "rows": None if condition is None else str(condition.expression),
        "fields": None if guard is None or guard.select is None else list(guard.select),
    }


def lines(found: Seen) -> list[str]:
    """The same as text."""
    subject = found["user"] + (f" ({', '.join(found['groups'])})" if found["groups"] else "")
    if not found["may"]:
        sentences = [f"{subject} does not see {found['topic']}"]
    else:
        sentences = [f"{subject} may {', '.join(found['may'])} {found['topic']}"]
    sentences += [f"  {line}" for line in found["because"]]
    if "read" in found["may"]:
        sentences.append(f"rows: {found['rows'] or 'all'}")
        sentences.append(f"fields: {','.join(found['fields']) if found['fields'] else 'all'}")
    if "matches" in found:
        sentences.append(f"matches: {found['matches']:,}")
    return sentences


def _because(reason: Reason) -> str:
    allowed, given = reason.allowed, reason.given
    verbs = ", ".join(verb for verb in OF_TOPICS if verb in allowed.verbs)
    start = f"role {reason.role} allows to {verbs} {allowed.topic}"
    if given is None:
        return f"{start} by a claim that this user lacks: it grants nothing"
    parts = [f"rows {given.rows}" if given.rows is not None else ""]
    parts.append(f"fields {','.join(given.select)}" if given.select else "")
    parts.append(f"check {given.check}" if given.check is not None else "")
    return "; ".join([start, *filter(None, parts)])


def _user(by: Authentication, name: str, groups: Sequence[str], claims: Mapping[str, str]) -> User:
    """The user of this name, with groups from the files and from options."""
    known = set(groups)
    is_known = bool(groups or claims) or by.jwt is not None or by.client_certificates
    if by.users_file:
        users = Users.read(by.users_file)
        is_known |= name in users.hashes
        known |= users.groups(name)
    if by.tokens_file:
        lines_of = [line for line in read_lines(by.tokens_file) if line.name == name]
        is_known |= bool(lines_of)
        known |= {group for line in lines_of for group in line.groups}
    if not is_known:
        raise ClientError(
            f"no file of users or tokens has {shown(name)}; if the user logs on otherwise "
            "give --group and --claim"
        )
    return User(name, frozenset(known), claims)


async def _count(topic: str, rows: str | None) -> int:
    """The number of visible records, as the server counts them for the caller."""
    # Imported here: a check without --count needs no client.
    from sow.cli.connecting import connected
    from sow.client.http import records_of

    async with connected() as client:
        requested = {"top_n": 0, "filter": rows}
        async with client.http.request("GET", records_of(topic), requested) as answer:
            return int(answer.headers["SOW-Matches"])


XS = "http://www.w3.org/2001/XMLSchema"
STRING = "xs:string"
WITH_VARIABLE = r"[\s\S]*\$\{[\s\S]*"
"""A value with `${NAME}` in it: what it will be is not known to an editor."""
READ = ("implemented", "no effect", "foreign")
"""The status of elements with which a file runs, warnings or not."""

Lines = list[str]
"""A node of the schema as indented lines."""


def schema() -> str:
    """The schema of config.xml as text."""
    roots = [_node("element", *_about(ROOT), name=name, type=ROOT.name) for name in ROOT.names]
    comment = _node("attribute", name=COMMENT, type=STRING)
    included = _node("simpleContent", _node("extension", comment, base=STRING))
    top = _node(
        "schema",
        *roots,
        _schema_of(ROOT, name=ROOT.name),
        _node("complexType", included, name=INCLUDE.name),
        **{"xmlns:xs": XS},
    )
    return "\n".join(top) + "\n"


def _schema_of(section: Element, **attributes: str) -> Lines:
    """Its elements in any order; what may be an attribute, and own text, too."""
    elements = [
        _element(name, child)
        for child in section.children
        for name in child.names
        if child.status in READ
    ]
    elements.append(_node("element", name=INCLUDE.name, type=INCLUDE.name))
    short = [
        _valued("attribute", name, child)
        for child in section.children
        for name in child.names
        if child.attribute
    ]
    if section.text_child:
        attributes["mixed"] = "true"
    choice = _node("choice", *elements, minOccurs="0", maxOccurs="unbounded")
    return _node("complexType", choice, *short, **attributes)


def _element(name: str, element: Element) -> Lines:
    about = _about(element)
    if element.status != "implemented":  # it is not looked into
        return _node("element", *about, name=name, type="xs:anyType")
    if element.kind is None:
        return _node("element", *about, _schema_of(element), name=name)
    return _valued("element", name, element, *about)


def _valued(tag: str, name: str, element: Element, *about: Lines) -> Lines:
    """One of the words of its kind, or a variable; any text where the kind is no list of words."""
    assert element.kind is not None
    if not element.kind.words:
        return _node(tag, *about, name=name, type=STRING)
    words = [_node("enumeration", value=word) for word in element.kind.words]
    variable = _node("pattern", value=WITH_VARIABLE)
    union = _node(
        "union",
        _node("simpleType", _node("restriction", *words, base="xs:token")),
        _node("simpleType", _node("restriction", variable, base=STRING)),
    )
    return _node(tag, *about, _node("simpleType", union), name=name)


def _about(element: Element) -> list[Lines]:
    default = f" Default: {element.default}." if element.default else ""
    text = f"{element.about}{default}".strip()
    if not text:
        return []
    return [_node("annotation", [f"<xs:documentation>{escape(text)}</xs:documentation>"])]


def _node(tag: str, *inside: Lines, **attributes: str) -> Lines:
    start = f"<xs:{tag}" + "".join(f" {name}={quoteattr(v)}" for name, v in attributes.items())
    if not inside:
        return [f"{start}/>"]
    return [f"{start}>", *(f"  {line}" for part in inside for line in part), f"</xs:{tag}>"]


PLAIN = re.compile(r"(/[\w@.-]+)+")
"""A path that a select list can name as it is written, as nearly all are."""


class Named(NamedTuple):
    """A field of a topic that an element names, which stands in a line of the file."""

    element: str
    line: int
    subject: str
    topic: str
    path: Path


def fields_of(configuration: Configuration) -> Iterator[Named]:
    """The fields that Views and hash indexes name."""
    for definition in configuration.topics:
        name, line = definition.name, definition.line
        if isinstance(definition, View):
            for topic, path in _of_view(definition):
                yield Named("View", line, name, topic, path)
        if isinstance(definition, Topic):
            for index in definition.hash_indexes:
                for text in index:
                    yield Named("HashIndex", line, name, name, parse_path(text))


def _of_view(view: View) -> Iterator[tuple[str, Path]]:
    texts = [parse_projected(text)[0] for text in view.projection]
    texts += [parse_grouped(text) for text in view.grouping]
    for node in texts:
        yield from _sources(view, node)
    if view.filter is not None:
        yield from _sources(view, compile_filter(view.filter).expression)


def _sources(view: View, node: Node) -> Iterator[tuple[str, Path]]:
    for part in walk(node):
        if isinstance(part, Identifier):
            yield part.topic or view.underlying, part.path


async def absent_fields(client: "Client", file: str, named: Iterable[Named]) -> list[Finding]:
    """Warnings of those that no record of the server has; raises Unreachable, and what the server
    refuses."""
    from sow.topic.missing_fields import ADVICE_MAX

    by_topic: dict[str, dict[Path, Named]] = {}
    for one in named:
        if PLAIN.fullmatch(str(one.path)):
            by_topic.setdefault(one.topic, {}).setdefault(one.path, one)
    found: list[Finding] = []
    for topic, fields in by_topic.items():
        wanted = [*fields]
        for start in range(0, len(wanted), ADVICE_MAX):
            for said in await _advice(client, topic, wanted[start : start + ADVICE_MAX]):
                found += [
                    Finding(file, one.line, one.element, "warning", f"{one.subject}: {said}")
                    for path, one in fields.items()
                    if said.partition("; ")[0] == f"no record has {clipped(str(path))}"
                ]
    return found


async def _advice(client: "Client", topic: str, paths: Sequence[Path]) -> Sequence[str]:
    from sow.client.http import read_advice, records_of

    try:
        question = {"top_n": 0, "select": ",".join(map(str, paths))}
        async with client.http.request("GET", records_of(topic), question) as answer:
            return read_advice(answer.headers.get(ADVICE_HEADER, ""))
    except UnknownTopic:
        return ()
