"""Configurations to begin with: what is named is what is served."""

import pytest

from sow.cli.config_templates import StarterTopic, document, named_topic
from sow.config import loads
from sow.errors import SowError


@pytest.mark.parametrize(
    ("text", "name", "keys"),
    [
        ("quotes:/symbol", "quotes", ["/symbol"]),
        ("orders:/desk,/id", "orders", ["/desk", "/id"]),
        ("a:b:/order/id", "a:b", ["/order/id"]),
        ("/my/orders:/id", "/my/orders", ["/id"]),
    ],
)
def test_a_topic_is_named_with_its_key(text, name, keys):
    found = loads(document([named_topic(text)])).configuration if name != "a:b" else None
    assert named_topic(text) == StarterTopic(name, keys)
    if found is not None:
        assert [(one.name, list(one.keys)) for one in found.topics] == [(name, keys)]


def test_a_topic_without_a_key_is_one_whose_publishers_name_records():
    loaded = loads(document([named_topic("notes")]))
    assert (loaded.findings, loaded.configuration.topics[0].keys) == ((), ())


@pytest.mark.parametrize("text", ["", ":/id", "quotes:symbol", "quotes:/a,b", "quotes:/"])
def test_what_names_no_topic_is_refused(text):
    with pytest.raises(SowError):
        named_topic(text)


def test_everything_a_starter_may_have_is_a_good_configuration():
    topic = StarterTopic("a<&--b", ["/id"], {"/id": "int64", "/[x]": "decimal(18,4)"}, "500ms")
    good = StarterTopic("orders", ["/id"], {"/id": "int64", "[/a b]": "string"}, "500ms")
    assert [one.element for one in loads(document([topic])).findings] != ["file"], "it is XML"
    loaded = loads(document([good], name="desk"))
    assert loaded.findings == ()
    _, copy = loaded.configuration.topics
    assert (copy.name, copy.underlying, copy.interval_us) == ("orders-C", "orders", 500_000)
    assert (loaded.configuration.host, loaded.configuration.port) == ("127.0.0.1", 8080)
