"""The table of elements: each name once in its place, each value into a field that there is."""

import dataclasses
from collections import Counter

import pytest

from sow.config import loads
from sow.config.elements.table import FOREIGN, ROOT, SOW
from tests.cases import all_cases

ELEMENTS = list(ROOT.walk())
MAKERS = [e for _, e in ROOT.walk() if dataclasses.is_dataclass(e.make)]


@all_cases("section", MAKERS)
def test_the_defaults_of_the_table_are_those_of_the_dataclass(section):
    defaults = {f.name: f.default for f in dataclasses.fields(section.make)}
    leaves = [*section.children, *(e for c in section.children if not c.make for e in c.children)]
    for leaf in leaves:
        if leaf.kind and leaf.default and leaf.fields and leaf.name != "FileName":
            value = leaf.kind.read(leaf.default)
            values = value if len(leaf.fields) > 1 else (value,)
            place = f"<{leaf.name}> of <{section.name}>"
            missing = set(leaf.fields) - defaults.keys()
            assert not missing, f"{place}: {section.make.__name__} needs the field {missing}"
            assert [defaults[name] for name in leaf.fields] == list(values), (
                f"{place}: the default has to be that of {section.make.__name__}"
            )


@all_cases("section", MAKERS)
def test_every_field_of_a_dataclass_can_be_configured(section):
    inner = [e for c in section.children if not c.make for e in (c, *c.children)]
    fields = {name for e in (*section.children, *inner) for name in e.fields}
    # The line is where it is written; a view that Spark runs is a topic, and so is a queue; the
    # type of what a view is made of may stand before its name.
    unwritten = {"line", "view", "queue", "underlying_type"}
    written = {f.name for f in dataclasses.fields(section.make)} - unwritten
    assert written == fields - unwritten, (
        f"<{section.name}>: each field of {section.make.__name__} needs an Element that sets it"
    )


def test_what_is_built_is_a_section_or_a_value_and_is_explained():
    for place, element in ELEMENTS:
        if element.status == "implemented":
            assert bool(element.children) != (element.kind is not None), place
            assert element.about.endswith("."), place
        else:
            assert element.kind is None, place
            assert not element.children, place


def test_no_two_children_of_a_section_share_a_name():
    for place, element in ELEMENTS:
        names = Counter(name for child in element.children for name in child.names)
        assert [name for name, times in names.items() if times > 1] == [], place


def test_every_default_is_a_value_that_may_be_written():
    for _, element in ELEMENTS:
        if element.kind and element.default:
            element.kind.read(element.default)


def test_what_is_foreign_and_what_is_ours_are_sent_apart():
    ours = {element.name for element in ROOT.children if element.status == "implemented"}
    assert ours.isdisjoint(element.name for element in FOREIGN)


def test_all_kinds_of_topics_go_into_one_list_in_the_order_of_the_file():
    kinds = [child for child in SOW.children if child.status == "implemented"]
    assert [child.name for child in kinds] == ["Topic", "ConflatedTopic", "View", "Queue"]
    assert {child.fields for child in kinds} == {("topics",)}


def test_queues_of_other_kinds_are_refused_by_name():
    later = [child.name for child in SOW.children if child.status == "not yet"]
    assert later == ["LocalQueue", "GroupLocalQueue"]


def environment(text):
    return loads(f"<SOWConfig><Name>desk</Name>{text}</SOWConfig>")


@pytest.mark.parametrize("colour", ["red", "orange", "yellow", "green", "blue", "grey"])
def test_an_environment_has_a_name_and_may_have_a_colour(colour):
    found = environment(f'<Environment colour="{colour}">pré-prod 2</Environment>').configuration
    assert (found.environment, found.colour) == ("pré-prod 2", colour)
    found = environment("<Environment>test</Environment>").configuration
    assert (found.environment, found.colour) == ("test", None)
    assert (environment("").configuration.environment) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<Environment colour="purple">x</Environment>', "red, orange, yellow, green, blue, grey"),
        ('<Environment colour="gray">x</Environment>', "did you mean grey?"),
        (
            '<Environment color="red">x</Environment>',
            "unknown attribute 'color'; did you mean colour?",
        ),
        ('<Environment style="red">x</Environment>', "'style'; remove it"),
        (
            '<Environment colour="red"/>',
            "is empty; write <Environment>…</Environment>, or remove it",
        ),
        ("<Environment>a</Environment><Environment>b</Environment>", "is given twice"),
        ("<Environment>a&#10;b</Environment>", "control character"),
        (f"<Environment>{'a' * 101}</Environment>", "use at most 100 characters"),
    ],
)
def test_a_mistake_in_an_environment_is_a_sentence(text, said):
    assert any(said in str(one) for one in environment(text).findings)
