import pytest

TOPICS = """<SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
<Topic><Name>news</Name><MessageType>json</MessageType><Durability>transient</Durability></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic></ConflatedTopic></SOW>"""


@pytest.fixture
def log(instance):
    """Reads a configuration of three topics that logs the topic `name`."""

    def read(name: str, more: str = ""):
        topic = f"<Topic><Name>{name}</Name>{more}</Topic>"
        return instance(f"{TOPICS}<TransactionLog>{topic}</TransactionLog>")

    return read


@pytest.mark.parametrize("name", ["orders", "ord.*", ".*"])
def test_a_persistent_topic_or_a_pattern_may_be_named(log, name):
    loaded = log(name, "<MessageType>json</MessageType>")
    assert not loaded.findings
    assert loaded.configuration.journal.topics[0].name == name


PATTERN = (
    "<SOW><Topic><Name>desks</Name><MessageType>json</MessageType><Pattern>^/desk/</Pattern>{}"
    "</Topic></SOW><TransactionLog><Topic><Name>{}</Name></Topic></TransactionLog>"
)


@pytest.mark.parametrize("name", ["desks", "/desk/1", "^/desk/", "/desk/[0-9]+"])
def test_a_topic_that_a_pattern_will_make_may_be_named(instance, name):
    assert not instance(PATTERN.format("", name)).findings


def test_a_topic_that_a_pattern_will_not_make_is_undefined(instance, only):
    assert "no topic is called '/floor/1'" in only(instance(PATTERN.format("", "/floor/1")))


def test_the_log_of_a_transient_topic_of_a_pattern_is_refused(instance, only):
    transient = PATTERN.format("<Durability>transient</Durability>", "/desk/1")
    assert "the log of a transient topic is not available yet" in only(instance(transient))


@pytest.mark.parametrize(("name", "kind"), [("orders-C", "conflated"), ("news", "transient")])
def test_other_logs_are_refused_by_name(log, only, name, kind):
    assert f"the log of a {kind} topic is not available yet" in only(log(name))


def test_an_undefined_topic_is_answered_with_the_nearest(log, only):
    assert "no topic is called 'ordres'; did you mean 'orders'?" in only(log("ordres"))


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("trades/executions", "define it as a <Topic> in SOW; with <Retain>false</Retain>"),
        ("^/orders", "define a <Topic> with this <Pattern> in SOW"),
        ("^/status/", "define a <Topic> with this <Pattern> in SOW; with <Retain>false</Retain>"),
        ("md/.*", "or write .* for all"),
    ],
)
def test_what_is_logged_outside_the_sow_is_sent_how_to_be_there(log, only, name, instead):
    assert instead in only(log(name))


def test_what_it_is_sent_is_taken(instance):
    for name in ("<Name>md/spot</Name>", "<Name>md</Name><Pattern>^md/</Pattern>"):
        topic = f"<Topic>{name}<MessageType>json</MessageType><Retain>false</Retain></Topic>"
        logged = "<Topic><Name>md/spot</Name></Topic>"
        xml = f"<SOW>{topic}</SOW><TransactionLog>{logged}</TransactionLog>"
        assert instance(xml).findings == ()


def test_the_log_of_a_queue_is_not_called_undefined(instance, only):
    queue = "<SOW><Queue><Name>/queue/a</Name></Queue></SOW>"
    log = "<TransactionLog><Topic><Name>/queue/a</Name></Topic></TransactionLog>"
    assert "Queue is not available yet" in only(instance(queue + log))


def test_a_pattern_that_does_not_compile_is_refused(log, only):
    assert "neither a topic nor a pattern" in only(log("(a"))


def test_the_message_type_must_be_that_of_the_topic(log, only):
    assert "nvfix differs" in only(log("orders", "<MessageType>nvfix</MessageType>"))
