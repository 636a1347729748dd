"""A view whose engine is Spark: its groups, its turns, and the query that runs it for real."""

import json
import pickle
import random
from dataclasses import replace

import pyarrow as pa
import pytest

from conflated_topics.recorded import to_ipc
from sow.core.keys import sow_key
from sow.core.lossless_numbers import LosslessNumber
from sow.spark.pipelines import Running, topic_pipeline
from sow.spark.views import (
    CHANGES,
    GROUPS_STATE,
    KEPT,
    RECORDS_STATE,
    KeptGroup,
    SparkView,
    contributed,
    take_changes,
    take_records,
)
from tests.cases import all_cases
from tests.edge.serving import Running as Server
from tests.edge.serving import configuration, records
from tests.spark.view_engines import ENGINES, BySpark, Embedded, view
from tests.topic.views import recomputation

FIELDS = (
    "/desk", "COUNT(1) AS /n", "COUNT(/v) AS /there", "SUM(/v) AS /sum", "AVG(/v) AS /avg",
    "MIN(/v) AS /least", "MAX(/v) AS /most",
)  # fmt: skip
PLAIN = (1, 2, -7, 0.1, 0.2, 1e300, -1e300, 5e-324, 2**60, 2**70, 1.0, 2.5, None)
MESSY = (*PLAIN, "3", "3.0", "many", "", True, [4, 5], [], -0.0)
DIGITS = ("1.10", "3.14159265358979323846", "1E2", "-0", "10000000000000000000.5")
"""Numbers that are not written as Python writes them."""


def order(desk, value):
    return json.dumps({"desk": desk, "v": value}).encode()


def history(seed, values, desks=("a", "b", None, "", 1, 1.0, "1", True), steps=120):
    """Steps of up to five changes of ten records: they come, change, move and go."""
    randomness = random.Random(seed)
    for _ in range(steps):
        step = []
        for _ in range(randomness.randrange(1, 6)):
            body = order(randomness.choice(desks), randomness.choice(values))
            if randomness.random() < 0.2:
                digits = randomness.choice(DIGITS).encode()
                body = b'{"desk":"%b","v":%b}' % (randomness.choice((b"a", b"b")), digits)
            gone = randomness.random() < 0.3
            step.append((str(randomness.randrange(10)), None if gone else body))
        yield step


@pytest.mark.parametrize("values", [PLAIN, MESSY], ids=["numbers", "anything"])
@pytest.mark.parametrize("seed", range(2))
def test_both_engines_have_the_same_rows_byte_for_byte(seed, values):
    definition = view(FIELDS, condition=None if seed % 2 else "/v IS NULL OR /v <> 2")
    embedded, spark, compared = Embedded(definition), BySpark(definition), 0
    for step in history(seed, values):
        embedded.take(step)
        spark.take(step)
        assert spark.rows == embedded.rows
        compared += len(spark.rows)
    assert compared > 300
    for engine in (embedded, spark):
        engine.take([(str(name), None) for name in range(10)])
    assert spark.rows == embedded.rows == {}
    assert spark.kept == [0, 0], "nothing is kept of what has gone"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_what_a_new_calculation_comes_to(engine, seed):
    kinds = ("COUNT", "SUM", "AVG", "MIN", "MAX")
    fields = [recomputation.Field(kind.lower(), kind, "/v") for kind in kinds]
    definition = view([*map(str, fields)])
    made, there, seq = engine(definition), {}, 0
    for step in history(seed, (1, 5, 0.1, 0.2, 0.3, 1e17, "many", None), ("a", "b"), 40):
        step = [(name, body) for name, body in step if body is None or b'"v":' not in body]
        made.take(step)
        for name, body in step:
            seq += 1
            there.pop(name, None)
            if body is not None:
                there[name] = (seq, seq, json.loads(body))
        expected = recomputation.rows(there.values(), fields, ("/desk",))
        found = sorted(map(json.loads, made.rows.values()), key=str)
        assert found == sorted(expected.values(), key=str)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_cut_into_batches_otherwise_comes_to_the_same(seed):
    definition = view(FIELDS)
    one_by_one, at_once = BySpark(definition), BySpark(definition)
    steps = list(history(seed, MESSY, steps=30))
    for step in steps:
        for change in step:
            one_by_one.take([change])
    at_once.take([change for step in steps for change in step])
    assert at_once.rows == one_by_one.rows


CASES = {
    "an update": ([[("1", order("a", 1))], [("1", order("a", 4))]], [("a", 1, 4)]),
    "a move": (
        [[("1", order("a", 1)), ("2", order("a", 2))], [("1", order("b", 1))]],
        [("a", 1, 2), ("b", 1, 1)],
    ),
    "a move of the only one": ([[("1", order("a", 1))], [("1", order("b", 1))]], [("b", 1, 1)]),
    "a delete": ([[("1", order("a", 1)), ("2", order("a", 2))], [("1", None)]], [("a", 1, 2)]),
    "a delete of the only one": ([[("1", order("a", 1))], [("1", None)]], []),
    "a delete of nothing": ([[("1", None)]], []),
    "what comes and goes in a batch": ([[("1", order("a", 1)), ("1", None)]], []),
    "what goes and comes in a batch": (
        [[("1", order("a", 1))], [("1", None), ("1", order("b", 3))]],
        [("b", 1, 3)],
    ),
    "what leaves by the filter": ([[("1", order("a", 1))], [("1", order("a", 100))]], []),
    "what enters by the filter": (
        [[("1", order("a", 100))], [("1", order("a", 1))]],
        [("a", 1, 1)],
    ),
    "no number": ([[("1", order("a", "x")), ("2", order("a", 1))]], [("a", 2, None)]),
    "a number after none": (
        [[("1", order("a", "x")), ("2", order("a", 1))], [("1", order("a", 2))]],
        [("a", 2, 3)],
    ),
    "NULL": ([[("1", order("a", None))]], [("a", 1, None)]),
    "a group of NULL": (
        [[("1", order(None, 1)), ("2", order("", 2)), ("3", b'{"v":3}')]],
        [(None, 3, 6)],
    ),
    "the number shows before the text": (
        [[("1", order("7", 1)), ("2", order(7, 2))]],
        [(7, 2, 3)],
    ),
    "the text when the number has gone": (
        [[("1", order("7", 1)), ("2", order(7, 2))], [("2", None)]],
        [("7", 1, 1)],
    ),
}
"""By name: the steps, and the rows (desk, count, sum) that are there in the end."""


@all_cases("engine", ENGINES)
@all_cases("name", CASES)
def test_the_rules_of_views(engine, name):
    steps, expected = CASES[name]
    made = engine(
        view(("/desk", "COUNT(1) AS /n", "SUM(/v) AS /v"), condition="/v IS NULL OR /v <> 100")
    )
    for step in steps:
        made.take(step)
    found = [json.loads(row) for row in made.rows.values()]
    rows = [(row.get("desk"), row["n"], row["v"]) for row in found]
    assert sorted(rows, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("engine", ENGINES)
def test_other_types_and_several_fields(engine):
    fields = ("/desk", "/book", "SUM(/v * 2) / COUNT(1) AS /mean")
    made = engine(view(fields, ("/desk", "/book"), kind="nvfix"))
    made.take([("1", b'{"desk":"a","book":"x\\u001fy","v":1}'), ("2", b'{"desk":"a","v":"?"}')])
    # What is no number is NULL, which this type leaves out; an empty group field, too.
    expected = {b"desk=a\x01book=x\x1fy\x01mean=2\x01", b"desk=a\x01"}
    assert set(made.rows.values()) == expected


def test_a_row_that_is_as_it_was_is_not_written():
    made = BySpark(view(("/desk", "COUNT(1) AS /n")))
    made.take([("1", order("a", 1))])
    assert [row["op"] for row in made.changed] == ["publish"]
    made.take([("1", order("a", 2))])
    assert made.changed == []
    made.take([("1", order("b", 2)), ("2", order("a", 1))])
    assert [json.loads(row["value"]) for row in made.changed] == [{"desk": "b", "n": 1}]


def test_rows_are_published_before_others_are_deleted():
    made = BySpark(view(("/desk",)))
    made.take([(str(at), order(f"a{at}", 1)) for at in range(60)])
    made.take([(str(at), order(f"b{at}", 1)) for at in range(60)])
    assert len(made.rows) == 60
    assert {row["op"] for row in made.changed} == {"publish", "match"}


def test_a_row_that_goes_says_why_the_last_record_left():
    made = BySpark(view(("/desk",), condition="/v < 50"))

    def changed(*step):
        made.take(step)
        return sorted((row["op"], row["value"]) for row in made.changed)

    changed(("1", order("a", 1)), ("2", order("a", 1)))
    assert changed(("1", order("b", 1)), ("2", None)) == [
        ("delete", None),
        ("publish", '{"desk":"b"}'),
    ]
    assert changed(("1", order("b", 100))) == [("match", None)]
    changed(("1", order("a", 1)), ("2", order("a", 1)))
    assert changed(("2", None), ("1", order("a", 99))) == [("match", None)]
    changed(("1", order("a", 1)))
    made.expire("1")
    assert [row["op"] for row in made.changed] == ["expire"]


def test_a_key_that_is_no_unicode_is_a_key_like_any():
    definition = SparkView(view(("COUNT(1) AS /n",)), "json")
    half, escaped = '["\\ud800",["\\ud800"],null,[1]]', '["\\\\ud800",["\\\\ud800"],null,[1]]'
    columns = [pa.array([1, 1], pa.int8()), [half, escaped], ["publish"] * 2, [1, 2]]
    changes = pa.Table.from_arrays(columns, schema=CHANGES)
    turned = take_changes(definition, None, [to_ipc(changes)])
    assert turned.rows["value"].to_pylist() == ['{"n":1}'] * 2
    changes = changes.slice(0, 1).set_column(0, CHANGES.field(0), pa.array([-1], pa.int8()))
    turned = take_changes(definition, turned.state, [to_ipc(changes)])
    assert turned.rows["op"].to_pylist() == ["match"]


def test_the_state_of_something_else_is_refused():
    definition = SparkView(view(("/desk",)), "json")
    with pytest.raises(ValueError, match="is not the state of any view; remove pipelines/NAME"):
        take_records(definition, b"no state", [])
    other = RECORDS_STATE.seal({"buckets": 1}, [to_ipc(KEPT.empty_table())])
    with pytest.raises(ValueError, match="it has buckets 1, not 32"):
        take_records(definition, other, [])
    with pytest.raises(ValueError, match="is not the state of any view"):
        take_changes(definition, other, [to_ipc(CHANGES.empty_table())])
    assert GROUPS_STATE.magic != RECORDS_STATE.magic


VIEW = """
<View><Name>{name}</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic>
  <Projection><Field>/desk</Field><Field>COUNT(1) AS /n</Field><Field>SUM(/qty) AS /qty</Field>
    <Field>MAX(/qty) AS /most</Field></Projection>
  <Grouping><Field>/desk</Field></Grouping><KeyDomain>desks</KeyDomain>
  <Filter>/qty &lt; 100</Filter><Engine>{engine}</Engine></View>
"""
TOPICS = f"""
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
{VIEW.format(name="desks", engine="spark")}{VIEW.format(name="twin", engine="embedded")}
<ConflatedTopic><Name>desks-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>desks</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>
"""


@pytest.fixture
def server(tmp_path):
    running = Server(configuration(TOPICS), tmp_path / "data")
    yield running
    running.close()


@pytest.fixture
def engine(spark, server, tmp_path):
    view = server.server.engine.topics["desks"].definition.view

    def start(cores="1", view=view):
        spark.conf.set("spark.sql.shuffle.partitions", cores)
        pipeline = replace(topic_pipeline(view), trigger_us=200_000)  # tests are in a hurry
        running = Running(
            pipeline, server.url, tmp_path / "state", False, None, SparkView(view, "json")
        )
        running.start()
        running.query.processAllAvailable()  # Spark's own start takes a while
        return running

    yield start
    spark.conf.set("spark.sql.shuffle.partitions", "1")


def rows(server, topic="desks"):
    return sorted(server.records(topic), key=lambda row: row["desk"])


def bodies(server, topic):
    """The rows as they are, by SowKey."""

    def found():
        table = server.server.engine.topics[topic].records.table
        return {table.sow_key(slot): table.bodies[slot] for slot in table.slots.values()}

    return server.call(found)


@pytest.mark.spark
@pytest.mark.edge
def test_rows_follow_records_and_go_on_where_they_were(server, engine, tmp_path):
    server.publish("orders", {"id": 0, "desk": "a", "qty": 1}, {"id": 1, "desk": "b", "qty": 2.5})
    running = engine()
    before = [
        {"desk": "a", "n": 1, "qty": 1, "most": 1},
        {"desk": "b", "n": 1, "qty": 2.5, "most": 2.5},
    ]
    assert rows(server) == before
    with server.socket() as client:
        client.ask({"c": "sow_and_subscribe", "t": "desks", "opts": "oof"})
        server.publish("orders", {"id": 1, "desk": "a", "qty": 0.1})
        gone = client.until(c="oof")[-1]
        assert (gone["reason"], gone["d"]) == ("match", before[1])
    assert rows(server) == [{"desk": "a", "n": 2, "qty": 1.1, "most": 1}]
    running.stop()
    server.publish("orders", {"id": 0, "desk": "a", "qty": 100}, {"id": 2, "desk": "c", "qty": 7})
    server.request("DELETE", records("orders", filter="/id = 1"))
    # The last batch was written, and Spark does not know it: it is made once more.
    commits = tmp_path / "state/pipelines/desks/checkpoint/commits"
    max(commits.glob("[0-9]*"), key=lambda path: int(path.name)).unlink()
    running = engine(cores="3")
    try:
        assert rows(server) == [{"desk": "c", "n": 1, "qty": 7, "most": 7}]
        desks = ["d", "d", None, "", 7, "7", 7.5]
        orders = [{"id": at, "desk": desk, "qty": at / 10} for at, desk in enumerate(desks, 3)]
        server.publish("orders", *orders)
        running.query.processAllAvailable()
    finally:
        running.stop()
    assert len(bodies(server, "desks")) == 5
    assert bodies(server, "desks") == bodies(server, "twin")


@pytest.mark.spark
@pytest.mark.edge
def test_another_definition_begins_anew_in_place_of_what_was(server, engine):
    desks = [{"id": at, "desk": desk, "qty": at} for at, desk in enumerate("abc")]
    server.publish("orders", *desks)
    engine().stop()
    assert len(rows(server)) == 3
    view = server.server.engine.topics["desks"].definition.view
    engine(view=replace(view, filter="/qty > 0")).stop()
    assert [row["desk"] for row in rows(server)] == ["b", "c"]


COUNTED = ("/desk", "COUNT(1) AS /n", "SUM(/v) AS /v")


@pytest.fixture
def compiled():
    return SparkView(view(COUNTED), "json").compiled


def test_a_record_contributes_what_can_be_taken_back(compiled):
    (text,) = compiled.contributions(['{"desk":1,"v":1.10}'])
    assert contributed(text) == ["1", ["1"], [1], [1, 1.1]]
    group = KeptGroup(compiled, "1", None)
    group.change(contributed(text), 1)
    assert group.changed_row() == (
        str(sow_key("desks", "1")),
        "publish",
        '{"desk":1,"n":1,"v":1.1}',
    )
    again = KeptGroup(compiled, "1", group.state)
    assert again.changed_row() is None, "it is as it was"
    again.change(contributed(text), -1, 7, "delete")
    assert again.changed_row() == (str(sow_key("desks", "1")), "delete", None)
    assert again.state is None


def test_a_number_keeps_its_digits(compiled):
    group = KeptGroup(compiled, "1.10", None)
    group.change(["1.10", ["1.10"], [LosslessNumber("1.10")], [1, LosslessNumber("2.50")]], 1)
    assert group.row == '{"desk":1.10,"n":1,"v":2.5}'
    assert KeptGroup(compiled, "1.10", group.state).row == group.row
    (written,) = contributed('[{"digits":"1.10"}]')
    assert (type(written), written.text) == (LosslessNumber, "1.10")


def test_who_does_not_take_part_contributes_nothing():
    compiled = SparkView(view(COUNTED, condition="/v > 1"), "json").compiled
    long = "x" * 20_000
    texts = ['{"v":1}', '{"v":2}', f'{{"v":3,"desk":"{long}"}}']
    assert [one is None for one in compiled.contributions(texts)] == [True, False, True]
    assert compiled.contributions([]) == []


def test_a_group_that_nothing_came_to_is_none(compiled):
    group = KeptGroup(compiled, "a", None)
    assert (group.row, group.state, group.changed_row()) == (None, None, None)


def test_a_state_is_of_use_for_what_it_was_made_for():
    definition = view(COUNTED)
    made = SparkView(definition, "json")
    moved = [replace(definition, line=7), replace(definition, indexes=("/desk",))]
    assert {SparkView(one, "json").purpose("5") for one in moved} == {made.purpose("5")}
    others = [
        replace(definition, filter="/v > 1"),
        replace(definition, projection=COUNTED[:2]),
        replace(definition, grouping=("/desk", "/v")),
        replace(definition, underlyings=("others",)),
        replace(definition, key_domain="d"),
        replace(definition, message_type="nvfix"),
    ]
    assert made.purpose("5") not in {SparkView(one, "json").purpose("5") for one in others}
    assert SparkView(definition, "nvfix").purpose("5") != made.purpose("5")
    assert made.purpose("6") != made.purpose("5"), "rows before that were another topic's"


def test_it_can_be_sent_to_where_it_runs(compiled):
    made = SparkView(view(COUNTED), "json")
    assert compiled is made.compiled
    assert pickle.loads(pickle.dumps(made)) == made
