"""The account of starts and reloads, in what definitions differ, and what nodes of a log share."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from sow.config import require
from sow.core.definitions import (
    CONFIGURATIONS,
    Configuration,
    ConflatedTopic,
    Declared,
    Join,
    JournalSettings,
    Limits,
    MessageTypeOptions,
    QueueSettings,
    RecordField,
    Series,
    SharedLogSettings,
    Topic,
    View,
    with_system_topics,
)
from sow.core.security_definitions import Allow, Role, Security, Tls
from sow.engine import configurations as module
from sow.engine.configurations import (
    SECTION,
    InForceSince,
    changeable,
    changed_elements,
    changed_fields,
    configuration_of,
    differences,
    fingerprint,
    kind_of,
    noted,
    packed,
    text_of,
    unpacked,
    with_own,
)
from tests.cases import all_cases
from tests.laws.harness import ORDERS, SECOND, SLOW, World

FAST = replace(SLOW, interval_us=SECOND // 2)


def world(*topics):
    return World(ORDERS, *topics, CONFIGURATIONS)


def start(world, **more):
    world.engine.sequencer.moment(world.now)
    world.engine.configurations.note(True, **more)
    world.settle()


def reload(world, *topics):
    configuration = replace(world.configuration, topics=(ORDERS, *topics, CONFIGURATIONS))
    world.executor.reconfigure(configuration, world.now)
    world.configuration = configuration
    world.settle()


def intervals(history):
    """What there is of each: the place, whether it is a start, and the copy's interval."""
    return [(one.seq, one.is_start, one.configuration.topics[1].interval_us) for one in history]


def test_starts_and_reloads_stand_in_the_log_with_what_was_in_force():
    here = world(SLOW)
    start(here)
    here.publish("orders", {"id": 1})
    reload(here, FAST)
    here.publish("orders", {"id": 2})
    again = here.restart()
    again.clock.advance(SECOND)
    start(again)
    expected = [(0, True, SECOND), (1, False, SECOND // 2), (2, True, SECOND // 2)]
    assert intervals(again.engine.configurations.all()) == expected
    assert intervals(noted(again.journal.accounts())) == expected
    assert again.engine.configurations.all()[2].time_us == again.now


def test_a_start_is_noted_once_while_nothing_changes():
    here = world(SLOW)
    start(here)
    for _ in range(3):
        here = here.restart()
        here.clock.advance(SECOND)
        start(here)
    assert len(here.engine.configurations.all()) == 1
    start(here, goes_on=True)
    assert [one.goes_on for one in here.engine.configurations.all()] == [False, True]


def test_a_reload_that_changes_nothing_is_not_noted():
    here = world(SLOW)
    start(here)
    reload(here, SLOW)
    assert len(here.engine.configurations.all()) == 1


def test_what_ended_before_the_kept_log_is_forgotten_but_for_its_text():
    here = world(SLOW)
    start(here)
    for id_ in range(4):
        here.publish("orders", {"id": id_})
        here = here.restart()
        start(here)
    start(here, oldest_seq=3)
    # The first has the text of all.
    assert [one.seq for one in here.engine.configurations.all()] == [0, 1, 2, 3, 4]
    reload(here, FAST)
    here.publish("orders", {"id": 5})
    here.publish("orders", {"id": 6})
    start(here, oldest_seq=6)
    assert [one.seq for one in here.engine.configurations.all()] == [4, 6]
    start(here, oldest_seq=0)
    assert len(here.engine.configurations.all()) == 2
    assert {one.configuration.topics[1].interval_us for one in noted(here.journal.accounts())} == {
        SECOND // 2
    }


def test_a_directory_of_an_earlier_release_has_the_present_one_for_all_of_it():
    here = world(SLOW)
    here.publish("orders", {"id": 1})
    assert here.engine.configurations.all() == [InForceSince(here.engine.configuration)]
    assert noted(()) == []


def test_an_engine_without_the_account_notes_nothing():
    here = World(ORDERS, SLOW)
    here.engine.configurations.note(True)
    here.settle()
    assert here.engine.configurations.all() == [InForceSince(here.engine.configuration)]


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


PLAIN = Topic("orders", "json", keys=("/id",))
QUEUE = Topic("jobs", "json", queue=QueueSettings("orders"))
VIEW = View("sums", "json", ("orders",), ("COUNT(1) AS /n",), ("/side",))


@all_cases("kind", [Topic, ConflatedTopic, View])
def test_every_field_of_a_definition_is_called_as_in_the_file(kind):
    section = SECTION.child(kind.__name__)
    without = [one.name for one in fields(kind) if not section.filling(one.name)]
    assert set(without) <= {"line", "view", "queue"}


def test_every_field_of_a_queue_is_called_as_in_the_file():
    section = SECTION.child("Queue")
    assert all(section.filling(one.name) for one in fields(QueueSettings))


@all_cases(
    ("definition", "kind"),
    [
        (PLAIN, "topic"),
        (QUEUE, "queue"),
        (VIEW, "view"),
        (replace(PLAIN, view=VIEW), "view"),
        (ConflatedTopic("copy", "json", "orders"), "conflated topic"),
    ],
)
def test_a_definition_is_called_as_its_element(definition, kind):
    assert kind_of(definition) == kind


def test_a_queue_differs_in_the_fields_of_its_settings():
    other = replace(QUEUE, queue=replace(QUEUE.queue, lease_us=1, priority="/p"), line=7)
    assert changed_fields(QUEUE, other) == {"lease_us", "priority"}
    assert changed_elements(QUEUE, other) == ["LeasePeriod", "Priority"]


def test_a_view_that_spark_computes_differs_in_the_elements_of_the_view():
    old, new = (replace(PLAIN, view=replace(VIEW, filter=text)) for text in (None, "/a = 1"))
    assert changed_elements(old, new) == ["Filter"]


def test_what_a_reload_may_change_depends_on_what_it_is():
    series = replace(PLAIN, series=Series())
    assert "series" in changeable(series, series)
    assert "series" not in changeable(PLAIN, series) | changeable(series, PLAIN)
    copy = ConflatedTopic("copy", "json", "orders")
    assert changeable(copy, copy) >= {"interval_us", "filter"}
    by_spark = replace(copy, engine="spark")
    assert not changeable(by_spark, by_spark) & {"interval_us", "filter"}


NODE_ORDERS = Topic("orders", "json", keys=("/id",), line=2)
NODE_SLOW = ConflatedTopic("slow", "json", "orders", interval_us=1_000_000, line=7)
LOG = Configuration("desk", (NODE_ORDERS, NODE_SLOW))
OTHERS = replace(
    LOG,
    host="0.0.0.0",
    port=9,
    data_directory="there",
    journal=JournalSettings(directory="elsewhere"),
    security=Security(tls=Tls("mine.pem", "mine.key")),
    shared_log=SharedLogSettings("nats", node="b", advertise="http://b"),
)


def test_nodes_differ_in_name_address_and_paths_alone():
    assert fingerprint(LOG) == fingerprint(OTHERS) == fingerprint(with_system_topics(LOG))
    assert packed(LOG) == packed(OTHERS)


def test_a_node_has_what_the_log_has_and_its_own_name_address_and_paths():
    red = replace(LOG, colour="red", port=7, data_directory="here")
    lineless = tuple(replace(definition, line=0) for definition in LOG.topics)
    expected = replace(OTHERS, colour="red", topics=lineless)
    assert with_own(unpacked(packed(red)), OTHERS) == expected


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(LOG, limits=Limits(frame_bytes_max=7)), "<Limits>"),
        (replace(LOG, journal=JournalSettings(retention_bytes=7)), "<TransactionLog>"),
        (
            replace(LOG, topics=(NODE_ORDERS,)),
            "conflated topic slow, which is only there",
        ),
        (
            replace(LOG, topics=(NODE_ORDERS, NODE_SLOW, Topic("more", "json"))),
            "topic more, which is only here",
        ),
        (
            replace(LOG, topics=(replace(NODE_ORDERS, hash_indexes=(("/x",),)), NODE_SLOW)),
            "<HashIndex> of topic orders",
        ),
        (
            replace(LOG, topics=(NODE_ORDERS, replace(NODE_SLOW, interval_us=2_000_000))),
            "<Interval> of conflated topic slow",
        ),
        (
            replace(LOG, topics=(NODE_ORDERS, Topic("slow", "json"))),
            "what topic slow is",
        ),
        (replace(LOG, topics=(NODE_SLOW, NODE_ORDERS)), "the order of topics"),
        (
            replace(
                LOG,
                topics=(
                    *(Topic(f"t{at}", "json") for at in range(8)),
                    NODE_ORDERS,
                    NODE_SLOW,
                ),
            ),
            "topic t0, which is only here, topic t1, which is only here, topic t2, which is only "
            "here, topic t3, which is only here, topic t4, which is only here, and 3 more",
        ),
    ],
)
def test_it_is_said_in_what_a_configuration_differs(other, said):
    assert fingerprint(other) != fingerprint(LOG)
    assert differences(packed(LOG), other) == said


def test_a_configuration_that_is_too_large_for_an_entry_is_known_by_its_fingerprint(monkeypatch):
    monkeypatch.setattr(module, "PACKED_MAX", 10)
    assert packed(LOG) == ""
    assert differences("", LOG) == "what is not known here, as it is too large"
    assert unpacked("no text") is None
