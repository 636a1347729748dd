"""What a view may say, element by element."""

import pytest

from sow.core.definitions import Join, View
from tests.cases import all_cases

ORDERS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
QUOTES = "<Topic><Name>quotes</Name><MessageType>json</MessageType><Key>/symbol</Key></Topic>"
ROWS = (
    "<Projection><Field>/desk</Field><Field>SUM(/qty) AS /qty</Field></Projection>"
    "<Grouping><Field>/desk</Field></Grouping>"
)
JOIN = "[orders]./symbol = [quotes]./symbol"


def view(underlying="orders", rows=ROWS, more=""):
    return (
        f"{ORDERS}{QUOTES}<View><Name>desks</Name><MessageType>json</MessageType>"
        f"<UnderlyingTopic>{underlying}</UnderlyingTopic>{rows}{more}</View>"
    )


def joined(join, rows=None):
    rows = rows or (
        "<Projection><Field>COUNT([orders]./id) AS /n</Field></Projection>"
        "<Grouping><Field>[orders]./desk</Field></Grouping>"
    )
    return view(join, rows)


def test_a_view_of_one_topic(sow):
    *_, desks = sow(view()).configuration.topics
    assert desks == View(
        "desks", "json", ("orders",), ("/desk", "SUM(/qty) AS /qty"), ("/desk",), line=1
    )


def test_amps_calls_it_by_other_names_too(sow):
    xml = view().replace("<View><Name>desks</Name>", "<ViewDefinition><Topic>desks</Topic>")
    loaded = sow(xml.replace("</View>", "</ViewDefinition>"))
    assert loaded.configuration.topics[-1].name == "desks"


@pytest.mark.parametrize(
    ("xml", "field", "value"),
    [
        ("<KeyDomain>d</KeyDomain>", "key_domain", "d"),
        ("<Filter>/qty > 0</Filter>", "filter", "/qty > 0"),
        ("<Conflation>inline</Conflation>", "conflation", "inline"),
        ("<HashIndex><Key>/qty</Key></HashIndex>", "hash_indexes", (("/qty",),)),
        ("<Index>/qty</Index>", "indexes", ("/qty",)),
        ("<Engine>embedded</Engine>", "engine", "embedded"),
        ("<ConflationPolicy>always</ConflationPolicy>", "conflation_policy", "always"),
    ],
)
def test_what_else_it_says(sow, xml, field, value):
    assert getattr(sow(view(more=xml)).configuration.topics[-1], field) == value


def test_joins_are_pairs_of_fields_of_two_topics(sow):
    inner = '<Join type="inner">'
    both = f"{inner}{JOIN}</Join>{inner}[json].[orders].[/day]=[quotes]./day</Join>"
    xml = joined(both).replace(
        "</View>", "<JoinNullEquivalency>enabled</JoinNullEquivalency></View>"
    )
    desks = sow(xml).configuration.topics[-1]
    assert desks.underlyings == ("orders", "quotes")
    assert desks.joins == (
        Join("orders", "/symbol", "quotes", "/symbol", "inner"),
        Join("orders", "/day", "quotes", "/day", "inner"),
    )
    assert desks.null_equivalency


@all_cases(("xml", "said"), [
        (joined("<Join>[orders]./symbol</Join>"), "does not equate two fields"),
        (joined("<Join>/symbol = [quotes]./symbol</Join>"), "does not name the topic of each"),
        (joined("<Join>[orders]./a = [orders]./b</Join>"), "joins 'orders' with itself"),
        (view(rows=ROWS.replace("<Field>/desk</Field>", "<Field>1 + 1</Field>", 1)), "AS /name"),
        (view(rows=ROWS.replace("SUM(/qty", "SUM(/qty,")), "Field"),
        (
            view(rows=ROWS.replace("g><Field>/desk", "g><Field>UPPER(/desk) AS /d")),
            "is no field, and an expression is not taken here",
        ),
        (
            view(rows=ROWS.replace("g><Field>/desk", "g><Field>SUM(/desk)")),
            "is no field, and an expression is not taken here; write a path, such as /symbol",
        ),
        (
            joined("<Join>[orders] = [quotes]</Join>"),
            "names a topic without a field of it; write [orders]./symbol = [quotes]./symbol",
        ),
        (view(more="<Conflation>later</Conflation>"), "'later' is not one of none, inline"),
        (view(more="<Filter>/qty ></Filter>"), "Filter"),
    ])  # fmt: skip
def test_what_cannot_be_read_is_said_with_what_to_write(sow, xml, said):
    loaded = sow(xml)
    assert loaded.configuration is None
    assert any(said in str(error) for error in loaded.errors), [*map(str, loaded.errors)]


def test_a_file_name_is_ignored_as_amps_does(sow, only):
    assert "computed again at start" in only(sow(view(more="<FileName>x.sow</FileName>")))
