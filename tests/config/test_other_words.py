"""A name from another product, or a misspelt one, is answered with the right name alone."""

import pytest

from sow.config.elements.table import ROOT
from sow.config.other_words import ADVICE, OTHER_WORDS, meant_by
from tests.cases import all_cases

SECTIONS = [(place, e) for place, e in ROOT.walk() if e.children and e.status == "implemented"]
NAMED = {e.name: (place, e) for place, e in reversed(SECTIONS)}
"""The first section of each name, as in the table."""
OF_FIELDS = [(p, e) for p, e in SECTIONS if [c.name for c in e.children] in (["Key"], ["Field"])]
TOPIC = "<Name>t</Name><MessageType>json</MessageType>"


def inside(place: str, xml: str) -> str:
    for section in reversed(place.split("/")[1:]):
        xml = f"<{section}>{xml}</{section}>"
    return xml


def said_of(instance, place, section, xml):
    loaded = instance(inside(f"{place}/{section.name}".lstrip("/"), xml))
    return [(f.element, f.advice) for f in loaded.errors]


def test_every_section_and_every_meaning_is_an_element_and_no_word_is():
    for name, words in OTHER_WORDS.items():
        sections = [section for _, section in SECTIONS if section.name == name]
        assert sections, name
        for word, meant in words.items():
            assert any(section.child(meant) for section in sections), (name, meant)
            assert not any(section.child(word) for section in sections), (name, word)


@all_cases(
    ("name", "word", "meant"),
    [(name, word, meant) for name, words in OTHER_WORDS.items() for word, meant in words.items()],
)
def test_a_word_of_others_is_answered_with_the_element(instance, name, word, meant):
    place, section = NAMED[name]
    if section.child(meant) is None:  # the view's UnderlyingTopic, which is no leaf
        (section,) = [e for _, e in SECTIONS if e.name == name and e.child(meant)]
    for tag in (word, word.lower()):
        said = said_of(instance, place, section, f"<{tag}>x</{tag}>")
        assert (tag, f"is not an element of {section.name}; did you mean {meant}?") in said


def test_a_word_of_others_means_nothing_elsewhere():
    assert meant_by("Field", NAMED["HashIndex"][1]) == "Key"
    assert meant_by("Field", NAMED["SOW"][1]) == ""


@all_cases(("place", "section"), OF_FIELDS)
def test_lists_of_fields_distinguish_key_and_field(instance, place, section):
    (only,) = section.children
    other = "Field" if only.name == "Key" else "Key"
    said = said_of(instance, place, section, f"<{other}>/a</{other}>")
    wrong = (other, f"is not an element of {section.name}; did you mean {only.name}?")
    assert wrong in said
    assert (section.name, f"has no {only.name}") not in [(e, a.split(";")[0]) for e, a in said]


@all_cases(
    "xml",
    [
        "<HashIndex><Field>/a</Field></HashIndex>",
        "<Match><Field>/a</Field></Match>",
        "<Merge><Key>/a</Key><Operation>sum</Operation></Merge>",
        "<Enrichment><Key>1 AS /a</Key></Enrichment>",
        "<Kye>/other</Kye><KeyDomain>d</KeyDomain>",
        "<Index><Key>/a</Key></Index>",
        "<TTL>5s</TTL>",
        "<HashIndex>/a</HashIndex>",
        "<Enrichment>1 AS /a</Enrichment>",
        "<HashIndex Key='/a'/>",
        "<Merge Field='/a'><Operation>sum</Operation></Merge>",
    ],
)
def test_one_wrong_word_is_one_finding(sow, only, xml):
    assert "; " in only(sow(f"<Topic>{TOPIC}{xml}</Topic>"))


def test_what_is_missing_is_not_requested_for_where_it_is_misspelt(sow, only):
    text = only(sow("<Topic><Name>t</Name><Type>json</Type></Topic>"))
    assert text.endswith("did you mean MessageType?")


def test_a_word_of_others_does_not_take_the_place_of_the_element(orders, only):
    loaded = orders("<PrimaryKey>/other</PrimaryKey><Index>/a</Index>")
    assert [f.element for f in loaded.findings] == ["PrimaryKey"]
    assert only(orders("<Interval>1s</Interval>")).startswith("config.xml:1: Interval: ")


def test_a_section_beside_one_that_is_called_otherwise_is_read(instance):
    topic = f"<Topic>{TOPIC}<Kee>/a</Kee></Topic>"
    loaded = instance(f"<Topics>{topic}</Topics><SOW>{topic}</SOW>")
    assert [(f.element, f.instead) for f in loaded.findings] == [
        ("Topics", "did you mean SOW?"), ("Kee", "did you mean Key?")
    ]  # fmt: skip


def test_a_value_that_stands_in_its_section_is_shown_in_its_element(orders, only):
    text = only(orders("<HashIndex>/a</HashIndex>"))
    assert text.endswith("contains the text '/a' outside any element; write <Key>/a</Key>")


def test_elements_that_are_written_as_attributes_are_sent_once_each(sow):
    loaded = sow('<Topic Name="t" MessageType="json"><Key>/id</Key></Topic>')
    assert [f.instead for f in loaded.findings] == [
        "write it as an element: <Name>…</Name> inside Topic",
        "write it as an element: <MessageType>…</MessageType> inside Topic",
    ]


def test_a_value_in_an_element_of_its_own_is_shown_without_it(orders, only):
    assert only(orders("<Index><Key>/a</Key></Index>")).endswith("write <Index>/a</Index>")
    first, _ = orders("<Index><Key>/a</Key><Key>/b</Key></Index>").findings
    assert str(first).endswith("close the outer element first")


ACTION = """<Actions><Action><On><Module>amps-action-on-schedule</Module>
<Options><Every>21:30</Every></Options></On>
<Do><Module>{}</Module><Options><Age>7d</Age></Options></Do></Action></Actions>"""


@pytest.mark.parametrize(
    ("module", "instead"),
    [
        ("amps-action-do-remove-journal", "RetentionAge and RetentionSize in TransactionLog"),
        ("amps-action-do-archive-journals", "sow backup"),
        ("amps-action-do-delete-sow", "sow delete TOPIC --filter"),
        ("amps-action-do-rotate-logs", "the system keeps and rotates"),
        ("amps-action-do-truncate-statistics", "GET /metrics"),
        ("amps-action-do-downgrade-replication", "there is no replication"),
    ],
)
def test_what_an_action_did_is_done_otherwise(instance, module, instead):
    actions, done = map(str, instance(ACTION.format(module)).warnings)
    assert "Actions: is an element of AMPS that this server does not have" in actions
    assert f"config.xml:3: Module: '{module}' is an action that does not run here; " in done
    assert instead in done


def test_an_action_that_is_not_known_and_when_it_is_done_get_no_line(instance, only):
    assert "Actions: " in only(instance(ACTION.format("my-own-module")))


def test_every_word_finds_its_own_advice(instance):
    for word, advice in ADVICE.items():
        *_, done = instance(ACTION.format(f"amps-action-do-{word}")).warnings
        assert done.instead == advice
