"""What a view needs of the topics above it, and what is said where it is not so.

What a queue needs of the topics above it, and what is said where it is not so.
"""

import pytest

from tests.cases import all_cases
from tests.config.elements.test_topic import DEAD, queue
from tests.config.elements.test_topic import ORDERS as LOGGED

ORDERS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>\n"
TRADES = (
    "<MessageTypes><MessageType><Name>trade</Name><Module>record</Module>"
    "<Field>id</Field><Field>desk</Field></MessageType></MessageTypes>"
)

SPARK = "<Engine>spark</Engine>"


def view(name="desks", of="orders", fields=("/desk", "SUM(/qty) AS /qty"), by="/desk", more=""):
    projected = "".join(f"<Field>{field}</Field>" for field in fields)
    return (
        f"<View><Name>{name}</Name><MessageType>json</MessageType>"
        f"<UnderlyingTopic>{of}</UnderlyingTopic>\n<Projection>{projected}</Projection>\n"
        f"<Grouping><Field>{by}</Field></Grouping>{more}</View>\n"
    )


def test_spark_makes_views_of_topics_and_of_views_that_it_makes(sow):
    fields = ("/desk", "SUM(/a * /b) / COUNT(1) AS /x", "AVG(/a) AS /y", "MAX(/a) - MIN(/a) AS /z")
    above = view("all", "desks", ("SUM(/x) AS /qty",), "/desk", SPARK)
    loaded = sow(
        ORDERS
        + view(fields=fields, more=SPARK)
        + above
        + view("few", "all", fields=("/qty",), by="/qty")
    )
    engines = [topic.engine for topic in loaded.configuration.topics[1:]]
    assert engines == ["spark", "spark", "embedded"]


def test_spark_does_not_join(sow):
    join = "<Join>[orders]./s = [quotes]./s</Join>"
    fields, by = ("COUNT([orders]./id) AS /n",), "[orders]./desk"
    xml = view(of=join, fields=fields, by=by, more=SPARK)
    (error,) = sow(ORDERS + ORDERS.replace("orders", "quotes") + xml).errors
    assert "Engine: spark does not join, and the view is of several topics" in str(error)


def test_a_view_may_be_made_of_a_view_and_of_a_copy(sow):
    copy = (
        "<ConflatedTopic><Name>slow</Name><MessageType>json</MessageType>"
        "<UnderlyingTopic>desks</UnderlyingTopic></ConflatedTopic>"
    )
    loaded = sow(ORDERS + view() + copy + view("all", "slow", ("SUM(/qty) AS /all",), "/desk"))
    assert [topic.name for topic in loaded.configuration.topics][1:] == ["desks", "slow", "all"]


@all_cases(("xml", "said"), [
        (ORDERS + view(of="order"), "2: UnderlyingTopic: no topic 'order' is defined; did you"),
        (view() + ORDERS, "1: UnderlyingTopic: the topic 'orders' is defined later, in line 4"),
        (view(of="desks"), "the topic 'desks' would be made of itself"),
        (
            view("a", "b", ("COUNT(1) AS /n",)) + view("b", "a", ("/desk",)),
            "'b' is defined later, in line 4, and is itself made of 'a'; take one of them out",
        ),
        (
            ORDERS.replace("</Topic>", "<Pattern>^/my/</Pattern></Topic>") + view(),
            "'orders' is a pattern of topics, and a view is made of single ones",
        ),
        (
            ORDERS.replace("</Topic>", "<Retain>false</Retain></Topic>") + view(),
            "'orders' has Retain false, so there are no records",
        ),
        (
            ORDERS.replace("json</MessageType><Key>/id</Key>", "binary</MessageType>") + view(),
            "messages of 'orders' have no fields (binary) to group by",
        ),
        (
            ORDERS + view().replace("json</MessageType><Und", "string</MessageType><Und"),
            "a message of the type string cannot be made field by field",
        ),
        (
            ORDERS + view() + view("all", "desks", ("SUM(/qty) AS /qty",), more=SPARK),
            "7: Engine: spark reads the log of 'desks', which has none; write embedded",
        ),
        (
            ORDERS.replace("</Topic>", "<Durability>transient</Durability></Topic>")
            + view(more=SPARK),
            "spark reads the log of 'orders', which has none",
        ),
        (
            ORDERS + view(more=SPARK, fields=("GROUP_CONCAT(/id) AS /ids",)),
            "3: Projection: spark does not keep GROUP_CONCAT(/id); write COUNT, SUM, AVG, MIN or "
            "MAX, or leave the view to the embedded engine",
        ),
        (
            ORDERS + view(more=SPARK, fields=("/desk", "/px AS /last")),
            "spark does not know which record changed last, so it has no last /px; group by it, "
            "write MAX(/px) AS",
        ),
        (
            ORDERS + view(more=SPARK + "<Filter>SOW_KEY() = '1'</Filter>"),
            "Filter uses more of the message",
        ),
        (
            ORDERS + view().replace("<Grouping><Field>/desk</Field></Grouping>", ""),
            "2: View: has no Grouping; add <Grouping>",
        ),
        (ORDERS + view(fields=("/a", "/b AS /a")), "/a is projected twice"),
        (ORDERS + view(fields=("SUM(SUM(/a)) AS /b",)), "SUM at position 4 is inside SUM"),
        (
            ORDERS + view() + view("all", "desks", ("COUNT(/n) AS /n",)),
            "6: Projection: no row of the view 'desks' has /n: it projects '/desk, /qty'",
        ),
        (
            ORDERS + view() + view("all", "desks", ("COUNT(1) AS /n",), "/desks"),
            "7: Grouping: no row of the view 'desks' has /desks: it projects '/desk, /qty'; did "
            "you mean /desk?",
        ),
        (
            ORDERS + view() + view("all", "desks", more="<Filter>/px > 1</Filter>"),
            "Filter: no row of the view 'desks' has /px: it projects '/desk, /qty'",
        ),
        (
            ORDERS.replace("json</MessageType><Key>/id", "string</MessageType><Key>/value")
            + view(fields=("COUNT(/value) AS /n",)),
            "Grouping: a message of type string has no field '/desk'; write /value",
        ),
        (
            ORDERS.replace("json", "nvfix", 1) + view(fields=("COUNT(/order/id) AS /n",)),
            "a message of type nvfix has no field '/order/id', since there are none inside of "
            "others; write a path of one name, such as /id",
        ),
        (
            ORDERS + view(more="<JoinNullEquivalency>enabled</JoinNullEquivalency>"),
            "JoinNullEquivalency: has no effect without a Join",
        ),
        (
            ORDERS + view(more="<Filter>LAST_UPDATED() > 5</Filter>"),
            "uses LAST_UPDATED(), which differs at each change",
        ),
    ])  # fmt: skip
def test_what_cannot_be_is_said_where_it_stands(sow, xml, said):
    loaded = sow(xml)
    assert loaded.configuration is None
    assert any(said in str(error) for error in loaded.errors), [*map(str, loaded.errors)]


def test_a_view_of_several_topics_has_no_filter_and_names_no_topic_besides(sow):
    quotes = ORDERS.replace("orders", "quotes")
    join = "<Join>[orders]./s = [quotes]./s</Join>"
    xml = view(of=join, fields=("COUNT([orders]./id) AS /n",), by="[orders]./desk")
    loaded = sow(ORDERS + quotes + xml.replace("</View>", "<Filter>/a = 1</Filter></View>"))
    assert "a view of several topics has no Filter" in str(loaded.errors[0])
    loaded = sow(ORDERS + quotes + xml.replace("<Join>", "<Topic>orders</Topic><Join>"))
    assert "names one topic and joins several" in str(loaded.errors[0])
    loaded = sow(ORDERS + quotes + xml.replace("[orders]./desk", "/desk"))
    assert "/desk at position 0 of the grouping names no topic" in str(loaded.errors[0])


def test_fields_that_a_record_type_does_not_have(instance):
    trades = ORDERS.replace("orders", "trades").replace("json", "trade")
    xml = view(of="trades", fields=("/desk", "SUM(/qty) AS /qty"))
    (error,) = instance(f"<SOW>{trades}{xml}</SOW>{TRADES}").errors
    assert "messages of type trade have no field '/qty'; their fields are 'id, desk'" in str(error)


def test_an_index_of_what_no_row_has_is_warned_about(sow, only):
    text = only(sow(ORDERS + view(more="<Index>/name</Index>")))
    assert "no row has /name, so the index finds nothing; name a field as it is projected" in text


def test_a_view_is_not_logged(instance):
    log = "<TransactionLog><Topic><Name>desks</Name></Topic></TransactionLog>"
    loaded = instance(f"<SOW>{ORDERS}{view()}</SOW>{log}")
    assert "the log of a view is not available yet" in str(loaded.errors[0])


def joined(*joins):
    """Three topics, and a view of what these joins make."""
    topics = "".join(ORDERS.replace("orders", name) for name in ("orders", "quotes", "desks"))
    made = "".join(join if join.startswith("<") else f"<Join>{join}</Join>\n" for join in joins)
    return topics + view("all", f"\n{made}", ("[orders]./desk",), "[orders]./desk")


@pytest.mark.parametrize(
    ("joins", "said"),
    [
        (
            ("[orders]./s = [quotes]./s", "[quotes]./d = [desks]./d", "[desks]./o = [orders]./o"),
            "7: Join: joins desks with orders, and it is joined with quotes already, from which "
            "orders is reached another way; define a View of the join of quotes and orders",
        ),
        (
            ("[orders]./s = [quotes]./s", '<Join type="full">[orders]./d = [quotes]./d</Join>'),
            "6: Join: says full, and another Join of quotes says left; joins of the same topics "
            "hold together, so write one type",
        ),
        (
            ("[orders]./s = [quote]./s",),
            "Join: no topic 'quote' is defined; did you mean 'quotes'?",
        ),
        (
            ("[json].[orders].[/s] = [nvfix].[quotes].[/s]",),
            "5: Join: the messages of 'quotes' are json, not nvfix; write [json].[quotes], or "
            "[quotes]",
        ),
        (
            ("[fix].[orders]./s = [quotes]./s",),
            "5: Join: the messages of 'orders' are json, not fix; write [json].[orders]",
        ),
    ],
    ids=["circle", "two-types", "unknown", "another-type", "another-type-on-the-left"],
)
def test_what_joins_no_rows_is_said_at_its_join(sow, joins, said):
    loaded = sow(joined(*joins))
    assert any(said in str(error) for error in loaded.errors), list(map(str, loaded.errors))


@pytest.mark.parametrize("named", ["[json].[orders]", "[orders]", " [json] . [orders] ", "orders"])
def test_the_one_topic_may_be_named_as_in_amps(sow, named):
    loaded = sow(ORDERS + view("desks", named))
    assert not loaded.errors
    assert loaded.configuration.topics[1].underlyings == ("orders",)


def test_the_message_type_that_the_one_topic_is_named_with_is_its_own(sow):
    said = str(sow(ORDERS + view("desks", "[nvfix].[orders]")).errors[0])
    assert "UnderlyingTopic: the messages of 'orders' are json, not nvfix" in said


def test_topics_that_nothing_joins_are_named(sow):
    three = joined("[orders]./s = [quotes]./s", "[desks]./d = [more]./d")
    more = ORDERS.replace("orders", "more")
    said = str(sow(more + three).errors[0])
    assert "Join: nothing joins desks with orders, quotes; add a Join of a field of desks" in said


def test_a_join_by_what_no_row_of_a_view_has_is_an_error(sow):
    desks = view("desks", fields=("/desk", "SUM(/qty) AS /qty"))
    both = view(
        "all", "<Join>[orders]./desk = [desks]./desks</Join>", ("[orders]./desk",), "[orders]./desk"
    )
    said = str(sow(ORDERS + desks + both).errors[0])
    assert "Join: no row of the view 'desks' has /desks: it projects '/desk, /qty'" in said


FIX = ORDERS.replace("json", "fix").replace("/id", "/11")
CLIENTS = FIX.replace("orders", "clients")
SLOW_DESKS = (
    "<ConflatedTopic><Name>slow</Name><MessageType>json</MessageType>"
    "<UnderlyingTopic>desks</UnderlyingTopic></ConflatedTopic>"
)
JOINED = "<Join>[fix].[orders].[/1] = [fix].[clients].[/1]</Join>"


@pytest.mark.parametrize("prefix", ["[fix].[orders]./{}", "[fix].[orders].[/{}]"])
@pytest.mark.parametrize("of", ["[fix].[orders]", JOINED])
@pytest.mark.parametrize("upper", ["desks", "[json].[desks]", "slow"])
def test_a_view_may_be_made_of_one_that_names_the_type_of_its_topic(sow, prefix, of, upper):
    fields = (f"{prefix.format(1)} AS /desk", f"SUM({prefix.format(14)}) AS /qty")
    lower = view(of=of, fields=fields, by=prefix.format(1))
    named = "[json].[desks]./{}" if upper == "[json].[desks]" else "/{}"
    fields = (named.format("desk AS /desk"), f"MAX({named.format('qty')}) AS /most")
    above = view("all", upper, fields, named.format("desk"))
    loaded = sow(FIX + CLIENTS + lower + SLOW_DESKS + above)
    assert loaded.findings == ()
    (finding,) = sow(FIX + CLIENTS + lower + SLOW_DESKS + above.replace("/qty)", "/q)")).errors
    assert "it projects '/desk, /qty'" in str(finding)


@pytest.mark.parametrize(
    "fields",
    [("/desk", "SUM(SUM(/qty)) AS /qty"), ("/desk", "SUM(/qty AS /qty"), ("[other]./desk",)],
)
def test_a_view_is_not_blamed_for_what_is_wrong_with_the_one_below(sow, only, fields):
    assert "2: View" not in only(sow(ORDERS + view(fields=fields) + view("all", "desks")))
    below = view(of="order").replace("orders", "order")
    assert "no topic 'order' is defined" in only(sow(ORDERS + below + view("all", "desks")))


TRANSIENT = LOGGED.replace("</Topic>", "<Durability>transient</Durability></Topic>")
MANY = LOGGED.replace("</Topic>", "<Pattern>^orders</Pattern></Topic>")
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
        LOGGED + queue(),
        LOGGED + DEAD + queue(letters("dead")),
        LOGGED + queue(ONCE),
        LOGGED + queue() + queue().replace("jobs", "others"),
    ])  # fmt: skip
def test_a_queue_over_a_topic_is_fine(sow, xml):
    assert sow(xml).findings == ()


@all_cases(("xml", "element", "said"), [
        (queue(), "UnderlyingTopic", "no topic 'orders' is defined"),
        (queue() + LOGGED, "UnderlyingTopic", "is defined later"),
        (LOGGED + COPY + queue().replace(">orders<", ">orders-C<"), "UnderlyingTopic", "no single"),
        (MANY + queue(), "UnderlyingTopic", "no single topic"),
        (TRANSIENT + queue(), "UnderlyingTopic", "is transient"),
        (
            LOGGED.replace("json", "nvfix") + queue(),
            "UnderlyingTopic",
            "has the message type nvfix, and the queue json",
        ),
        (LOGGED + queue(letters("dead")), "DeadLetterTopic", "no topic 'dead' is defined"),
        (LOGGED + queue(letters("orders")), "DeadLetterTopic", "is the underlying topic"),
        (LOGGED + COPY + queue(letters("orders-C")), "DeadLetterTopic", "no single topic"),
        (
            LOGGED + DEAD + queue("<DeadLetterTopic>dead</DeadLetterTopic>"),
            "DeadLetterTopic",
            "there is no such limit",
        ),
        (LOGGED + FIX_DEAD + queue(letters("dead")), "DeadLetterTopic", "nvfix"),
        (LOGGED + queue(ONCE + LIMIT), "MaxDeliveries", "at-most-once has none"),
        (LOGGED + queue(f"{ONCE}<LeasePeriod>1s</LeasePeriod>"), "LeasePeriod", "has none"),
        (LOGGED + queue() + VIEW, "UnderlyingTopic", "is a queue, which is only consumed"),
    ])  # fmt: skip
def test_what_does_not_fit_is_said_where_it_is_written(sow, xml, element, said):
    (finding,) = sow(xml).errors
    assert (finding.element, said in finding.message) == (element, True), finding
    assert finding.instead


def test_dead_messages_do_not_come_back_by_other_queues(sow):
    other = queue(letters("orders")).replace("jobs", "others").replace(">orders</Und", ">dead</Und")
    found = sow(LOGGED + DEAD + queue(letters("dead")) + other).errors
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
        LOGGED + queue("<BarrierExpression>LAST_UPDATED() &gt; /t</BarrierExpression>")
    ).errors
    assert finding.element == "BarrierExpression"
    assert "more than the fields" in finding.message
