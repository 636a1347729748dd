"""Configurations as text: what was in force is read as it was."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sow.config import require
from sow.core.definitions import (
    Configuration,
    ConflatedTopic,
    Declared,
    Join,
    MessageTypeOptions,
    RecordField,
    Topic,
    View,
    with_system_topics,
)
from sow.core.security_definitions import Allow, Role, Security
from sow.core.stored_configuration import configuration_of, text_of

ROOT = Path(__file__).parents[2]
WHOLE = Configuration(
    "test",
    (
        Topic("t", "flat", keys=("/a", "/b"), schema=(Declared("/a", "string"),), retain=False),
        ConflatedTopic("t-C", "flat", "t", interval_us=7, filter="/a > 1", enrichment=("1 AS /x",)),
        View(
            "v", "flat", ("t", "t-C"), ("[t]./a AS /a",), ("[t]./a",),
            joins=(Join("t", "/a", "t-C", "/a", "inner"),),
        ),
    ),
    message_types=(MessageTypeOptions("flat", "record", b"\xff", (RecordField("a"),)),),
    security=Security(roles=(Role("r", ("ann",), (Allow("t", read=True, select=("/a",)),)),)),
)  # fmt: skip


def test_all_of_it_is_read_as_it_was():
    running = with_system_topics(WHOLE)
    assert configuration_of(text_of(running)) == running


def test_equal_ones_have_the_same_text_wherever_they_are_written():
    topics = tuple(replace(one, line=9) for one in WHOLE.topics)
    moved = replace(WHOLE, topics=topics, data_directory="elsewhere")
    assert text_of(moved) == text_of(WHOLE)
    assert text_of(replace(WHOLE, topics=WHOLE.topics[:2])) != text_of(WHOLE)


def test_the_shipped_one_comes_back_and_no_secret_of_a_pipeline_is_in_it():
    running = with_system_topics(require(str(ROOT / "config.xml")))
    text = text_of(running)
    assert text_of(configuration_of(text)) == text
    assert "pipelines" not in json.loads(text)


def test_what_a_later_release_writes_is_left_out_and_what_an_earlier_one_lacks_has_its_default():
    content = json.loads(text_of(WHOLE))
    content["topics"][0]["of_a_later_release"] = 1
    del content["topics"][1]["interval_us"]
    found = configuration_of(json.dumps(content))
    assert found.topics[0] == WHOLE.topics[0]
    assert found.topics[1].interval_us == 5_000_000


@pytest.mark.parametrize("text", ["[]", "1", '{"is":"Topic","name":"t"}', '{"is":"Nothing"}', "{}"])
def test_another_text_is_refused(text):
    with pytest.raises(ValueError, match="not the text of a configuration"):
        configuration_of(text)
