"""Patterns, topics that retain nothing, and what a full queue may do: what must agree."""

import pytest

ORDERS = "<Topic><Name>{name}</Name><MessageType>json</MessageType><Key>/id</Key>{more}</Topic>"


def orders(name="orders", more=""):
    return ORDERS.format(name=name, more=more)


def copy(more, underlying="orders", name="<Name>c</Name>"):
    return (
        f"<ConflatedTopic>{name}<MessageType>json</MessageType>"
        f"<UnderlyingTopic>{underlying}</UnderlyingTopic>{more}</ConflatedTopic>"
    )


def test_an_exact_name_below_a_pattern_that_matches_it_is_told_to_move(sow, only):
    text = only(sow(orders("desks", "<Pattern>^/desk/</Pattern>") + "\n" + orders("/desk/1")))
    assert "config.xml:2: Name: '/desk/1' is matched by the Pattern of 'desks' in line 1" in text
    assert text.endswith("move '/desk/1' above 'desks'")


def test_an_exact_name_above_a_pattern_is_fine(sow):
    assert not sow(orders("/desk/1") + orders("desks", "<Pattern>^/desk/</Pattern>")).findings


def test_a_pattern_that_does_not_compile_is_an_error(sow, only):
    assert "Pattern" in only(sow(orders("desks", "<Pattern>(</Pattern>")))


@pytest.mark.parametrize("text", ["plain", "%n.C", "^%n", "%n(1)"])
def test_a_topic_format_needs_the_name_and_no_metacharacters(sow, only, text):
    pattern = orders(more="<Pattern>^/desk/</Pattern>")
    found = sow(pattern + copy(f"<TopicFormat>{text}</TopicFormat>")).errors
    assert "TopicFormat" in [finding.element for finding in found]


def test_a_topic_format_over_one_topic_is_an_error(sow, only):
    text = only(sow(orders() + copy("<TopicFormat>%n-C</TopicFormat>")))
    assert "is one topic, so there is one copy" in text


def test_a_copy_with_a_format_may_go_without_a_name(sow):
    pattern = orders(more="<Pattern>^/desk/</Pattern>")
    loaded = sow(pattern + copy("<TopicFormat>%n-C</TopicFormat>", name=""))
    assert loaded.configuration.topics[1].name == "%n-C"


def test_a_copy_of_copies_of_a_pattern_needs_a_format_too(sow, only):
    pattern = orders(more="<Pattern>^/desk/</Pattern>") + copy("<TopicFormat>%n-C</TopicFormat>")
    assert "add <TopicFormat>" in only(sow(pattern + copy("", "c", "<Name>d</Name>")))


@pytest.mark.parametrize(
    "more",
    ["<HashIndex><Key>/a</Key></HashIndex>", "<Index>/a</Index>", "<Expiration>1s</Expiration>"],
)
def test_a_topic_that_retains_nothing_has_nothing_to_index_or_expire(sow, only, more):
    assert "which stores no record" in only(sow(orders(more=f"<Retain>false</Retain>{more}")))


def test_a_field_is_merged_in_one_way_only(sow, only):
    merge = "<Merge><Field>/qty</Field><Operation>{}</Operation></Merge>"
    text = only(sow(orders(more=merge.format("sum") + merge.format("max"))))
    assert "the field /qty is merged twice" in text


def test_a_merger_does_not_stand_beside_merges(sow, only):
    merge = "<Merge><Field>/qty</Field><Operation>sum</Operation></Merge><Merger>a.b:c</Merger>"
    assert "stands beside Merge" in only(sow(orders(more=merge)))


@pytest.mark.parametrize("name", ["merge", "a.b", "a b:c", "a:b:c", ":c"])
def test_a_merger_is_named_by_module_and_callable(sow, only, name):
    assert "does not name a callable" in only(sow(orders(more=f"<Merger>{name}</Merger>")))


def test_what_a_queue_may_do_is_read(sow):
    more = (
        "<ConflationPolicy>always</ConflationPolicy><Placement>append</Placement>"
        "<Match><Key>/a</Key><Key>/b</Key></Match>"
        "<Merge><Field>/qty</Field><Operation>sum</Operation></Merge>"
    )
    topic = sow(orders(more=more)).configuration.topics[0]
    assert (topic.conflation_policy, topic.placement) == ("always", "append")
    assert topic.match == ("/a", "/b")
    assert [(merge.field, merge.operation) for merge in topic.merges] == [("/qty", "sum")]


@pytest.mark.parametrize("text", ["50", "0%", "101%", "half"])
def test_a_percentage_is_from_1_to_100(instance, only, text):
    xml = f"<Sessions><BackgroundConflationAt>{text}</BackgroundConflationAt></Sessions>"
    assert "is not a percentage" in only(instance(xml))
