"""Where fields that are made may go, and what they may ask for."""

import pytest

from tests.cases import all_cases

TOPIC = (
    "<Topic><Name>t</Name><MessageType>{kind}</MessageType><Key>/id</Key><Key>/at/day</Key>"
    "{xml}</Topic>"
)


def section(element, *fields):
    return f"<{element}>{''.join([f'<Field>{text}</Field>' for text in fields])}</{element}>"


@pytest.fixture
def topic(sow):
    return lambda xml, kind="json": sow(TOPIC.format(kind=kind, xml=xml))


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
