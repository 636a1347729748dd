"""Fields of a configuration that no record of a running server has: mostly misspelt ones.

A View that sums /qyt is valid, and its sums are null; a hash index of such a field is empty. Only
records can tell, so `sow check` asks a server that has some. A topic without records, or one that
the server does not have yet, says nothing.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sow.client import Client
from sow.client.http import read_advice, records_of
from sow.config import Finding
from sow.core.definitions import Configuration, Topic, View
from sow.core.media_types import ADVICE_HEADER
from sow.core.paths import Path, parse_path
from sow.errors import UnknownTopic, clipped
from sow.expressions import Identifier, Node, compile_filter, parse_grouped, parse_projected, walk
from sow.topic.missing_fields import ADVICE_MAX

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


async def absent_fields(client: Client, file: str, named: Iterable[Named]) -> list[Finding]:
    """Warnings of those that no record of the server has; raises Unreachable, and what the server
    refuses."""
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


async def _advice(client: Client, topic: str, paths: Sequence[Path]) -> Sequence[str]:
    try:
        question = {"top_n": 0, "select": ",".join(map(str, paths))}
        async with client.http.request("GET", records_of(topic), question) as answer:
            return read_advice(answer.headers.get(ADVICE_HEADER, ""))
    except UnknownTopic:
        return ()
