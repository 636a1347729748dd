"""What a queue needs of the topics above it, and what is said where it is not so."""

import pytest

from tests.cases import all_cases
from tests.config.elements.test_topic import DEAD, ORDERS, queue

TRANSIENT = ORDERS.replace("</Topic>", "<Durability>transient</Durability></Topic>")
MANY = ORDERS.replace("</Topic>", "<Pattern>^orders</Pattern></Topic>")
FIX_DEAD = DEAD.replace("json", "nvfix")
COPY = (
    "<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>"
    "<UnderlyingTopic>orders</UnderlyingTopic></ConflatedTopic>"
)
VIEW = (
    "<View><Name>v</Name><MessageType>json</MessageType><UnderlyingTopic>jobs</UnderlyingTopic>"
    "<Projection><Field>/id</Field></Projection><Grouping><Field>/id</Field></Grouping></View>"
)
LIMIT = "<MaxDeliveries>2</MaxDeliveries>"
ONCE = "<Semantics>at-most-once</Semantics>"


def letters(name):
    return f"{LIMIT}<DeadLetterTopic>{name}</DeadLetterTopic>"


@all_cases("xml", [
        ORDERS + queue(),
        ORDERS + DEAD + queue(letters("dead")),
        ORDERS + queue(ONCE),
        ORDERS + queue() + queue().replace("jobs", "others"),
    ])  # fmt: skip
def test_a_queue_over_a_topic_is_fine(sow, xml):
    assert sow(xml).findings == ()


@all_cases(("xml", "element", "said"), [
        (queue(), "UnderlyingTopic", "no topic 'orders' is defined"),
        (queue() + ORDERS, "UnderlyingTopic", "is defined later"),
        (ORDERS + COPY + queue().replace(">orders<", ">orders-C<"), "UnderlyingTopic", "no single"),
        (MANY + queue(), "UnderlyingTopic", "no single topic"),
        (TRANSIENT + queue(), "UnderlyingTopic", "is transient"),
        (
            ORDERS.replace("json", "nvfix") + queue(),
            "UnderlyingTopic",
            "has the message type nvfix, and the queue json",
        ),
        (ORDERS + queue(letters("dead")), "DeadLetterTopic", "no topic 'dead' is defined"),
        (ORDERS + queue(letters("orders")), "DeadLetterTopic", "is the underlying topic"),
        (ORDERS + COPY + queue(letters("orders-C")), "DeadLetterTopic", "no single topic"),
        (
            ORDERS + DEAD + queue("<DeadLetterTopic>dead</DeadLetterTopic>"),
            "DeadLetterTopic",
            "there is no such limit",
        ),
        (ORDERS + FIX_DEAD + queue(letters("dead")), "DeadLetterTopic", "nvfix"),
        (ORDERS + queue(ONCE + LIMIT), "MaxDeliveries", "at-most-once has none"),
        (ORDERS + queue(f"{ONCE}<LeasePeriod>1s</LeasePeriod>"), "LeasePeriod", "has none"),
        (ORDERS + queue() + VIEW, "UnderlyingTopic", "is a queue, which is only consumed"),
    ])  # fmt: skip
def test_what_does_not_fit_is_said_where_it_is_written(sow, xml, element, said):
    (finding,) = sow(xml).errors
    assert (finding.element, said in finding.message) == (element, True), finding
    assert finding.instead


def test_dead_messages_do_not_come_back_by_other_queues(sow):
    other = queue(letters("orders")).replace("jobs", "others").replace(">orders</Und", ">dead</Und")
    found = sow(ORDERS + DEAD + queue(letters("dead")) + other).errors
    assert [(one.element, "by other queues" in one.message) for one in found] == [
        ("DeadLetterTopic", True)
    ] * 2


@pytest.mark.parametrize("element", ["Priority", "BarrierExpression"])
def test_messages_without_fields_have_no_priority_and_no_barrier(sow, element):
    value = "/p" if element == "Priority" else "/p = 1"
    topic = "<Topic><Name>orders</Name><MessageType>binary</MessageType></Topic>"
    xml = topic + queue(f"<{element}>{value}</{element}>").replace("json", "binary")
    (finding,) = sow(xml).errors
    assert (finding.element, "have no fields" in finding.message) == (element, True)


def test_a_barrier_looks_at_fields_alone(sow):
    (finding,) = sow(
        ORDERS + queue("<BarrierExpression>LAST_UPDATED() &gt; /t</BarrierExpression>")
    ).errors
    assert finding.element == "BarrierExpression"
    assert "more than the fields" in finding.message
