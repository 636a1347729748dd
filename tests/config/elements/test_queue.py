"""`<Queue>` as an element: what each one sets, and the topic that it makes."""

import dataclasses

from sow.config.elements.queue import QUEUE, queue_topic
from sow.core.definitions import QueueSettings, Topic
from tests.cases import all_cases

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
