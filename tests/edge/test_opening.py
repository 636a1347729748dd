"""Another configuration for a directory with records: kept, refused by name, or moved out.

Names that pass from one definition to another are in test_passing_names.py, files that are not as
they were left in test_wrong_files.py.
"""

import errno
import json
import os
import re
from dataclasses import replace

import pytest

from sow.core.definitions import ConflatedTopic, MessageTypeOptions, Topic
from sow.errors import StoreError
from sow.store.manifest import MANIFEST_FILE
from tests.edge.lives import (
    COPIES,
    DESKS,
    LITTLE_LOG,
    NOW_US,
    ORDERS,
    SECOND,
    TRADES,
    refused,
    removed,
    with_desks,
)

CHANGES = {
    "removed": ((TRADES,), "orders is not defined any more"),
    "another key": ((replace(ORDERS, keys=("/ref",)), TRADES), "Key of orders changed"),
    "another domain": ((replace(ORDERS, key_domain="d"), TRADES), "KeyDomain of orders changed"),
    "another type": ((replace(ORDERS, message_type="nvfix"), TRADES), "MessageType of orders"),
    "another file": ((replace(ORDERS, file_name="o.sow"), TRADES), "FileName of orders changed"),
    "transient": ((replace(ORDERS, durability="transient"), TRADES), "Durability of orders"),
    "not retained": ((replace(ORDERS, retain=False), TRADES), "Retain is false now"),
    "a pattern": ((replace(ORDERS, pattern="orders"), TRADES), "Pattern of orders changed"),
    "a copy": ((TRADES, ConflatedTopic("orders", "json", "trades")), "UnderlyingTopic of orders"),
}
KINDS = ("removed", "another key", "not retained", "a copy")
"""A topic that is there no more, is another one, has no place on disk, or is of another kind."""


@pytest.mark.parametrize(
    ("name", "checkpointed"), [*((name, False) for name in CHANGES), ("removed", True)]
)
def test_a_change_that_leaves_records_without_a_place_is_refused(live, name, checkpointed):
    topics, reason = CHANGES[name]
    with live(ORDERS, TRADES) as life:
        life.publish("orders", {"id": 1}, {"id": 2}, {"id": 1, "a": 1})
        life.publish("trades", {"id": 7})
        if checkpointed:
            life.checkpoint()
    detail = refused(live, *topics, match=rf"orders \(2 records; {reason}")
    assert detail.startswith("2 acknowledged records have no place")
    assert "start with --allow-loss" in detail
    with live(ORDERS, TRADES) as life:
        assert life.records("orders") == [{"id": 1, "a": 1}, {"id": 2}]


@pytest.mark.parametrize("name", KINDS)
def test_whoever_says_so_gives_up_just_these(live, name):
    topics, _ = CHANGES[name]
    with live(ORDERS, TRADES) as life:
        life.publish("orders", {"id": 1})
        life.publish("trades", {"id": 7})
        life.checkpoint()
        life.publish("orders", {"id": 2})
    with live(*topics, allow_loss=True) as life:
        assert life.records("trades") == [{"id": 7}]
    found = removed(live)["orders.ndjson"].read_text()
    assert [json.loads(line) for line in found.splitlines()] == [{"id": 1}, {"id": 2}]
    with live(*topics) as life:
        assert life.records("trades") == [{"id": 7}]


@pytest.mark.parametrize("name", KINDS)
def test_a_topic_that_was_given_up_begins_empty_when_it_is_put_back(live, name):
    topics, _ = CHANGES[name]
    with live(ORDERS, TRADES) as life:
        life.publish("orders", {"id": 1})
        life.checkpoint()
        life.publish("orders", {"id": 2})
    with live(*topics, allow_loss=True):
        pass
    for _ in range(2):
        with live(ORDERS, TRADES) as life:
            assert life.records("orders") == []
    with live(ORDERS, TRADES) as life:
        life.publish("orders", {"id": 3})
    with live(ORDERS, TRADES) as life:
        assert life.records("orders") == [{"id": 3}]
        if name != "not retained":
            assert life.logged("orders") == [{"id": 3}]


@pytest.mark.parametrize("name", KINDS)
def test_a_topic_whose_records_were_all_deleted_or_have_expired_is_nobodys_loss(live, name):
    topics, _ = CHANGES[name]
    expiring = replace(ORDERS, expires=True)
    with live(expiring, TRADES) as life:
        life.publish("orders", {"id": 1})
        life.checkpoint()
        life.delete("orders")
        life.publish("orders", {"id": 2}, expires_s=10)
    refused(live, *topics, match=r"orders \(1 record;")
    with live(*topics, now_us=NOW_US + 11 * SECOND):
        pass
    with live(ORDERS, TRADES) as life:
        assert life.records("orders") == []


def test_records_that_have_expired_by_the_time_of_the_log_are_nobodys_loss(live):
    """The machine's clock was set back: the server's time goes on from the newest in the log."""
    with live(replace(ORDERS, expires=True), TRADES) as life:
        life.publish("orders", {"id": 1}, expires_s=10)
        life.publish("trades", {"id": 1}, now_us=NOW_US + 9 * SECOND)
    refused(live, TRADES, match=r"orders \(1 record;")
    with live(replace(ORDERS, expires=True), TRADES) as life:
        life.publish("trades", {"id": 2}, now_us=NOW_US + 11 * SECOND)
    with live(TRADES, now_us=NOW_US - 1000 * SECOND) as life:
        assert life.records("trades") == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("checkpointed", [(), (1,), (2,), (1, 2)])
def test_records_live_as_long_in_the_next_life(live, checkpointed):
    expiring = replace(ORDERS, expires=True, expiration_us=60 * SECOND)
    with live(expiring) as life:
        for ident, lifetime_s in enumerate((None, 5, 10, 0)):
            life.publish("orders", {"id": ident}, expires_s=lifetime_s)
        for part in (1, 2):
            some = ({"id": ident, "d": part} for ident in range(5))
            life.publish("orders", *some, now_us=NOW_US + part * SECOND, delta=True)
            if part in checkpointed:
                life.checkpoint()
    ends = {"0": 60, "1": 5, "2": 10, "3": 0, "4": 61}
    for _ in range(2):
        with live(expiring) as life:
            table = life.engine.topics["orders"].records.table
            at_us = dict(zip(table.slots, table.expiries(list(table.slots), -1), strict=True))
            assert at_us == {one: end and NOW_US + end * SECOND for one, end in ends.items()}


@pytest.mark.parametrize(
    "topics",
    [
        (TRADES, ORDERS),
        (replace(ORDERS, hash_indexes=(("/a",),), indexes=("/b",)), TRADES),
        (replace(ORDERS, expires=True), TRADES, Topic("new", "json", keys=("/id",))),
        (ORDERS, TRADES, ConflatedTopic("orders-C", "json", "orders")),
        (ORDERS, TRADES, DESKS, COPIES),
    ],
)
def test_other_changes_cost_nothing(live, topics):
    with live(ORDERS, TRADES) as life:
        life.publish("orders", {"id": 1})
        life.checkpoint()
        life.publish("orders", {"id": 2})
    with live(*topics) as life:
        assert life.records("orders") == [{"id": 1}, {"id": 2}]
    assert removed(live) == {}


def test_what_was_given_up_is_not_retained_again_while_something_else_is_given_up(live):
    with live(ORDERS, TRADES) as life:
        life.publish("orders", {"id": 1})
        life.publish("trades", {"id": 1})
    with live(replace(ORDERS, retain=False), TRADES, allow_loss=True):
        pass
    for _ in range(2):
        with live(ORDERS, allow_loss=True) as life:
            assert life.records("orders") == []


@pytest.mark.parametrize(
    ("before", "names"),
    [
        ((ORDERS, replace(TRADES, durability="transient")), ["trades"]),
        ((ORDERS, replace(TRADES, retain=False)), ["trades"]),
        ((ORDERS, replace(DESKS, durability="transient")), ["/desk/1", "/desk/2"]),
    ],
)
def test_what_was_not_kept_does_not_count_when_it_is_kept_from_now_on(live, before, names):
    after = [replace(topic, durability="persistent", retain=True) for topic in before]
    with live(*before) as life:
        for name in names:
            life.publish(name, {"id": 1}, {"id": 2})
        life.publish("orders", {"id": 1})
    with live(*after) as life:
        there = [name for name in names if name in life.engine.topics]
        assert [life.records(name) for name in there] == [[]] * len(there)
        for name in names:
            life.publish(name, {"id": 3})
    with live(*after) as life:
        assert [life.records(name) for name in names] == [[{"id": 3}]] * len(names)
        assert life.records("orders") == [{"id": 1}]
        assert all({"id": 3} in life.logged(name) for name in names)


def test_the_log_of_a_topic_that_retains_from_now_on_is_still_there(live):
    passing = replace(TRADES, retain=False)
    with live(passing) as life:
        life.publish("trades", {"id": 1})
    with live(TRADES) as life:
        assert life.logged("trades") == [{"id": 1}]


def test_a_new_topic_holds_no_part_of_the_log_back(live):
    with live(ORDERS, journal=LITTLE_LOG) as life:
        life.fill("orders")
    with live(ORDERS, TRADES, journal=LITTLE_LOG) as life:
        before = life.journal.first_seq
        life.fill("orders")
        life.trim()
        assert life.journal.first_seq > before
    with live(ORDERS, TRADES, journal=LITTLE_LOG) as life:
        assert life.records("trades") == []


def test_a_topic_of_the_longest_name_can_be_given_up(live):
    names = ["/desk/" + "é" * 248 + end for end in "ab"]
    with_desks(live, *names)
    with live(ORDERS, allow_loss=True):
        pass
    assert len([name for name in removed(live) if name.endswith(".ndjson")]) == 2


def test_a_removal_that_was_interrupted_is_completed(live, monkeypatch):
    with live(ORDERS, TRADES) as life:
        life.publish("trades", {"id": 1})
        life.checkpoint()

    class Killed(BaseException):
        """What ends the process here."""

    def kill(*_):
        raise Killed

    monkeypatch.setattr("sow.server.boot.bootstrap.move_file", kill)
    with pytest.raises(Killed), live(ORDERS, allow_loss=True):
        pass
    monkeypatch.undo()
    with live(ORDERS, TRADES) as life:
        assert life.records("trades") == []
    assert removed(live).keys() == {"trades.ndjson", "trades.json.sow"}


@pytest.mark.parametrize(
    ("topic", "bodies", "more", "name", "lines"),
    [
        (
            Topic("keyless", "json"),
            [{"a": 1}],
            {"key": "17"},
            "keyless.commands.ndjson",
            ['{"c":"publish","t":"keyless","k":"17","d":{"a": 1}}'],
        ),
        (
            Topic("bytes", "binary"),
            [b"\x00\n"],
            {"key": "17"},
            "bytes.commands.ndjson",
            ['{"c":"publish","t":"bytes","k":"17","d":"AAo=","enc":"base64"}'],
        ),
        (
            Topic("custom", "pipes", keys=("/55",)),
            [b"55=a|44=1|"],
            {},
            "custom.txt",
            ["55=a|44=1|"],
        ),
    ],
)
def test_what_is_written_out_can_be_loaded_again(live, topic, bodies, more, name, lines):
    kinds = {"message_types": (MessageTypeOptions("pipes", "nvfix", b"|"),)}
    with live(ORDERS, topic, **kinds) as life:
        life.publish(topic.name, *bodies, **more)
    with live(ORDERS, allow_loss=True):
        pass
    assert removed(live)[name].read_text().splitlines() == lines


def test_an_ordinary_start_writes_nothing(live):
    with live(ORDERS) as life:
        life.publish("orders", {"id": 1})
    before = (live.path / MANIFEST_FILE).read_bytes()
    with live(ORDERS):
        pass
    assert (live.path / MANIFEST_FILE).read_bytes() == before
    assert not re.search(r'"generation": [^1]', before.decode())


@pytest.mark.parametrize("call", ["open", "mkdir", "rename", "fsync", "truncate"])
@pytest.mark.parametrize("how", ["first", "again", "removal"])
def test_a_directory_that_cannot_be_written_is_refused_with_a_sentence(
    live, monkeypatch, call, how
):
    if how != "first":
        with live(ORDERS, TRADES) as life:
            life.publish("trades", {"id": 1})
            life.checkpoint()
    topics = (ORDERS,) if how == "removal" else (ORDERS, TRADES)

    def refuse(*_arguments, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, call, refuse)
    said = "Read-only file system"
    try:
        with live(*topics, allow_loss=True):
            pass
    except StoreError as error:
        said = error.detail
    monkeypatch.undo()
    assert "Read-only file system" in said
    with live(*topics, allow_loss=True) as life:
        assert life.records("orders") == []
        if how == "again":
            assert life.records("trades") == [{"id": 1}]
