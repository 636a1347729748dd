"""Queries: which records they name, in steps, and what is refused before the first."""

import pytest

from sow import indexes
from sow.core.containers import ENTRY_WEIGHT
from sow.core.cooperative import run_to_completion
from sow.core.definitions import Configuration, Limits, Topic
from sow.engine import queries
from sow.engine.engine import Engine
from sow.engine.queries import FilterCache
from sow.engine.topic_changes import TopicChanges
from sow.errors import BadFilter, ClientError, UnknownTopic
from sow.expressions import compile_filter, parse_order_by
from sow.query import Query, index_build

DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
ORDERS = Topic("orders", "json", keys=("/id",))
RAW = Topic("raw", "binary")
DEAR = Query(filter=compile_filter("/px > 1"))


@pytest.fixture
def short_steps(monkeypatch):
    monkeypatch.setattr(index_build, "NOTES_FEW", 1)
    monkeypatch.setattr(indexes, "STEP_NOTES_MAX", 1)
    monkeypatch.setattr("sow.query.answers.FEW_ROWS", 0)


def with_orders():
    engine = Engine(Configuration("test", (ORDERS, RAW, DESKS)))
    engine.publish("orders", [b'{"id":%d,"px":%d}' % (at, at) for at in range(4)], 0)
    return engine


@pytest.mark.usefixtures("short_steps")
def test_a_query_is_answered_in_steps_as_of_the_last_one():
    engine = with_orders()
    steps = engine.queries.answering("orders", DEAR)
    next(steps)
    engine.publish("orders", [b'{"id":0,"px":7}', b'{"id":3,"px":0}'], 0)
    assert (
        run_to_completion(steps).slots.tolist()
        == engine.queries.at_once("orders", DEAR).slots.tolist()
        == [0, 2]
    )


@pytest.mark.usefixtures("short_steps")
def test_a_query_goes_on_under_other_indexes():
    engine = with_orders()
    steps = engine.queries.answering("orders", DEAR)
    next(steps)
    run_to_completion(engine.topic("orders").reindex(ORDERS))
    engine.publish("orders", [b'{"id":0,"px":7}'], 0)
    assert run_to_completion(steps).slots.tolist() == [0, 2, 3]


@pytest.mark.usefixtures("short_steps")
def test_a_query_of_a_topic_that_goes_ends():
    engine = with_orders()
    engine.publish("/desk/1", [b'{"id":%d,"px":2}' % at for at in range(4)], 0)
    steps = engine.queries.answering("/desk/1", DEAR)
    next(steps)
    run_to_completion(TopicChanges(engine).give_up(engine.topic("/desk/1"), lambda _: None))
    with pytest.raises(UnknownTopic):
        next(steps)


def test_what_cannot_be_requested_is_refused_before_the_first_step():
    engine = with_orders()
    with pytest.raises(UnknownTopic):
        engine.queries.answering("nothing", DEAR)
    with pytest.raises(ClientError, match="leave out the filter"):
        engine.queries.answering("raw", DEAR)
    with pytest.raises(ClientError, match="leave out order_by"):
        engine.queries.answering("raw", Query(order_by=parse_order_by("/px")))


def test_a_text_is_compiled_once():
    made = FilterCache(Limits)
    assert not made.has("/a = 1")
    found = made.get("/a = 1")
    assert made.has("/a = 1")
    assert made.get("/a = 1") is found


def test_what_was_compiled_elsewhere_is_taken():
    made = FilterCache(Limits)
    found = made.compiled("/a = 1")
    assert not made.has("/a = 1")
    made.keep("/a = 1", found)
    assert made.get("/a = 1") is found


def test_a_text_that_is_refused_is_refused_again_without_being_read_again():
    made = FilterCache(Limits)
    found = made.compiled("/a = ")
    made.keep("/a = ", found)
    for _ in range(2):
        with pytest.raises(BadFilter) as refusal:
            made.get("/a = ")
        assert vars(refusal.value) == vars(found)
    assert len(refusal.traceback) < 10


def test_the_limits_are_those_that_hold_when_a_filter_is_made():
    limits = [Limits(filter_bytes_max=5)]
    made = FilterCache(lambda: limits[-1])
    with pytest.raises(ClientError):
        made.get("/a = 12")
    limits.append(Limits())
    made.get("/a = 123")


def test_only_so_much_text_is_kept(monkeypatch):
    monkeypatch.setattr(queries, "FILTERS_KEPT_WEIGHT", 2 * (6 + ENTRY_WEIGHT))
    made = FilterCache(Limits)
    made.get("/a = 1")
    made.get("/a = 2")
    made.get("/a = 3")
    assert [made.has(f"/a = {n}") for n in (1, 2, 3)] == [False, True, True]
