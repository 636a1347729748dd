import pytest

ORDERS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>\n"


def copy(name: str, of: str, kind: str = "json", more: str = "") -> str:
    inside = f"<Name>{name}</Name><MessageType>{kind}</MessageType>"
    inside += f"<UnderlyingTopic>{of}</UnderlyingTopic>{more}"
    return f"<ConflatedTopic>{inside}</ConflatedTopic>\n"


def test_a_copy_may_have_a_copy(sow):
    loaded = sow(ORDERS + copy("a", "orders") + copy("b", "a"))
    assert [topic.name for topic in loaded.configuration.topics] == ["orders", "a", "b"]


def test_an_undefined_topic_is_answered_with_the_nearest(sow, only):
    text = only(sow(ORDERS + copy("c", "order")))
    assert text == (
        "config.xml:2: UnderlyingTopic: no topic 'order' is defined; did you mean 'orders'?"
    )


def test_a_pattern_that_no_topic_has_is_answered_with_the_topics_that_have_one(sow, only):
    many = "<Topic><Name>by_book</Name><Pattern>desk/([a-z]+)</Pattern>"
    many += "<MessageType>json</MessageType><Key>/id</Key></Topic>\n"
    assert only(sow(ORDERS + many + copy("c", "desk/.*"))) == (
        "config.xml:3: UnderlyingTopic: no topic 'desk/.*' is defined, and no Topic has this "
        "Pattern; write the Name of a Topic that has a Pattern: by_book"
    )
    assert "define it above" in only(sow(ORDERS + copy("c", "desk/.*")))


def test_an_undefined_topic_like_no_other_is_said_so(sow, only):
    assert "define it above" in only(sow(copy("c", "orders")))


def test_a_topic_defined_later_is_sent_to_be_moved(sow, only):
    text = only(sow(copy("c", "orders") + ORDERS))
    assert text.endswith("'orders' is defined later, in line 2; move 'orders' above 'c'")


def test_a_topic_cannot_copy_itself(sow, only):
    assert "would conflate itself" in only(sow(copy("c", "c")))


def test_two_topics_cannot_copy_each_other(sow, only):
    assert "'b' is defined later" in only(sow(copy("a", "b") + copy("b", "a")))


def test_the_message_type_must_be_that_of_the_underlying_topic(sow, only):
    text = only(sow(ORDERS + copy("c", "orders", "nvfix")))
    assert text.startswith("config.xml:2: MessageType: nvfix differs from the message type of")
    assert text.endswith("write json")


@pytest.mark.parametrize("element", ["Queue", "QueueDefinition", "LocalQueue"])
def test_a_copy_of_what_is_not_available_yet_is_reported_once(sow, only, element):
    view = f"<{element}><Name>v</Name></{element}>"
    assert f"{element} is not available yet" in only(sow(view + copy("c", "v")))


def test_a_copy_of_a_pattern_is_sent_to_add_a_topic_format(sow):
    pattern = ORDERS.replace("</Topic>", "<Pattern>^/my/</Pattern></Topic>")
    loaded = sow(pattern + copy("c", "orders"))
    assert [f.element for f in loaded.errors] == ["ConflatedTopic"]
    assert "add <TopicFormat>%n-C</TopicFormat>" in loaded.errors[0].instead


DESKS = ORDERS.replace("orders", "desks").replace("</Topic>", "<Pattern>^/desk/</Pattern></Topic>")


@pytest.mark.parametrize(
    ("name", "said"), [("^/desk/", "is the Pattern"), ("/desk/1", "is a name of the Pattern")]
)
def test_what_a_pattern_stands_for_is_named_by_its_definition(sow, only, name, said):
    text = only(sow(DESKS + copy("c", name, more="<TopicFormat>%n-C</TopicFormat>")))
    assert (
        f"no topic {name!r} is defined: it {said} of 'desks'; write desks, and <TopicForm" in text
    )
    view = (
        f"<View><Name>v</Name><MessageType>json</MessageType><UnderlyingTopic>{name}"
        "</UnderlyingTopic><Projection><Field>/a</Field></Projection>"
        "<Grouping><Field>/a</Field></Grouping></View>"
    )
    assert f"it {said} of 'desks'; name a topic that is defined by itself" in only(
        sow(DESKS + view)
    )


SPARK = "<Engine>spark</Engine>"


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        (ORDERS + copy("c", "orders", more="<Interval>500ms</Interval>" + SPARK), "write embedded"),
        (
            ORDERS + copy("c", "orders", more="<Schedule>tick</Schedule>" + SPARK),
            "Schedule is tick",
        ),
        (ORDERS + copy("a", "orders") + copy("c", "a", more=SPARK), "reads the log"),
        (
            ORDERS.replace("</Topic>", "<Durability>transient</Durability></Topic>")
            + copy("c", "orders", more=SPARK),
            "which has none",
        ),
        (
            ORDERS + copy("c", "orders", more="<Filter>MESSAGE_SIZE() > 5</Filter>" + SPARK),
            "by their fields alone",
        ),
    ],
)
def test_what_spark_cannot_conflate_is_refused(sow, only, topics, says):
    assert says in only(sow(topics))


def test_an_interval_that_spark_hardly_holds_is_a_warning(sow):
    (found,) = sow(ORDERS + copy("c", "orders", more="<Interval>1s</Interval>" + SPARK)).findings
    assert found.severity == "warning"
    assert "1 s" in str(found)


def test_a_longer_interval_may_be_run_by_spark(sow):
    loaded = sow(ORDERS + copy("c", "orders", more="<Interval>2s</Interval>" + SPARK))
    assert loaded.findings == ()
    assert loaded.configuration.topics[1].engine == "spark"
