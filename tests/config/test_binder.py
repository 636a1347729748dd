import pytest

from sow.config import loads
from sow.config.binder import OTHER_WORDS, meant_by
from sow.config.elements.table import ROOT
from tests.cases import all_cases

NOT_YET = sorted(
    {(place, e.name, e.about) for place, e in ROOT.walk() if e.status == "not yet"}, key=str
)
NO_EFFECT = [(place, e.name) for place, e in ROOT.walk() if e.status == "no effect"]
FOREIGN = [e.name for _, e in ROOT.walk() if e.status == "foreign"]


def inside(place: str, xml: str) -> str:
    """`xml` within the sections of `place`, below the root."""
    for section in reversed(place.split("/")[1:]):
        xml = f"<{section}>{xml}</{section}>"
    return xml


def test_every_mistake_of_a_file_is_found_at_once(copy):
    loaded = copy("\n<Intervall>1s</Intervall>\n<Filter>/a ==== 1</Filter>\n<Engine>x</Engine>")
    assert [(f.line, f.element) for f in loaded.findings] == [
        (2, "Intervall"),
        (3, "Filter"),
        (4, "Engine"),
    ]
    assert loaded.configuration is None


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("Intervall", "Interval"), ("filter", "Filter"), ("UnderlyingTopik", "UnderlyingTopic")],
)
def test_a_misspelt_element_is_answered_with_the_nearest_name(copy, only, wrong, right):
    assert only(copy(f"<{wrong}>1s</{wrong}>")) == (
        f"config.xml:1: {wrong}: is not an element of ConflatedTopic; did you mean {right}?"
    )


def test_an_element_in_the_wrong_place_is_sent_where_it_belongs(instance, only):
    text = only(instance("<QueueMaxBytes>1MB</QueueMaxBytes>"))
    assert text.endswith("it belongs in AMPSConfig/Sessions")


def test_an_element_with_several_places_is_sent_all_of_them(sow, only):
    assert "AMPSConfig/SOW/Topic or AMPSConfig/SOW/Topic/HashIndex" in only(sow("<Key>/a</Key>"))


def test_an_element_like_no_other_is_sent_what_may_stand_there(instance, only):
    text = only(instance("<Sessions><Zzz/></Sessions>"))
    assert "Sessions may contain QueueMaxMessages, QueueMaxBytes, " in text


@all_cases(("place", "name", "instead"), NOT_YET)
def test_what_is_not_built_yet_is_refused_by_name(instance, place, name, instead):
    loaded = instance(inside(place, f"<{name}><Any>thing</Any></{name}>"))
    refusal = f"config.xml:1: {name}: {name} is not available yet; {instead}"
    assert refusal in map(str, loaded.errors)


def test_a_misspelt_include_is_answered_with_its_name(sow, only):
    assert only(sow("<Inclued>a.xml</Inclued>")).endswith("did you mean Include?")


@all_cases(("place", "name"), NO_EFFECT)
def test_what_has_no_effect_here_is_a_warning(instance, place, name):
    loaded = instance(inside(place, f"<{name}>1</{name}>"))
    assert ("warning", name) in [(f.severity, f.element) for f in loaded.findings]


@all_cases("name", FOREIGN)
def test_an_element_that_only_amps_has_is_a_warning_and_the_file_still_runs(instance, only, name):
    text = only(instance(f"<{name} a='1'><Any>${{THING}}</Any></{name}>"))
    assert f"{name}: is an element of AMPS that this server does not have" in text


def test_the_values_that_are_built_may_be_written_out(copy, orders):
    assert not copy("<Schedule>per-key</Schedule><Engine>embedded</Engine>").findings
    assert not orders("<Retain>true</Retain><Placement>replace</Placement>").findings


def test_an_element_given_twice_names_the_first(copy, only):
    text = only(copy("<Interval>1s</Interval>\n<Interval>2s</Interval>"))
    assert text == "config.xml:2: Interval: is given twice, first in line 1; remove one of them"


def test_a_synonym_counts_as_the_element_that_it_means(sow):
    loaded = sow("<Topic><Name>a</Name><Topic>b</Topic><MessageType>json</MessageType></Topic>")
    assert [f.element for f in loaded.errors] == ["Topic"]
    assert "given twice" in loaded.errors[0].message


@pytest.mark.parametrize(
    ("topic", "missing"),
    [
        ("<Topic><MessageType>json</MessageType></Topic>", ["Name"]),
        ("<Topic><Name>a</Name></Topic>", ["MessageType"]),
        ("<ConflatedTopic/>", ["Name", "MessageType", "UnderlyingTopic"]),
        ("<Topic><Name>a</Name><MessageType>json</MessageType><HashIndex/></Topic>", ["Key"]),
    ],
)
def test_what_a_topic_must_have_is_requested_for(sow, topic, missing):
    assert [f.message for f in sow(topic).findings] == [f"has no {name}" for name in missing]


def test_a_document_needs_a_name():
    assert [str(f) for f in loads("<AMPSConfig/>").findings] == [
        "config.xml:1: AMPSConfig: has no Name; add <Name>…</Name>"
    ]


def test_an_unknown_attribute_is_an_error(orders, only):
    assert "unknown attribute 'kind'" in only(orders("<Key kind='x'>/b</Key>"))


def test_an_attribute_that_should_be_an_element_is_sent_so(sow, only):
    text = only(sow("<Topic Key='/a'><Name>a</Name><MessageType>json</MessageType></Topic>"))
    assert text.endswith("write it as an element: <Key>…</Key> inside Topic")


@pytest.mark.parametrize("xml", ["<Interval/>", "<Interval></Interval>", "<Interval> </Interval>"])
def test_an_empty_value_is_refused(copy, only, xml):
    assert only(copy(xml)) == (
        "config.xml:1: Interval: is empty; write a value (interval), or remove it"
    )


def test_an_element_inside_a_value_is_refused_where_it_stands(copy, only):
    text = only(copy("<Interval>1s\n<Filter>/a = 1</Filter></Interval>"))
    assert text.startswith("config.xml:2: Filter: is inside Interval")


def test_text_between_elements_is_refused(sow, only):
    assert "contains the text 'oops'" in only(sow("oops"))


SECTIONS = [(place, e) for place, e in ROOT.walk() if e.children and e.status == "implemented"]
NAMED = {e.name: (place, e) for place, e in reversed(SECTIONS)}
"""The first section of each name, as in the table."""
OF_FIELDS = [(p, e) for p, e in SECTIONS if [c.name for c in e.children] in (["Key"], ["Field"])]
TOPIC = "<Name>t</Name><MessageType>json</MessageType>"


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
