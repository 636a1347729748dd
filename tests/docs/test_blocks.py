"""No block of code on a page is only paint: each is run, read or checked, whatever it is in.

Run by `test_examples.py` (python, console), `test_timetables.py` (timetable), with a Spark by
`tests/spark/test_guide.py` (python, sql), with a Node or a browser by `tests/client/javascript`
(javascript, html). `test_migration.py` reads those in the words of AMPS. The others are checked
here as far as they can be.
"""

import json
import re
import shlex
from importlib.util import find_spec

import click
import pytest

from sow.cli.main import main
from sow.config import loads
from sow.config.elements.table import ROOT as TABLE
from sow.expressions import compile_filter
from sow.protocol.wire import read_frame
from tests.cases import all_cases
from tests.docs.blocks import ROOT, fenced, shell_lines

RUN = {"python", "console", "sql", "timetable", "javascript", "html"}
CHECKED = {"xml", "json", "filter", "sh", "amps"}
NO_CODE = {"text"}
"""Drawings, grammars, messages, and what is shown because it does not do what it says."""

TOPICS = """<Topic><Name>{0}</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"""
VARIABLES = {"SITE": "london", "PORT": "8080"}


@all_cases("block", fenced())
def test_every_block_says_what_it_is_in(block):
    assert block.language in RUN | CHECKED | NO_CODE


def section_of(tag):
    """The sections, below the root, in which an element stands."""
    places = [
        place
        for place, element in TABLE.walk()
        if tag in element.names and element.status == "implemented"
    ]
    return min(places, key=len).split("/")[1:]


def whole(text):
    """A configuration around a part of one: the sections around it, and what it refers to."""
    tag = re.match(r"\s*<(\w+)", text)[1]
    if tag in TABLE.names:
        return text
    sections = section_of(tag)
    wanted = re.findall(r"<UnderlyingTopic>(.*?)<|<Topic>([\w-]+)<", text)
    names = [*filter(None, map("".join, wanted)), *re.findall(r"\[([\w-]+)\]\./", text)]
    missing = [one for one in map(str.strip, names) if one and f"<Topic><Name>{one}<" not in text]
    topics = "".join(map(TOPICS.format, dict.fromkeys(missing)))
    around = {
        "Topic": "<Name>t</Name><MessageType>json</MessageType>",
        "ConflatedTopic": ("<Name>c</Name><MessageType>json</MessageType>"
                           "<UnderlyingTopic>made</UnderlyingTopic>"),
        "Pipeline": ("<Name>p</Name><Source><Format>rate</Format></Source>"
                     "<Sink><Format>csv</Format><Path>out</Path></Sink>"),
    }  # fmt: skip
    if "ConflatedTopic" in sections:
        topics += TOPICS.format("made")
    for section in reversed(sections):
        if section == "SOW":
            text, topics = topics + text, ""
        text = f"<{section}>{around.get(section, '')}{text}</{section}>"
    before = f"<SOW>{topics}</SOW>" if topics else ""
    return f"<SOWConfig><Name>page</Name>{before}{text}</SOWConfig>"


@all_cases("block", fenced("xml"))
def test_xml_is_a_configuration_or_a_part_of_one(block):
    loaded = loads(whole(block.text), variables=VARIABLES)
    assert [str(finding) for finding in loaded.findings] == []


@pytest.mark.parametrize("block", fenced("json"), ids=lambda block: block.place)
def test_lines_are_those_of_the_protocol(block):
    lines = [json.loads(line) for line in block.text.splitlines()]
    if lines[0]["c"] == "p":
        assert lines[0].keys() <= {"c", "s", "t", "k", "d", "bm", "ts"}
        return
    commands = list(read_frame(block.text.strip().encode()))
    assert [getattr(command, "error", None) for command in commands] == [None] * len(commands)
    assert commands[0].name == lines[0]["c"]


@pytest.mark.parametrize("block", fenced("filter"), ids=lambda block: block.place)
def test_filters_compile(block):
    compile_filter(block.text.strip())


TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def parsed(words):
    """A command line read by the command line itself, and not carried out; raises UsageError."""
    command, arguments = main, words
    while isinstance(command, click.Group):
        with click.Context(command) as context:
            name, *arguments = arguments
            found = command.get_command(context, name)
            assert found is not None, f"there is no command {name}"
            command = found
    command.make_context(command.name, arguments, resilient_parsing=True)


@all_cases(("place", "words"), list(shell_lines()))
def test_commands_of_the_shell_are_there(place, words):
    name, *arguments = words
    if name == "make":
        assert arguments[0] in TARGETS
    elif name == "sow":
        parsed(shlex.split(" ".join(arguments)))
    elif arguments[0] == "-m":
        assert find_spec(arguments[1]) is not None
    elif name == "python":
        assert (ROOT / arguments[0]).is_file()
    else:
        # What pip fetches is not fetched here; the extras that it is asked for are there.
        assert (name, arguments[0]) == ("pip", "install")
        extras = re.findall(r"sow\[(\w+)\]", " ".join(arguments))
        assert all(f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text() for extra in extras)


def test_a_fragment_is_put_where_it_belongs():
    assert section_of("Enrichment") == ["SOW", "Topic"]
    assert section_of("Schedule") == ["SOW", "ConflatedTopic"]
    assert not loads(whole("<Sessions><QueueMaxBytes>1MB</QueueMaxBytes></Sessions>")).findings
    assert loads(whole("<Sessions><QueueMaxByts>1MB</QueueMaxByts></Sessions>")).findings
