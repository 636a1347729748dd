"""The schema of config.xml, as an editor uses it."""

import re
from pathlib import Path

import pytest
from lxml import etree

from sow.config import loads
from sow.config.elements.table import ROOT
from sow.config.schema import READ, XS, schema
from tests.cases import all_cases
from tests.docs.blocks import fenced
from tests.docs.test_blocks import VARIABLES, whole

TOP = Path(__file__).parents[2]
FOR_AMPS = TOP / "docs/guide/amps.xml"
FILES = sorted(
    {TOP / "config.xml", TOP / "sow/cli/demo.xml", *(TOP / "docs").rglob("*.xml")} - {FOR_AMPS}
)
SCHEMA = etree.XMLSchema(etree.fromstring(schema()))
READ_ELEMENTS = [(place, e) for place, e in ROOT.walk() if place and e.status in READ]
LEFT_OUT = [(place, e) for place, e in ROOT.walk() if e.status not in READ]


def slips(text):
    """What an editor marks: line and message."""
    document = etree.fromstring(text.encode())
    SCHEMA.validate(document)
    return [(error.line, error.message) for error in SCHEMA.error_log]


def inside(place, xml):
    for section in reversed(place.split("/")):
        xml = f"<{section}>{xml}</{section}>"
    return xml


def sample(element, name):
    """An element of this name with something in it."""
    if element.kind is None:
        return f"<{name}/>"
    return f"<{name}>{element.kind.words[0] if element.kind.words else 'text'}</{name}>"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_files_that_are_shipped_are_valid(file):
    assert slips(file.read_text()) == []


@all_cases("block", fenced("xml"))
def test_examples_of_the_pages_are_valid(block):
    text = whole(block.text)
    assert loads(text, variables=VARIABLES).configuration is not None
    assert slips(text) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_misspelt_element_is_marked_in_its_line(file):
    text = file.read_text()
    commented = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text, flags=re.S)
    line = commented[: commented.index("<Key>")].count("\n") + 1
    planted = commented.replace("<Key>", "<Kye>", 1).replace("</Key>", "</Kye>", 1)
    (slip, *_) = slips(planted)
    assert slip[0] == line
    assert "'Kye': This element is not expected" in slip[1]


@all_cases(("place", "element"), READ_ELEMENTS)
def test_each_element_is_known_in_its_place_under_each_name(place, element):
    for name in element.names:
        assert slips(inside(place, sample(element, name))) == []
    assert slips(inside(place, f"<{element.name}x/>"))


@all_cases(("place", "element"), LEFT_OUT)
def test_what_a_server_refuses_is_marked(place, element):
    assert slips(inside(place, f"<{element.name}/>"))


@all_cases("place", sorted({place for place, _ in READ_ELEMENTS}))
def test_an_include_may_stand_in_every_section(place):
    assert slips(inside(place, '<Include comment="true">a.xml</Include>')) == []
    assert slips(inside(place, "<Include><a/></Include>"))


def test_words_are_sent_and_variables_may_stand_for_them():
    place = "SOWConfig/SOW/ConflatedTopic"
    assert slips(inside(place, "<Schedule> tick </Schedule>")) == []
    assert slips(inside(place, "<Schedule>${HOW}</Schedule>")) == []
    assert slips(inside(place, "<Schedule>tack</Schedule>"))


@pytest.mark.parametrize(
    "form",
    [
        '<Durability FlushInterval="5ms">persistent</Durability>',
        "<Duration><Mode>transient</Mode><FlushInterval>5ms</FlushInterval></Duration>",
    ],
)
def test_attributes_and_own_text_are_taken_where_they_are_read(form):
    assert slips(inside("SOWConfig/SOW/Topic", form)) == []
    assert slips(inside("SOWConfig/SOW/Topic", form.replace("FlushInterval", "Flush")))
    assert slips(inside("SOWConfig/SOW", form))


def test_what_a_file_for_amps_is_refused_for_is_marked():
    refused = {error.line for error in loads(FOR_AMPS.read_text()).errors}
    marked = {line for line, _ in slips(FOR_AMPS.read_text())}
    assert marked
    assert marked <= refused


def test_text_between_elements_is_marked():
    assert slips("<SOWConfig><SOW>text</SOW></SOWConfig>")


def test_an_editor_shows_what_an_element_is_for_and_its_default():
    (said,) = etree.fromstring(schema()).findall(
        f".//{{{XS}}}element[@name='QueueMaxMessages']//{{{XS}}}documentation"
    )
    assert said.text == "Messages that may wait for one client. Default: 10000."
