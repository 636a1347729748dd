"""The state hash: the same for the same records, whatever happened before, and of one moment."""

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Configuration, Topic
from sow.engine import state_hash
from sow.engine.engine import Engine
from sow.engine.state_hash import StateHash

SECOND = 1_000_000
TOPICS = (
    Topic("orders", "json", keys=("/id",)),
    Topic("texts", "json"),
    Topic("fleeting", "json", keys=("/id",), durability="transient"),
    Topic("quotes", "json", keys=("/id",), pattern="quotes-.*"),
)


def engine_of(*changes, topics=TOPICS):
    engine = Engine(Configuration("test", topics))
    for name, body, *key in changes:
        engine.publish(name, [body], SECOND, key=key[0] if key else None)
    return engine


def hash_of(engine):
    return run_to_completion(StateHash(engine).at_now())


def removed(engine, name, identity):
    engine.remove(engine.topic(name), [identity], "delete", 2 * SECOND)


def test_it_is_of_the_records_and_their_bookmarks():
    one = engine_of(("orders", b'{"id":1}'), ("texts", b"{}", "a"))
    again = engine_of(("orders", b'{"id":1}'), ("texts", b"{}", "a"))
    assert hash_of(one) == hash_of(again)
    assert hash_of(one)[0] == 2
    assert len(hash_of(one)[1]) == 16
    for other in (
        [("orders", b'{"id":2}'), ("texts", b"{}", "a")],
        [("orders", b'{"id":1}'), ("texts", b"{}", "b")],
        [("texts", b"{}", "a"), ("orders", b'{"id":1}')],
        [("orders", b'{"id":1}'), ("orders", b'{"id":1}'), ("texts", b"{}", "a")],
    ):
        assert hash_of(engine_of(*other))[1] != hash_of(one)[1]


def test_what_is_not_in_the_log_does_not_count():
    assert hash_of(engine_of())[1] == hash_of(engine_of(("fleeting", b'{"id":1}')))[1] == "0" * 16


def test_it_follows_changes_removals_and_new_topics():
    engine = engine_of(("orders", b'{"id":1}'))
    hashes = StateHash(engine)
    first = run_to_completion(hashes.at_now())
    engine.publish("quotes-a", [b'{"id":7}', b'{"id":8}'], SECOND)
    engine.publish("orders", [b'{"id":2}'], SECOND)
    removed(engine, "orders", "1")
    asked = run_to_completion(hashes.at_now())
    assert asked == hash_of(engine) != first
    for name, identity in (("quotes-a", "7"), ("quotes-a", "8"), ("orders", "2")):
        removed(engine, name, identity)
    assert run_to_completion(hashes.at_now())[1] == "0" * 16


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_it_is_of_one_moment_whatever_changes_meanwhile(monkeypatch, at_once):
    monkeypatch.setattr(state_hash, "TOPICS_AT_ONCE", at_once)
    monkeypatch.setattr(state_hash, "ROWS_AT_ONCE", at_once)
    engine, number, known = engine_of(), 0, {}

    def change():
        nonlocal number
        number += 1
        engine.publish(f"quotes-{number % 7}", [b'{"id":%d}' % (number % 11)], SECOND)
        engine.publish("texts", [b"{}"], SECOND, key=f"k{number % 5}")
        if number % 3 == 0:
            removed(engine, "texts", f"k{number % 4}")
        known[engine.seq] = hash_of(engine)[1]

    for _ in range(20):
        change()
    for _ in range(5):
        asking = StateHash(engine).at_now()
        try:
            while True:
                next(asking)
                change()
        except StopIteration as over:
            seq, digits = over.value
        assert known[seq] == digits


def test_who_does_not_ask_notes_nothing():
    engine = engine_of(("orders", b'{"id":1}'))
    hashes = StateHash(engine)
    assert engine._noting == ()
    run_to_completion(hashes.at_now())
    assert len(engine._noting) == 1
    hashes.close()
    assert engine._noting == ()
