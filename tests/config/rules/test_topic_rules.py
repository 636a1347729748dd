import pytest

from tests.cases import all_cases

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


@pytest.mark.parametrize("element", ["LocalQueue", "GroupLocalQueue"])
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


TOPIC = "<Topic><Name>{name}</Name><MessageType>json</MessageType><Key>/id</Key>{more}</Topic>"


def orders(name="orders", more=""):
    return TOPIC.format(name=name, more=more)


def copied(more, underlying="orders", name="<Name>c</Name>"):
    return (
        f"<ConflatedTopic>{name}<MessageType>json</MessageType>"
        f"<UnderlyingTopic>{underlying}</UnderlyingTopic>{more}</ConflatedTopic>"
    )


def test_an_exact_name_below_a_pattern_that_matches_it_is_sent_to_move(sow, only):
    text = only(sow(orders("desks", "<Pattern>^/desk/</Pattern>") + "\n" + orders("/desk/1")))
    assert "config.xml:2: Name: '/desk/1' is matched by the Pattern of 'desks' in line 1" in text
    assert text.endswith("move '/desk/1' above 'desks'")


def test_an_exact_name_above_a_pattern_is_fine(sow):
    assert not sow(orders("/desk/1") + orders("desks", "<Pattern>^/desk/</Pattern>")).findings


def test_a_pattern_that_does_not_compile_is_an_error(sow, only):
    assert "Pattern" in only(sow(orders("desks", "<Pattern>(</Pattern>")))


@pytest.mark.parametrize("text", ["plain", "%n", "%n.C", "^%n", "%n(1)"])
@pytest.mark.parametrize("name", ["", "<Name>c</Name>"])
def test_a_topic_format_needs_the_name_and_no_metacharacters(sow, only, text, name):
    pattern = orders(more="<Pattern>^/desk/</Pattern>")
    wrong = copied(f"<TopicFormat>{text}</TopicFormat>", name=name)
    # Of a format that is there and wrong it is not said as well that there is none.
    assert only(sow(pattern + wrong)).startswith("config.xml:1: TopicFormat: ")


def test_a_wrong_pattern_is_a_pattern_to_its_copies(sow, only):
    wrong = orders(more="<Pattern>(</Pattern>") + copied("<TopicFormat>%n-C</TopicFormat>")
    assert only(sow(wrong)).startswith("config.xml:1: Pattern: ")


def test_a_topic_format_over_one_topic_is_an_error(sow, only):
    text = only(sow(orders() + copied("<TopicFormat>%n-C</TopicFormat>")))
    assert "is one topic, so there is one copy" in text


def test_a_copy_with_a_format_may_go_without_a_name(sow):
    pattern = orders(more="<Pattern>^/desk/</Pattern>")
    loaded = sow(pattern + copied("<TopicFormat>%n-C</TopicFormat>", name=""))
    assert loaded.configuration.topics[1].name == "%n-C"


def test_copies_can_be_copied_by_their_format(sow):
    xml = orders(more="<Pattern>^/desk/</Pattern>")
    xml += copied("<TopicFormat>%n-C</TopicFormat>", name="")
    loaded = sow(xml + copied("<TopicFormat>%n-D</TopicFormat>", "%n-C", name=""))
    assert [topic.name for topic in loaded.configuration.topics] == ["orders", "%n-C", "%n-D"]


def test_two_copies_called_by_the_same_format_are_sent_to_take_names(sow, only):
    xml = orders("a", "<Pattern>^/a/[0-9]$</Pattern>") + orders(
        "b", "<Pattern>^/b/[0-9]$</Pattern>"
    )
    xml += copied("<TopicFormat>%n-C</TopicFormat>", "a", name="")
    text = only(sow(xml + copied("\n<TopicFormat>%n-C</TopicFormat>", "b", name="")))
    assert "config.xml:2: TopicFormat: the name '%n-C' is already used in line 1" in text
    assert text.endswith("add a <Name>")


def test_two_patterns_may_have_copies_of_one_format(sow):
    xml = orders("a", "<Pattern>^/a/[0-9]$</Pattern>") + orders(
        "b", "<Pattern>^/b/[0-9]$</Pattern>"
    )
    xml += copied("<TopicFormat>%n-C</TopicFormat>", "a", name="<Name>ac</Name>")
    xml += copied("<TopicFormat>%n-C</TopicFormat>", "b", name="<Name>bc</Name>")
    assert not sow(xml).findings


def test_a_topic_of_a_pattern_never_has_two_copies_of_one_name(sow, only):
    xml = orders(more="<Pattern>^/desk/[0-9]$</Pattern>") + copied(
        "<TopicFormat>%n-C</TopicFormat>"
    )
    xml += copied("<TopicFormat>%n-D</TopicFormat>", "c", "<Name>d</Name>")
    text = only(sow(xml + copied("<TopicFormat>%n-C-D</TopicFormat>", name="<Name>e</Name>")))
    assert "gives the copies of 'orders' the names that 'd' in line 1 gives them: %n-C-D" in text


def test_a_copy_of_copies_of_a_pattern_needs_a_format_too(sow, only):
    pattern = orders(more="<Pattern>^/desk/[0-9]$</Pattern>") + copied(
        "<TopicFormat>%n-C</TopicFormat>"
    )
    assert "add <TopicFormat>" in only(sow(pattern + copied("", "c", "<Name>d</Name>")))


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
    assert "cannot be combined with Merge" in only(sow(orders(more=merge)))


@pytest.mark.parametrize(
    ("more", "element"),
    [
        ("<Match><Key>/a</Key></Match>", "Match"),
        ("<Merge><Field>/a</Field><Operation>sum</Operation></Merge>", "Merge"),
    ],
)
def test_messages_without_fields_have_none_to_match_or_merge(sow, only, more, element):
    xml = f"<Topic><Name>a</Name><MessageType>binary</MessageType>{more}</Topic>"
    assert f"{element}: messages of the type binary have no fields" in only(sow(xml))


def test_a_field_is_named_once_in_a_match(sow, only):
    assert "names /a twice" in only(sow(orders(more="<Match><Key>/a</Key><Key>$.a</Key></Match>")))


def test_the_key_of_a_match_is_no_key_of_the_topic(sow, only):
    more = "<KeyDomain>d</KeyDomain><Match><Key>/a</Key></Match>"
    xml = f"<Topic><Name>a</Name><MessageType>json</MessageType>{more}</Topic>"
    assert "a key domain needs Key" in only(sow(xml))


def test_a_copy_of_what_retains_nothing_is_fine(sow):
    assert not sow(orders(more="<Retain>false</Retain>") + copied("")).findings


def test_how_sessions_lag_and_come_back_is_read(instance):
    loaded = instance(
        "<Sessions><Conflates>false</Conflates><ReconnectTimeout>0</ReconnectTimeout>"
        "<RecoveryBuffer>20k</RecoveryBuffer><BackgroundConflationAt>100%</BackgroundConflationAt>"
        "</Sessions><Limits><PatternTopics>1M</PatternTopics></Limits>"
    )
    sessions = loaded.configuration.sessions
    assert (sessions.conflates, sessions.reconnect_timeout_us) == (False, 0)
    assert sessions.recovery_messages_max == 20_000
    assert sessions.background_conflation_fraction == 1.0
    assert loaded.configuration.limits.pattern_topics_max == 1_000_000


@pytest.mark.parametrize("name", ["merge", "a.b", "a b:c", "a:b:c", ":c"])
def test_a_merger_is_named_by_module_and_callable(sow, only, name):
    assert "does not name a callable" in only(sow(orders(more=f"<Merger>{name}</Merger>")))


@pytest.mark.parametrize("text", ["50", "0%", "101%", "half"])
def test_a_percentage_is_from_1_to_100(instance, only, text):
    xml = f"<Sessions><BackgroundConflationAt>{text}</BackgroundConflationAt></Sessions>"
    assert "is not a percentage" in only(instance(xml))


def test_enrichment_is_a_list_of_field_constructions(sow):
    more = "<Enrichment><Field>/a + 1 AS /b</Field><Field>/b AS /c</Field></Enrichment>"
    loaded = sow(orders() + copied(more))
    assert loaded.configuration.topics[1].enrichment == ("/a + 1 AS /b", "/b AS /c")


def test_a_field_that_cannot_be_computed_is_an_error(sow, only):
    text = only(sow(orders() + copied("<Enrichment><Field>NOPE(/a) AS /b</Field></Enrichment>")))
    assert "there is no function NOPE" in text


def pattern(text, name="desks"):
    inside = f"<Name>{name}</Name><MessageType>json</MessageType><Key>/id</Key>"
    return f"<Topic>{inside}<Pattern>{text}</Pattern></Topic>\n"


def copies(text, of="desks", name=""):
    inside = f"<Name>{name}</Name>" if name else ""
    inside += f"<MessageType>json</MessageType><UnderlyingTopic>{of}</UnderlyingTopic>"
    return f"<ConflatedTopic>{inside}<TopicFormat>{text}</TopicFormat></ConflatedTopic>\n"


@pytest.mark.parametrize(
    "text", ["^/desk/", "/desk/", "^/desk/.*$", "^/desk/.+", r"^/desk/\w+-?[A-Z]*", "^/d[aeiou]sk/"]
)
def test_a_pattern_that_takes_in_its_own_copies_is_warned_about(sow, text):
    loaded = sow(pattern(text) + copies("%n-C"))
    (finding,) = loaded.findings
    assert loaded.configuration is not None
    assert (finding.severity, finding.element, finding.line) == ("warning", "TopicFormat", 2)
    assert "belongs to the copy, and publishing to it is refused" in finding.message


@pytest.mark.parametrize("text", ["^/desk/[0-9]+$", "^/desk/1$", r"^/desk/\d$", "^/desk/[a-z]+$"])
def test_a_pattern_that_leaves_its_copies_out_is_not(sow, text):
    assert sow(pattern(text) + copies("%n-C")).findings == ()


def test_a_format_that_begins_otherwise_is_not(sow):
    assert sow(pattern("^/desk/") + copies("copy:%n")).findings == ()


def test_another_pattern_may_take_them_in(sow, only):
    text = only(sow(pattern("^/desk/[0-9]$") + pattern("-C$", "all") + copies("%n-C")))
    assert "'/desk/0-C' has a name that the Pattern of 'all' in line 2 matches" in text


def test_copies_of_copies_are_named_by_both_formats(sow, only):
    chain = copies("%n-C", name="c") + copies("%n-slow", "c")
    text = only(sow(pattern("^/desk/.*w$") + chain))
    assert "'/desk/xw-C-slow'" in text


def test_an_exact_name_that_a_copy_would_have_is_warned_about(sow, only):
    exact = "<Topic><Name>/desk/7-C</Name><MessageType>json</MessageType><Key>/id</Key></Topic>\n"
    text = only(sow(exact + pattern("^/desk/[0-9]$") + copies("%n-C")))
    assert "the copy of '/desk/7' would be called as '/desk/7-C' in line 1 is" in text


MADE_IN = (
    "<Topic><Name>t</Name><MessageType>{kind}</MessageType><Key>/id</Key><Key>/at/day</Key>"
    "{xml}</Topic>"
)


def section(element, *fields):
    return f"<{element}>{''.join([f'<Field>{text}</Field>' for text in fields])}</{element}>"


@pytest.fixture
def topic(sow):
    return lambda xml, kind="json": sow(MADE_IN.format(kind=kind, xml=xml))


def test_both_are_read_in_order(topic):
    loaded = topic(
        section("Preprocessing", "1 AS /id", "2 AS /b")
        + section("Enrichment", "/n OF PREVIOUS AS /n")
    )
    assert loaded.findings == ()
    (made,) = loaded.configuration.topics
    assert made.preprocessing == ("1 AS /id", "2 AS /b")
    assert made.enrichment == ("/n OF PREVIOUS AS /n",)


@pytest.mark.parametrize(
    ("element", "known", "unknown"),
    [
        (
            "Preprocessing",
            "TOPIC_NAME AMPS_INSTANCE_NAME MESSAGE_SIZE UNIX_TIMESTAMP TODAY",
            "BOOKMARK SOW_KEY LAST_UPDATED",
        ),
        ("Enrichment", "TOPIC_NAME MESSAGE_SIZE SOW_KEY LAST_UPDATED UNIX_TIMESTAMP", "BOOKMARK"),
    ],
)
def test_a_field_reads_what_is_known_of_the_message_then(topic, only, element, known, unknown):
    for name in known.split():
        assert topic(section(element, f"{name}() AS /a")).findings == ()
    for name in unknown.split():
        text = only(topic(section(element, f"{name}() AS /a")))
        assert f"{element}: uses {name}(), and " in text


@pytest.mark.parametrize("target", ["/id", "/at", "/at/day", "/at/day/hour", "$.id"])
def test_enrichment_leaves_the_key_alone(topic, only, target):
    text = only(topic(section("Enrichment", f"1 AS {target}")))
    assert "Enrichment: makes" in text
    assert "has been read before a message is enriched; make it in Preprocessing" in text
    assert topic(section("Preprocessing", f"1 AS {target}")).configuration is not None


MADE_OF = (
    "1", "/n", "/n OF PREVIOUS", "/n OF CURRENT", "UNIX_TIMESTAMP()", "TODAY()", "LAST_UPDATED()",
    "SOW_KEY()", "BOOKMARK()", "TOPIC_NAME()",
)  # fmt: skip
OTHER = {"Preprocessing": "Enrichment", "Enrichment": "Preprocessing"}


@all_cases("target", ["/id", "/other"])
@all_cases("of", MADE_OF)
@all_cases("element", OTHER)
def test_what_a_refusal_says_to_write_is_taken(topic, element, of, target):
    """In one go or two, and never in a circle."""
    for _ in range(3):
        errors = topic(section(element, f"{of} AS {target}")).errors
        said = str(errors[0]) if errors else ""
        if not errors or "; remove it" in said:
            return
        if "of UNIX_TIMESTAMP()" in said or "write UNIX_TIMESTAMP()" in said:
            of = "UNIX_TIMESTAMP()"
        if "without OF PREVIOUS" in said or "write the path alone" in said:
            of = "/n"
        if f"in {OTHER[element]}" in said:
            element = OTHER[element]
        if "into another field" in said:
            target = "/other"
    pytest.fail(said)


def test_what_stands_beside_a_key_is_no_key(topic):
    assert topic(section("Enrichment", "1 AS /at/hour", "1 AS /idx")).findings == ()


@pytest.mark.parametrize("element", ["Preprocessing", "Enrichment"])
@pytest.mark.parametrize(
    ("kind", "target"), [("nvfix", "/a/b"), ("nvfix", "[/a=b]"), ("bflat", "/a/b")]
)
def test_a_message_has_a_place_for_what_is_made(sow, only, element, kind, target):
    made = section(element, f"1 AS {target}")
    xml = f"<Topic><Name>t</Name><MessageType>{kind}</MessageType>{made}"
    assert f"a message of the type {kind} has no place for" in only(sow(f"{xml}</Topic>"))


def test_so_it_is_for_a_copy(sow, only):
    fields = section("Enrichment", "1 AS /a/b")
    text = only(
        sow(
            "<Topic><Name>t</Name><MessageType>nvfix</MessageType><Key>/id</Key></Topic>"
            "<ConflatedTopic><Name>c</Name><MessageType>nvfix</MessageType>"
            f"<UnderlyingTopic>t</UnderlyingTopic>{fields}</ConflatedTopic>"
        )
    )
    assert "has no place for /a/b" in text


def test_without_records_there_is_nothing_before(topic, only):
    retain = "<Retain>false</Retain>"
    text = only(topic(section("Enrichment", "/n OF PREVIOUS AS /n") + retain))
    assert "with Retain false no record is stored" in text
    assert topic(section("Enrichment", "/n OF CURRENT AS /m") + retain).findings == ()


@pytest.mark.parametrize("element", ["Preprocessing", "Enrichment"])
def test_messages_without_fields_have_none_made(sow, only, element):
    xml = f"<Topic><Name>t</Name><MessageType>binary</MessageType>{section(element, '1 AS /a')}"
    text = only(sow(f"{xml}</Topic>"))
    assert f"{element}: messages of the type binary have no fields" in text


@pytest.mark.parametrize("state", ["CURRENT", "PREVIOUS"])
def test_before_its_key_is_read_a_message_has_no_past(topic, only, state):
    text = only(topic(section("Preprocessing", f"/n OF {state} AS /n")))
    assert f"Field: OF {state} at position 3 has no place in this field" in text


def test_a_copy_is_made_of_the_message_alone(copy, only):
    assert copy(section("Enrichment", "/n OF CURRENT AS /m")).findings == ()
    text = only(copy(section("Enrichment", "/n OF PREVIOUS AS /m")))
    assert "OF PREVIOUS at position 3 has no place" in text


def test_a_field_that_cannot_be_read_is_sent_once(topic, only):
    assert "there is no function NOPE" in only(topic(section("Enrichment", "NOPE(/a) AS /id")))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("<ConflationPolicy>conflate</ConflationPolicy>", "ConflationPolicy: is conflate, and"),
        ("<ConflationPolicy>always</ConflationPolicy>", "ConflationPolicy: is always, and"),
        (
            "<Merge><Field>/n</Field><Operation>sum</Operation></Merge>",
            "Merge: makes one message of two",
        ),
        ("<Merger>a.b:c</Merger>", "Merger: makes one message of two"),
        ("<Retain>false</Retain>", "Retain: is false"),
    ],
)
def test_what_a_series_cannot_be_is_refused_by_name(sow, only, more, says):
    assert says in only(sow(orders(more=f"<Series/>{more}")))


def test_a_series_is_not_conflated_and_may_have_views(sow, only):
    text = only(sow(orders(more="<Series/>") + copy("c", "orders")))
    assert "UnderlyingTopic: is 'orders', and the events of a Series are never conflated" in text
