"""What a topic and a conflated topic may say, element by element.

`<Queue>` as an element: what each one sets, and the topic that it makes.
"""

import dataclasses

import pytest

from sow.config.elements.topic import (
    BACK_PRESSURE_ELEMENTS,
    CONFLATED_TOPIC,
    QUEUE,
    TOPIC,
    queue_topic,
)
from sow.core.definitions import Declared, History, Merge, QueueSettings, Series, Topic
from tests.cases import all_cases

KEYS = "<Key>/id</Key><Key>/side</Key>"


@pytest.mark.parametrize(
    ("xml", "field", "value"),
    [
        ("<Placement>append</Placement>", "placement", "append"),
        ("<ConflationPolicy>off</ConflationPolicy>", "conflation_policy", "off"),
        ("<Match><Key>/a</Key><Key>/b</Key></Match>", "match", ("/a", "/b")),
        (
            "<Merge><Field>/n</Field><Operation>sum</Operation></Merge>",
            "merges",
            (Merge("/n", "sum"),),
        ),
        ("<Merger>package.module:name</Merger>", "merger", "package.module:name"),
        ("<HashIndex><Key>/a</Key></HashIndex>", "hash_indexes", (("/a",),)),
        ("<Index>/a</Index>", "indexes", ("/a",)),
    ],
)
def test_topics_and_their_copies_say_alike_what_queues_and_indexes_do(
    orders, copy, xml, field, value
):
    (topic,) = orders(xml).configuration.topics
    assert getattr(topic, field) == value
    assert getattr(copy(xml).configuration.topics[1], field) == value


@pytest.mark.parametrize(
    ("xml", "fields"),
    [
        ("<Expiration>enabled</Expiration>", {"expires": True, "expiration_us": None}),
        ("<Expiration>2s</Expiration>", {"expires": True, "expiration_us": 2_000_000}),
        ("<Expiration>disabled</Expiration>", {"expires": False}),
        ("<Durability>transient</Durability>", {"durability": "transient"}),
        ("<Duration><Mode>transient</Mode></Duration>", {"durability": "transient"}),
        ("<KeyDomain>d</KeyDomain>", {"key_domain": "d"}),
        ("<MaxRecords>5</MaxRecords>", {"records_max": 5}),
        (
            "<History><Window>7d</Window><Granularity>30m</Granularity></History>",
            {"history": History(7 * 86_400_000_000, 1_800_000_000)},
        ),
        ("<History><Window>5s</Window></History>", {"history": History(5_000_000)}),
        ("<Pattern>^ord</Pattern>", {"pattern": "^ord"}),
        ("<DeltaNull>remove</DeltaNull>", {"delta_null": "remove"}),
        ("<Series/>", {"series": Series(10, None), "conflation_policy": "off"}),
        (
            "<Series><Retain>limit 100 last 10s</Retain></Series>",
            {"series": Series(100, 10_000_000)},
        ),
        ("<Series><Retain>last 1m</Retain></Series>", {"series": Series(None, 60_000_000)}),
        (
            "<Series/><ConflationPolicy>unsubscribe</ConflationPolicy>",
            {"conflation_policy": "unsubscribe"},
        ),
    ],
)
def test_what_only_a_topic_says(orders, xml, fields):
    loaded = orders(xml)
    (topic,) = loaded.configuration.topics
    assert {name: getattr(topic, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("xml", "fields"),
    [
        ("<Interval>250ms</Interval>", {"interval_us": 250_000}),
        ("<Filter>/a = 1</Filter>", {"filter": "/a = 1"}),
        ("<Schedule>tick</Schedule>", {"schedule": "tick"}),
        (
            "<Enrichment><Field>1 AS /one</Field><Field>2 AS /two</Field></Enrichment>",
            {"enrichment": ("1 AS /one", "2 AS /two")},
        ),
    ],
)
def test_what_only_a_copy_says(copy, xml, fields):
    found = copy(xml).configuration.topics[1]
    assert {name: getattr(found, name) for name in fields} == fields


def test_the_shortest_interval_is_taken_and_a_shorter_one_is_not(copy, only):
    assert copy("<Interval>100ms</Interval>").configuration.topics[1].interval_us == 100_000
    assert "100ms" in only(copy("<Interval>99ms</Interval>"))


@pytest.mark.parametrize("word", ["ConflationPolicy", "Placement"])
def test_a_word_that_is_none_of_the_choices_is_sent_all_of_them(orders, only, word):
    (element,) = [one for one in BACK_PRESSURE_ELEMENTS if one.name == word]
    text = only(orders(f"<{word}>whatever</{word}>"))
    assert element.default in text


def test_old_names_of_both_kinds_are_understood():
    assert TOPIC.names == ("Topic", "TopicDefinition")
    assert CONFLATED_TOPIC.names == ("ConflatedTopic", "ReplicaDefinition")


def test_a_schema_says_the_types_of_fields(orders):
    (topic,) = orders(
        '<Schema><Field type="decimal( 9, 2 )">/px</Field><Field type="date">$.a.b</Field></Schema>'
    ).configuration.topics
    assert topic.schema == (Declared("/px", "decimal(9,2)"), Declared("/a/b", "date"))


@pytest.mark.parametrize(
    ("field", "word"),
    [
        ("<Field>/a</Field>", 'Field: has no type; write <Field type="…">'),
        ('<Field type="int">/a</Field>', "did you mean int64?"),
        ('<Field type="decimal(50,2)">/a</Field>', "1 to 38 digits"),
        ('<Field type="int64">a</Field>', "is not a path"),
        ('<Field type="int64">/a[0]</Field>', "as json"),
        ('<Field type="int64"/>', "Field: is empty; write <Field>…</Field>, or remove it"),
        ("", "Schema: has no Field"),
    ],
)
def test_a_slip_in_a_schema_is_sent_what_to_write(orders, only, field, word):
    assert word in only(orders(f"<Schema>{field}</Schema>"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("100", "does not say which events are kept"),
        ("limit", "does not say which events are kept"),
        ("limit 1 limit 2", "does not say which events are kept"),
        ("first 3", "does not say which events are kept"),
        ("limit 0", "keeps nothing"),
        ("limit x", "'x' is not a count"),
        ("last 5", "5"),
        ("last 0s", "keeps nothing"),
    ],
)
def test_a_retain_that_says_nothing_is_answered_with_what_to_write(orders, only, text, says):
    assert says in only(orders(f"<Series><Retain>{text}</Retain></Series>"))


ORDERS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
DEAD = ORDERS.replace("orders", "dead")


def queue(more=""):
    return (
        "<Queue><Name>jobs</Name><MessageType>json</MessageType>"
        f"<UnderlyingTopic>orders</UnderlyingTopic>{more}</Queue>"
    )


def made(sow, more=""):
    return sow(ORDERS + DEAD + queue(more)).configuration.topics[-1]


def test_a_queue_is_a_topic_of_messages_that_nobody_conflates(sow):
    topic = made(sow)
    assert isinstance(topic, Topic)
    assert (topic.name, topic.keys, topic.conflation_policy) == ("jobs", (), "off")
    assert topic.queue == QueueSettings("orders")
    assert topic.file_name == "jobs.json.sow"
    assert topic.line


@all_cases(("xml", "field", "value"), [
        ("<Semantics>at-most-once</Semantics>", "semantics", "at-most-once"),
        ("<LeasePeriod>2m</LeasePeriod>", "lease_us", 120_000_000),
        ("<FairnessModel>round-robin</FairnessModel>", "fairness", "round-robin"),
        ("<MaxBacklog>7</MaxBacklog>", "backlog_max", 7),
        ("<MaxPerSubscriptionBacklog>9</MaxPerSubscriptionBacklog>", "subscription_backlog_max", 9),
        ("<MaxDeliveries>3</MaxDeliveries>", "deliveries_max", 3),
        (
            "<MaxDeliveries>3</MaxDeliveries><DeadLetterTopic>dead</DeadLetterTopic>",
            "dead_letters",
            "dead",
        ),
        ("<Priority>/p</Priority>", "priority", "/p"),
        ("<BarrierExpression>/b = 1</BarrierExpression>", "barrier", "/b = 1"),
    ])  # fmt: skip
def test_each_element_sets_its_field(sow, xml, field, value):
    assert getattr(made(sow, xml).queue, field) == value


def test_every_setting_has_an_element_with_its_default():
    defaults = {one.name: one.default for one in dataclasses.fields(QueueSettings)}
    fields = {field: child for child in QUEUE.children for field in child.fields}
    assert defaults.keys() <= fields.keys()
    assert queue_topic("jobs", "json", underlying="orders").queue == QueueSettings("orders")
    for name, default in defaults.items():
        child = fields[name]
        if child.default:
            assert child.kind.read(child.default) == default


@all_cases("element", ["Filter", "Expiration", "Leasing", "RecoveryPoint"])
def test_what_amps_has_beside_it_is_refused_by_name(sow, element):
    (finding,) = sow(ORDERS + queue(f"<{element}>1</{element}>")).errors
    assert finding.element == element
    assert "not available yet" in finding.message


def test_what_only_tunes_has_no_effect(sow):
    loaded = sow(ORDERS + queue("<TargetQueueDepth>1000</TargetQueueDepth>"))
    assert not loaded.errors
    assert [finding.severity for finding in loaded.findings] == ["warning"]
