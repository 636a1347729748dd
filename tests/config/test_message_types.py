"""MessageTypes: entries that name each other, and what is said of those that cannot be."""

import pytest

from sow.config.message_types import LEVELS_MAX, PARTS_MAX
from sow.core.definitions import MessageTypeOptions, RecordField
from tests.cases import all_cases

RECORD = """<MessageType><Name>trades</Name><Module>record</Module>
<Field type="int">id</Field><Field>symbol</Field>
<Field type="decimal">px</Field></MessageType>"""


@pytest.fixture
def types(instance):
    """Reads entries of MessageTypes, the first of them in line 1, and topics."""
    return lambda xml, topics="": instance(
        f"<MessageTypes>{xml}</MessageTypes>" + (topics and f"<SOW>{topics}</SOW>")
    )


def entry(name, module, *parts, more=""):
    inner = "".join(f"<MessageType>{part}</MessageType>" for part in parts)
    return f"<MessageType><Name>{name}</Name><Module>{module}</Module>{more}{inner}</MessageType>\n"


def local(name, *parts):
    return entry(name, "composite-local", *parts)


def topic(kind, more=""):
    return f"<Topic><Name>t</Name><MessageType>{kind}</MessageType>{more}</Topic>"


def test_a_record_has_its_fields_in_order(types):
    (found,) = types(RECORD).configuration.message_types
    fields = (RecordField("id", "int"), RecordField("symbol"), RecordField("px", "decimal"))
    assert found == MessageTypeOptions("trades", "record", b"\x02", fields)
    assert [field.line for field in found.fields] == [2, 2, 3]


def test_a_field_may_be_written_with_elements(types):
    (found,) = types(
        entry("r", "record", more='<Field type="int"><Name>id</Name></Field>')
    ).configuration.message_types
    assert found.fields == (RecordField("id", "int"),)


def test_a_record_has_the_separator_that_it_is_given(types):
    more = "<FieldSeparator>124</FieldSeparator><Field>a</Field>"
    (found,) = types(entry("r", "record", more=more)).configuration.message_types
    assert found.field_separator == b"|"


def test_a_composite_has_its_parts_in_full_wherever_they_stand(types):
    loaded = types(local("outer", "both", "json") + local("both", "fix", "trades") + RECORD)
    assert loaded.findings == ()
    outer, both, trades = loaded.configuration.message_types
    assert both.parts == (MessageTypeOptions("fix", "fix"), trades)
    assert outer.parts == (both, MessageTypeOptions("json", "json"))


def test_a_part_of_a_configured_name_is_what_was_configured(types):
    fix = entry("fix", "fix", more="<FieldSeparator>124</FieldSeparator>")
    both, _ = types(local("both", "fix") + fix).configuration.message_types
    assert both.parts[0].field_separator == b"|"


@all_cases(
    ("xml", "says"),
    [
        (local("a", "json", "jsn"), "1: MessageType: there is no message type 'jsn'; did you mean"),
        (local("a", "protobuf"), "1: MessageType: message type 'protobuf' is not available"),
        (local("a", "record"), "1: MessageType: a record has no field; define one in MessageTypes"),
        ("\n" + local("a", "Mine"), "2: MessageType: there is no message type 'Mine'"),
        (local("a", "a"), "1: MessageType: 'a' would be a part of itself: a of a; name another"),
        (
            local("a", "json", "b") + local("b", "c") + local("c", "json", "b"),
            "3: MessageType: 'b' would be a part of itself: b of c of b; name another type",
        ),
        (
            entry("g", "composite-global", "json") + local("a", "json", "g"),
            "2: MessageType: 'g' is a composite-global, which is whole or not at all; name its",
        ),
        (entry("a", "composite-local"), "1: Module: a composite has no part; define one"),
        (entry("a", "record"), "1: Module: a record has no field; define one in MessageTypes"),
        (
            entry("a", "record", more="<Field>x</Field>\n<Field>x</Field>"),
            "2: Field: names the field 'x' a second time, first in line 1; every field has one",
        ),
        (
            entry("a", "record", more="<Field>x</Field>\n<FieldSeparator>46</FieldSeparator>"),
            "2: FieldSeparator: '.' cannot separate the fields of a record",
        ),
        (
            entry("a", "record", more="<Field>x</Field><FieldSeparator>1</FieldSeparator>"),
            "FieldSeparator: '\\x01' cannot separate the fields of a record",
        ),
        (
            entry("a", "record", more="<Field>x</Field><FieldSeparator>65</FieldSeparator>"),
            "FieldSeparator: '65' is not the code of a separator",
        ),
        (
            entry("a", "record", more="<Field>/x</Field>"),
            "1: Field: '/x' is a path, and a name of a field is expected; write x",
        ),
        (entry("a", "record", more="<Field>x/y</Field>"), "'x/y' contains '/', which no name"),
        (entry("a", "record", more="<Field>x[0]</Field>"), "'x[0]' contains '['"),
        (entry("a", "record", more="<Field/>"), "1: Field: is empty; write <Field>…</Field>"),
        (
            entry("a", "record", more='<Field type="number">x</Field>'),
            "1: type: 'number' is not one of string, int, decimal",
        ),
        (
            entry("a", "fix", more="<Field>x</Field>"),
            "1: Field: fix has no fields that are named here; remove it, or write one of record",
        ),
        (
            entry("a", "json", more="<FieldSeparator>2</FieldSeparator>"),
            "1: FieldSeparator: json has no field separators; remove it",
        ),
        (entry("a", "record", "json", more="<Field>x</Field>"), "1: MessageType: record has no"),
        (entry("a", "jason"), "1: Module: there is no message type 'jason'; did you mean 'json'?"),
        (
            entry("a", "json") + entry("a", "fix"),
            "2: Name: the message type 'a' is already defined in line 1; give it another name",
        ),
        (
            local("a", *["json"] * (PARTS_MAX + 1)),
            f"1: Module: 'a' has {PARTS_MAX + 1} parts on all levels, and {PARTS_MAX} are the most",
        ),
    ],
)
def test_a_mistake_is_said_at_its_place(types, only, xml, says):
    assert says in only(types(xml))


def test_composites_within_each_other_have_an_end(types, only):
    good = "".join(local(f"a{n}", f"a{n + 1}") for n in range(LEVELS_MAX - 1))
    good += local(f"a{LEVELS_MAX - 1}", "json")
    assert types(good).findings == ()
    text = only(types(local("a", "a0") + good))
    assert f"'a' has {LEVELS_MAX + 1} levels of composites, and {LEVELS_MAX} are the most" in text


def test_a_chain_of_thousands_is_refused(types):
    chain = "".join(local(f"a{n}", f"a{n + 1}") for n in range(5_000)) + local("a5000", "json")
    loaded = types(chain)
    assert loaded.configuration is None
    assert any("more than 100 parts within each other" in str(one) for one in loaded.findings)


def test_what_doubles_on_every_level_is_refused(types):
    tree = "".join(local(f"a{n}", *[f"a{n + 1}"] * 90) for n in range(3)) + local("a3", "json")
    findings = types(tree).findings
    assert findings
    assert all("are the most" in str(one) for one in findings)


def test_topics_of_an_entry_that_was_refused_are_not_blamed(types, only):
    assert "'jsn'" in only(types(local("a", "jsn"), topic("a", "<Key>/0/id</Key>")))


@pytest.mark.parametrize("kind", ["record", "composite-local", "composite-global"])
def test_what_has_to_be_configured_is_no_type_by_itself(sow, only, kind):
    assert "define one in MessageTypes" in only(sow(topic(kind)))


@pytest.mark.parametrize(
    ("kind", "more", "says"),
    [
        ("trades", "<Key>/ID</Key>", "Key: messages of type trades have no field '/ID'; their"),
        ("trades", "<Key>/id</Key><Index>/x</Index>", "Index: messages of type trades have no"),
        ("trades", "<HashIndex><Key>/x</Key></HashIndex>", "Key: messages of type trades have no"),
        (
            "trades",
            "<Merge><Field>/qty</Field><Operation>sum</Operation></Merge>",
            "Field: messages of type trades have no field '/qty'",
        ),
        ("both", "<Key>/id</Key>", "Key: messages of type both have no part at '/id'; write /0/id"),
        ("both", "<Key>/1/x</Key>", "Key: messages of type trades have no field '/x'"),
    ],
)
def test_a_path_that_leads_nowhere_is_a_mistake(types, only, kind, more, says):
    assert says in only(types(RECORD + local("both", "json", "trades"), topic(kind, more)))


def test_paths_that_lead_somewhere_are_not(types):
    keyed = topic("both", "<Key>/0/any</Key><Index>/1/px</Index><Index>/2</Index>")
    assert types(RECORD + local("both", "json", "trades"), keyed).findings == ()
