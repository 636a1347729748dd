import pytest

from sow.messages import MESSAGE_TYPES_REFUSED
from sow.server.boot.quarantine import REMOVED
from sow.store.manifest import COPY_FILE, MANIFEST_FILE
from tests.cases import all_cases


def topic(name: str, kind: str = "json", more: str = "") -> str:
    return f"<Topic><Name>{name}</Name><MessageType>{kind}</MessageType>{more}</Topic>\n"


def variant(name: str, module: str, more: str = "") -> str:
    inside = f"<Name>{name}</Name><Module>{module}</Module>{more}"
    return f"<MessageTypes><MessageType>{inside}</MessageType></MessageTypes>"


def test_names_are_unique_over_all_message_types(sow, only):
    text = only(sow(topic("a") + topic("a", "nvfix")))
    assert text.startswith("config.xml:2: Name: the name 'a' is already used in line 1")


def test_a_name_is_called_what_its_writer_called_it(sow, only):
    named = "<TopicDefinition><Topic>a</Topic><MessageType>fix</MessageType></TopicDefinition>"
    assert only(sow(topic("a") + named)).startswith("config.xml:2: Topic: the name 'a' is already")


def test_a_key_that_cannot_be_read_is_not_called_missing(sow, only):
    wrong = topic("a", more="<Key>id</Key><KeyDomain>d</KeyDomain>")
    assert only(sow(wrong)).startswith("config.xml:1: Key: 'id' is not a path")


@pytest.mark.parametrize("name", ["a.b", "orders*", "(a)", "^a"])
def test_a_name_that_reads_as_a_pattern_is_a_warning(sow, only, name):
    assert "as a pattern of names" in only(sow(topic(name)))


@pytest.mark.parametrize("name", [r"^desk\.[A-Za-z0-9_-]+$", "md/.*", "orders-[0-9]", "(a|b)"])
def test_a_regular_expression_as_a_name_is_sent_of_pattern(sow, only, name):
    assert "write it as <Pattern> and a plain <Name>" in only(sow(topic(name)))
    copy = "<ConflatedTopic><Name>{}</Name><MessageType>json</MessageType>{}</ConflatedTopic>"
    of = "<UnderlyingTopic>a</UnderlyingTopic>"
    text = only(sow(topic("a") + copy.format(name, of)))
    assert "write <TopicFormat>%n-C</TopicFormat> and a plain <Name>" in text
    named = topic("desks", more="<Pattern>^/desk/</Pattern>").replace("desks", name)
    assert "<Pattern>" not in only(sow(named))


def test_a_dot_in_a_name_is_hardly_meant_as_a_pattern(sow, only):
    assert "Pattern" not in only(sow(topic("md.spot")))


COPY = (
    "<ConflatedTopic><Name>c</Name><MessageType>json</MessageType>"
    "<UnderlyingTopic>a</UnderlyingTopic></ConflatedTopic>\n"
)
VIEW = (
    "<View><Name>v</Name><MessageType>json</MessageType><UnderlyingTopic>{}</UnderlyingTopic>"
    "<Projection><Field>[json].[a]./d AS /d</Field></Projection>"
    "<Grouping><Field>[json].[a]./d</Field></Grouping></View>\n"
)


@pytest.mark.parametrize("wrong", ["JSON", "text", "protobuf", "nope"])
@pytest.mark.parametrize(
    "more",
    [
        COPY,
        VIEW.format("[json].[a]"),
        topic("b") + VIEW.format("<Join>[json].[a]./x = [b]./x</Join>"),
    ],
    ids=["copy", "view", "join"],
)
def test_a_wrong_message_type_is_one_finding(sow, only, wrong, more):
    assert ":1: MessageType: " in only(sow(topic("a", wrong) + more))


def test_a_wrong_message_type_of_a_copy_is_one_finding(sow, only):
    text = only(sow(topic("a") + COPY.replace("json", "JSON")))
    assert (
        text == "config.xml:2: MessageType: there is no message type 'JSON'; did you mean 'json'?"
    )


@pytest.mark.parametrize(
    ("others", "own"),
    [("text", "string"), ("Text", "string"), ("bytes", "binary"), ("int", "int64"),
     ("float", "double"), ("composite", "composite-local"), ("JSON", "json")],
)  # fmt: skip
def test_a_message_type_of_others_is_answered_with_the_one_here(sow, only, others, own):
    assert only(sow(topic("a", others))).endswith(f"did you mean {own!r}?")


def test_a_name_of_the_servers_own_topics_is_refused(sow, only):
    assert "the server's own topics" in only(sow(topic("/sow/writes")))


def test_an_ordinary_name_is_no_pattern(sow):
    assert not sow(topic("/my/orders-C_2 é:x")).findings


@pytest.mark.parametrize("kind", MESSAGE_TYPES_REFUSED)
def test_a_message_type_that_is_not_taken_is_refused_with_the_reason(sow, only, kind):
    text = only(sow(topic("a", kind)))
    assert f"'{kind}' is not available: its messages" in text
    assert "publish " in text


@pytest.mark.parametrize(
    "more", ["<Key>/a</Key>", "<HashIndex><Key>/a</Key></HashIndex>", "<Index>/a</Index>"]
)
def test_a_type_without_fields_has_no_keys_nor_indexes(sow, only, more):
    assert "messages of the type binary have no fields" in only(sow(topic("a", "binary", more)))


@pytest.mark.parametrize("kind", ["string", "int64", "double"])
def test_a_type_of_one_value_may_be_keyed_and_filtered_by_it(sow, kind):
    more = "<Key>/value</Key><HashIndex><Key>/value</Key></HashIndex>"
    copy = f"<ConflatedTopic><Name>c</Name><MessageType>{kind}</MessageType>"
    copy += "<UnderlyingTopic>a</UnderlyingTopic><Filter>/value &gt; 1</Filter></ConflatedTopic>"
    assert sow(topic("a", kind, more) + copy).findings == ()


def test_a_type_of_one_value_is_not_merged_field_by_field(sow, only):
    copy = "<ConflatedTopic><Name>c</Name><MessageType>int64</MessageType>"
    copy += "<UnderlyingTopic>a</UnderlyingTopic>"
    copy += "<Merge><Field>/value</Field><Operation>sum</Operation></Merge></ConflatedTopic>"
    text = only(sow(topic("a", "int64") + copy))
    assert "messages of the type int64 are not merged field by field; remove Merge" in text


def test_a_type_without_fields_has_no_filter(sow, only):
    copy = "<ConflatedTopic><Name>c</Name><MessageType>binary</MessageType>"
    copy += "<UnderlyingTopic>a</UnderlyingTopic><Filter>/x = 1</Filter></ConflatedTopic>"
    assert "binary have no fields; remove Filter" in only(sow(topic("a", "binary") + copy))


def test_a_type_with_fields_may_do_without_a_key(sow):
    loaded = sow(topic("a"))
    assert loaded.configuration.topics[0].keys == ()


def test_a_key_domain_needs_a_key(sow, only):
    text = only(sow(topic("a", more="<KeyDomain>d</KeyDomain>")))
    assert "KeyDomain: a key domain needs Key" in text


@pytest.mark.parametrize(
    "more",
    [
        "<Key>/a</Key><Key>$.a</Key>",
        "<Index>/a</Index><Index>/a</Index>",
        "<HashIndex><Key>/a</Key><Key>/a</Key></HashIndex>",
    ],
)
def test_a_field_named_twice_in_a_list_is_refused(sow, only, more):
    assert "names /a twice" in only(sow(topic("a", more=more)))


def test_two_hash_indexes_on_the_same_fields_are_refused(sow, only):
    one = "<HashIndex><Key>/a</Key><Key>/b</Key></HashIndex>"
    other = "<HashIndex><Key>/b</Key><Key>/a</Key></HashIndex>"
    assert "an index on /a, /b is already defined" in only(sow(topic("a", more=one + other)))


@pytest.mark.parametrize(
    "more",
    [
        "<Durability>transient</Durability><FileName>x</FileName>",
        '<Durability FlushInterval="5ms">transient</Durability>',
    ],
)
def test_what_concerns_the_disk_is_a_warning_on_a_transient_topic(sow, only, more):
    assert "has no effect on a transient topic" in only(sow(topic("a", more=more)))


@pytest.mark.parametrize("more", ["<Durability>transient</Durability>", "<Retain>false</Retain>"])
def test_a_history_of_what_has_no_past_is_refused(sow, only, more):
    xml = topic("a", more=more + "<History><Window>1d</Window></History>")
    assert "History: has no effect on a topic without a log" in only(sow(xml))


def test_a_variant_of_a_message_type_can_be_used_before_it_is_defined(instance):
    variants = variant("bar", "nvfix", "<FieldSeparator>124</FieldSeparator>")
    loaded = instance(f"<SOW>{topic('a', 'bar', '<Key>/k</Key>')}</SOW>{variants}")
    assert not loaded.findings
    assert loaded.configuration.message_types[0].field_separator == b"|"


def test_a_variant_of_no_message_type_is_refused(instance, only):
    text = only(instance(variant("x", "nvfixx")))
    assert "Module: there is no message type 'nvfixx'" in text


def test_a_message_type_is_defined_once(instance, only):
    entry = "<MessageType><Name>x</Name><Module>fix</Module></MessageType>\n"
    text = only(instance(f"<MessageTypes>{entry}{entry}</MessageTypes>"))
    assert text.startswith("config.xml:2: Name: the message type 'x' is already defined in line 1")


def test_a_separator_is_refused_where_there_are_no_fields_to_separate(instance, only):
    xml = variant("x", "json", "<FieldSeparator>1</FieldSeparator>")
    assert "json has no field separators" in only(instance(xml))


def test_a_message_must_fit_a_frame(instance, only):
    text = only(instance("<Limits><MessageSize>128MB</MessageSize></Limits>"))
    assert "does not fit a frame" in text
    wider = "<MessageSize>128MB</MessageSize><FrameSize>1GB</FrameSize>"
    memory = "<RequestMemory>4GB</RequestMemory>"
    assert not instance(f"<Limits>{wider}{memory}</Limits>").findings


def test_a_frame_that_one_client_may_not_hold_is_warned_of(instance, only):
    wide = instance("<Limits><FrameSize>128MB</FrameSize></Limits>")
    assert wide.configuration is not None
    assert "larger ones are never taken; raise RequestMemory to four times FrameSize" in only(wide)


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("<FilterSize>8</FilterSize>", "the filter has 12 bytes and the limit is 8; raise Filter"),
        ("<FilterDepth>1</FilterDepth>", "nests deeper than the limit of 1 levels; raise Filter"),
    ],
)
def test_filters_of_the_document_keep_to_its_own_limits(instance, only, limit, why):
    """A reload that lowers a limit is refused as a start would be, though no filter is another."""
    copied = """<SOW><Topic><Name>t</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
        <ConflatedTopic><Name>t-C</Name><MessageType>json</MessageType>
        <UnderlyingTopic>t</UnderlyingTopic><Interval>1s</Interval>
        <Filter>NOT (/a = 1)</Filter></ConflatedTopic></SOW>"""
    text = only(instance(f"{copied}<Limits>{limit}</Limits>"))
    assert "Filter: " in text
    assert why in text
    assert not instance(f"{copied}<Limits><FilterSize>12</FilterSize></Limits>").findings


def test_a_queue_that_one_client_may_not_fill_is_warned_of(instance, only):
    narrow = instance("<Limits><QueueMemory>32MB</QueueMemory></Limits>")
    assert narrow.configuration is not None
    assert "the smaller holds; raise QueueMemory to four times QueueMaxBytes" in only(narrow)
    wide = "<Sessions><QueueMaxBytes>8MB</QueueMaxBytes></Sessions>"
    assert not instance(f"{wide}<Limits><QueueMemory>32MB</QueueMemory></Limits>").findings


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ('<Field type="int64">/a</Field>', "/a is declared already in line 1"),
        ('<Field type="int64">/a/b</Field>', "/a/b is a field of /a, which is declared string"),
    ],
)
def test_a_field_has_one_type(sow, only, other, word):
    schema = f'<Schema><Field type="string">/a</Field>{other}</Schema>'
    assert word in only(sow(topic("a", more=schema)))


def test_what_lies_in_a_field_that_is_json_may_have_a_type(sow):
    schema = '<Schema><Field type="json">/a</Field><Field type="int64">/a/b</Field></Schema>'
    assert not sow(topic("a", more=schema)).findings


def test_messages_without_fields_have_no_schema(sow, only):
    schema = '<Schema><Field type="string">/a</Field></Schema>'
    assert "have no fields" in only(sow(topic("a", "binary", schema)))


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
    queue = "<SOW><LocalQueue><Name>/queue/a</Name></LocalQueue></SOW>"
    log = "<TransactionLog><Topic><Name>/queue/a</Name></Topic></TransactionLog>"
    assert "Queue is not available yet" in only(instance(queue + log))


def test_a_pattern_that_does_not_compile_is_refused(log, only):
    assert "neither a topic nor a pattern" in only(log("(a"))


def test_the_message_type_must_be_that_of_the_topic(log, only):
    assert "nvfix differs" in only(log("orders", "<MessageType>nvfix</MessageType>"))


def stored(name: str, file: str = "", kind: str = "json") -> str:
    file = f"<FileName>{file}</FileName>" if file else ""
    return f"<Topic><Name>{name}</Name><MessageType>{kind}</MessageType>{file}</Topic>\n"


@pytest.mark.parametrize(
    ("name", "file", "path"),
    [
        ("orders", "", "orders.json.sow"),
        ("orders", "./sow/%n.sow", "sow/orders.json.sow"),
        ("/my/orders", "sow/%n", "sow/%2Fmy%2Forders.json"),
        ("a:b c", "%n", "a%3Ab%20c.json"),
        ("orders", "fixed.db", "fixed.db"),
    ],
)
def test_a_file_is_named_after_its_topic(sow, name, file, path):
    assert sow(stored(name, file)).configuration.topics[0].file_name == path


def test_no_topic_name_leads_out_of_the_data_directory(sow):
    loaded = sow(stored("..", "%n") + stored("../../etc", "%n"))
    assert [t.file_name for t in loaded.configuration.topics] == ["...json", "..%2F..%2Fetc.json"]


def test_a_long_name_gives_a_file_name_that_fits_and_differs(sow):
    loaded = sow(stored("é" * 254 + "a") + stored("é" * 254 + "b"))
    first, second = (t.file_name for t in loaded.configuration.topics)
    assert first != second
    assert max(len(first), len(second)) < 200


def test_a_transient_topic_has_no_file(orders):
    loaded = orders("<Durability>transient</Durability>")
    assert loaded.configuration.topics[0].file_name is None


@pytest.mark.parametrize("other", ["one", "./one", "one/two", "one//two"])
def test_no_two_topics_share_a_file_or_lie_inside_each_other(sow, only, other):
    text = only(sow(stored("a", "one") + stored("b", other)))
    assert text.startswith("config.xml:2: FileName: ")
    assert "which is a file of the topic 'a'" in text


@all_cases(
    "file",
    [
        *("journal", "journal/x", "lock", "staging/x", "sow-writes.sow", f"{REMOVED}/x"),
        *(MANIFEST_FILE, COPY_FILE, f"{MANIFEST_FILE}.writing", f"{COPY_FILE}.writing"),
    ],
)
def test_no_topic_takes_a_file_of_the_server(sow, only, file):
    assert "collides with " in only(sow(stored("a", file)))


@pytest.mark.parametrize(("first", "second"), [("x", "x-lock"), ("x-lock", "x")])
def test_no_topic_takes_the_lock_file_of_another(sow, only, first, second):
    assert "which is a file of the topic 'a'" in only(sow(stored("a", first) + stored("b", second)))


def test_the_journal_does_not_take_the_lock(instance, only):
    log = "<TransactionLog><JournalDirectory>lock</JournalDirectory></TransactionLog>"
    assert "JournalDirectory: lock collides with lock, which is the lock" in only(instance(log))


def test_a_journal_moved_elsewhere_leaves_its_name_free(instance):
    log = "<TransactionLog><JournalDirectory>log</JournalDirectory></TransactionLog>"
    assert not instance(f"{log}<SOW>{stored('a', 'journal')}</SOW>").findings
    assert instance(f"{log}<SOW>{stored('a', 'log')}</SOW>").errors


def test_a_path_is_found_wherever_it_lies_among_thousands(sow, only):
    many = "".join(stored(f"t{number}", f"d{number}/x/y") for number in range(1000))
    assert "d7/x collides with d7/x/y, which is a file of the topic 't7'" in only(
        sow(many + stored("last", "d7/x"))
    )
