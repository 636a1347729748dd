"""Another configuration for a directory with records: kept, refused by name, or moved out.

No sockets: a `Life` opens the directory as a server does, publishes straight into the engine, and
stores what that gives.
"""

import errno
import json
import logging
import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sow.definitions import (
    Configuration,
    ConflatedTopic,
    JournalSettings,
    Limits,
    MessageTypeOptions,
    Topic,
)
from sow.engine.engine import Engine
from sow.errors import Damaged, InvalidTopic, StoreError, TooLarge
from sow.history.log_rows import extent, log_rows
from sow.server.opening import Opening
from sow.server.removed import REMOVED
from sow.steps import at_once
from sow.store.manifest import COPY_FILE, MANIFEST_FILE
from sow.store.repair import main as repair

NOW_US = 1_700_000_000_000_000
SECOND = 1_000_000
ORDERS = Topic("orders", "json", keys=("/id",))
TRADES = Topic("trades", "json", keys=("/id",))
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
COPIES = ConflatedTopic("copies", "json", "desks", interval_us=SECOND, topic_format="%n-C")
LITTLE_LOG = JournalSettings(retention_bytes=10_000)


class Life:
    """One life of a process on a directory."""

    def __init__(self, opening):
        self.opening = opening
        self.engine, self.journal = opening.engine, opening.journal

    def publish(self, topic, *documents, now_us=NOW_US, **options):
        bodies = [d if isinstance(d, bytes) else json.dumps(d).encode() for d in documents]
        self.engine.publish(topic, bodies, now_us, **options)
        self.store()

    def delete(self, topic):
        slots = self.engine.topics[topic].records.table.live()
        at_once(self.engine.removal(topic, slots, NOW_US))
        self.store()

    def store(self):
        group = self.engine.flush()
        self.journal.append(group.entries)
        self.engine.release(group)

    def checkpoint(self, *names):
        for name in names or self.opening.checkpoints:
            slices = self.engine.catalog.slices(name, 5)
            self.opening.checkpoints[name].write(self.engine.seq, slices)

    def trim(self):
        kept = min(checkpoint.seq for checkpoint in self.opening.checkpoints.values())
        while self.journal.trim(NOW_US, kept + 1):
            pass

    def fill(self, topic):
        """So much that the little log forgets what came before."""
        for number in range(20):
            self.publish(topic, *({"id": j, "n": number, "pad": "x" * 80} for j in range(20)))
            self.checkpoint(topic)

    def records(self, topic):
        table = self.engine.topics[topic].records.table
        return [json.loads(table.bodies[slot]) for slot in table.live().tolist()]

    def logged(self, topic):
        """What a reader of the whole log gets of a topic."""
        topics = {topic: self.engine.topics[topic].records}
        part = extent(self.journal, self.journal.first_seq - 1, None, 10**6, topics)
        rows = list(log_rows(self.journal, part, topics))
        assert sum(len(row.keys) for row in rows) == part.rows
        return [json.loads(body) for row in rows for body in row.bodies]


@pytest.fixture
def live(tmp_path):
    @contextmanager
    def life(*topics, allow_loss=False, now_us=NOW_US, **more):
        configuration = Configuration("test", topics, **more)
        opening = Opening(
            configuration,
            tmp_path,
            lambda: Engine(configuration),
            now_us,
            allow_loss=allow_loss,
        )
        try:
            opening.open(lambda entries: entries)
            yield Life(opening)
        finally:
            opening.close()

    life.path = tmp_path
    return life


def refused(live, *topics, match, **more):
    """The start is refused with a sentence, and as often as it is tried."""
    for _ in range(2):
        with pytest.raises(StoreError, match=match) as refusal, live(*topics, **more):
            pass
    assert len(refusal.value.detail) < 2000
    return refusal.value.detail


def removed(live):
    """What is under removed/, by its path without the time."""
    files = [path for path in (live.path / REMOVED).rglob("*") if path.is_file()]
    return {str(path.relative_to(live.path / REMOVED)).split("/", 1)[1]: path for path in files}


def with_desks(live, *names):
    with live(ORDERS, DESKS) as life:
        life.publish("orders", {"id": 1})
        for name in names:
            life.publish(name, {"id": 1}, {"id": 2})


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


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("checkpointed", [False, True])
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


@pytest.mark.parametrize("name", CHANGES)
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


@pytest.mark.parametrize("name", CHANGES)
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


@pytest.mark.parametrize("name", CHANGES)
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


def test_a_narrower_pattern_is_refused_with_the_topics_it_leaves_out(live):
    names = [f"/desk/{number}" for number in range(9)]
    with_desks(live, *names)
    narrow = replace(DESKS, pattern="^/desk/0")
    detail = refused(live, ORDERS, narrow, match="^16 acknowledged records")
    assert "/desk/1 (2 records; Pattern of desks does not match /desk/1 any more)" in detail
    assert "/desk/5" in detail
    assert "/desk/6" not in detail
    assert "and 3 more" in detail
    with live(ORDERS, replace(DESKS, pattern="/desk/")) as life:
        assert all(life.records(name) == [{"id": 1}, {"id": 2}] for name in names)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_topics_of_a_pattern_that_were_given_up_do_not_come_back_by_its_checkpoint(
    live, checkpointed
):
    with live(ORDERS, DESKS) as life:
        life.publish("/desk/0", {"id": 1})
        life.publish("/desk/1", {"id": 1})
        if checkpointed:
            life.checkpoint()
        life.publish("/desk/1", {"id": 2})
    with live(ORDERS, replace(DESKS, pattern="^/desk/0"), allow_loss=True) as life:
        assert life.records("/desk/0") == [{"id": 1}]
    assert len(removed(live)["%2Fdesk%2F1.ndjson"].read_text().splitlines()) == 2
    with live(ORDERS, DESKS) as life:
        assert "/desk/1" not in life.engine.topics
        life.publish("/desk/1", {"id": 3})
        assert life.logged("/desk/1") == [{"id": 3}]
    with live(ORDERS, DESKS) as life:
        assert life.records("/desk/0") == [{"id": 1}]
        assert life.records("/desk/1") == [{"id": 3}]


def test_what_was_given_up_stays_so_when_the_log_is_empty_and_no_checkpoint_is_newer(live):
    forgetful = {"journal": JournalSettings(retention_bytes=0)}
    with live(ORDERS, DESKS, **forgetful) as life:
        life.publish("/desk/1", {"id": 1})
        life.checkpoint()
        life.trim()
        assert life.journal.first_seq > life.journal.last_seq
    narrow = replace(DESKS, pattern="^/desk/0")
    with live(ORDERS, narrow, allow_loss=True, **forgetful):
        pass
    with live(ORDERS, narrow, **forgetful):
        pass
    with live(ORDERS, DESKS, **forgetful) as life:
        assert "/desk/1" not in life.engine.topics


@pytest.mark.parametrize(
    "passing",
    [
        Topic("/desk/1", "json", keys=("/id",), durability="transient"),
        Topic("first", "json", keys=("/id",), durability="transient", pattern="^/desk/1"),
        Topic("/desk/1", "binary", durability="transient"),
    ],
)
def test_what_a_transient_topic_has_logged_never_counts_for_a_pattern(live, passing):
    for wide in (DESKS, Topic("desks", "binary", pattern="^/desk/")):
        named = {"key": "1"} if passing.message_type == "binary" else {}
        with live(ORDERS, passing, wide) as life:
            life.publish("/desk/1", {"id": 1}, **named)
        with live(ORDERS, passing, wide) as life:
            life.publish("/desk/1", {"id": 2}, **named)
        with live(ORDERS, wide) as life:
            assert "/desk/1" not in life.engine.topics
        with live(ORDERS, allow_loss=True):
            pass


@pytest.mark.parametrize("checkpointed", [False, True])
def test_names_of_a_pattern_that_has_gone_do_not_tell_another_what_they_were(live, checkpointed):
    fixed = Topic("fixed", "nvfix", keys=("/55",), pattern="^/desk/1")
    with live(ORDERS, fixed, DESKS) as life:
        life.publish("/desk/1", b"55=a\x01", b"55=b\x01")
        life.publish("/desk/2", {"id": 2})
        life.delete("/desk/1")
        if checkpointed:
            life.checkpoint()
    for _ in range(2):
        with live(ORDERS, DESKS) as life:
            assert life.records("/desk/2") == [{"id": 2}]
    with live(ORDERS, DESKS) as life:
        life.publish("/desk/1", {"id": 1})
        assert life.logged("/desk/1") == [{"id": 1}]
    with live(ORDERS, DESKS) as life:
        assert life.records("/desk/1") == life.logged("/desk/1") == [{"id": 1}]


def test_a_name_that_comes_back_to_a_pattern_begins_empty(live):
    exact = Topic("/desk/1", "json", keys=("/id",), hash_indexes=(("/id",),))
    with live(ORDERS, DESKS) as life:
        life.publish("/desk/1", {"id": 1})
        life.checkpoint()
    with live(ORDERS, exact, DESKS, allow_loss=True) as life:
        life.publish("/desk/1", {"id": 2})
        life.delete("/desk/1")
    with live(ORDERS, DESKS) as life:
        assert "/desk/1" not in life.engine.topics
        life.publish("/desk/1", {"id": 3})
    with live(ORDERS, DESKS) as life:
        assert life.records("/desk/1") == life.logged("/desk/1") == [{"id": 3}]


def test_a_checkpoint_does_not_bring_back_what_was_deleted_before_a_name_passed_on(live):
    exact = Topic("/desk/1", "binary")
    with live(ORDERS, DESKS) as life:
        life.publish("/desk/1", {"id": 1})
        life.checkpoint()
        life.delete("/desk/1")
    for _ in range(2):
        with live(ORDERS, exact, DESKS) as life:
            life.publish("/desk/1", b"\x00", key="1")
    with live(ORDERS, exact, DESKS) as life:
        life.delete("/desk/1")
    for _ in range(2):
        with live(ORDERS, DESKS) as life:
            assert "/desk/1" not in life.engine.topics


def test_whose_names_were_whose_is_forgotten_with_the_log(live):
    narrow = replace(DESKS, pattern="^/desk/0")
    forgetful = {"journal": JournalSettings(retention_bytes=0)}
    for topics in ((DESKS,), (narrow,), (DESKS,), (narrow,)):
        with live(ORDERS, *topics, **forgetful) as life:
            life.publish("orders", {"id": 1})
    assert len(json.loads((live.path / MANIFEST_FILE).read_bytes())["eras"]) == 3
    with live(ORDERS, narrow, **forgetful) as life:
        life.publish("orders", {"id": 1})
        life.checkpoint()
        life.trim()
    with live(ORDERS, narrow, **forgetful):
        pass
    assert json.loads((live.path / MANIFEST_FILE).read_bytes())["eras"] == []


def test_a_pattern_may_be_called_as_a_topic_of_another_is(live):
    with live(DESKS) as life:
        life.publish("/desk/1", {"id": 1})
    with live(DESKS, replace(DESKS, name="/desk/1", pattern="^orders")) as life:
        assert life.records("/desk/1") == life.logged("/desk/1") == [{"id": 1}]


def test_what_was_given_up_is_not_retained_again_while_something_else_is_given_up(live):
    with live(ORDERS, TRADES) as life:
        life.publish("orders", {"id": 1})
        life.publish("trades", {"id": 1})
    with live(replace(ORDERS, retain=False), TRADES, allow_loss=True):
        pass
    for _ in range(2):
        with live(ORDERS, allow_loss=True) as life:
            assert life.records("orders") == []


def test_topics_that_hold_nothing_do_not_lead_over_the_limit(live):
    limited = {"limits": Limits(pattern_topics_max=2)}
    with_desks(live, "/desk/1", "/desk/2", "/desk/3")
    with live(ORDERS, DESKS) as life:
        life.delete("/desk/1")
    with live(ORDERS, DESKS, **limited) as life:
        with pytest.raises(TooLarge):
            life.publish("/desk/1", {"id": 1})
        life.publish("/desk/2", {"id": 3})
    with live(ORDERS, DESKS, **limited) as life:
        assert len(life.records("/desk/2")) == 3


def test_a_lower_limit_of_a_patterns_topics_counts_those_that_hold_records(live):
    with_desks(live, "/desk/1", "/desk/2", "/desk/3")
    limited = {"limits": Limits(pattern_topics_max=2)}
    refused(live, ORDERS, DESKS, match=r"/desk/3 \(2 records; Limits/PatternTopics", **limited)
    with live(ORDERS, DESKS) as life:
        life.delete("/desk/1")
    with live(ORDERS, DESKS, **limited) as life:
        assert life.records("/desk/3") == [{"id": 1}, {"id": 2}]


def test_a_limit_gives_up_only_what_is_over_it(live):
    with_desks(live, "/desk/1", "/desk/2", "/desk/3")
    limited = {"limits": Limits(pattern_topics_max=2)}
    with live(ORDERS, DESKS, allow_loss=True, **limited) as life:
        assert "/desk/3" not in life.engine.topics
        assert life.records("/desk/2") == [{"id": 1}, {"id": 2}]
    assert list(removed(live)) == ["%2Fdesk%2F3.ndjson"]
    with live(ORDERS, DESKS) as life:
        assert "/desk/3" not in life.engine.topics


@pytest.mark.parametrize("order", [("/desk/1", "/desk/1-C"), ("/desk/1-C", "/desk/1")])
def test_a_format_whose_copies_would_take_the_names_of_topics_is_refused(live, order):
    with_desks(live, *order)
    refused(live, ORDERS, DESKS, COPIES, match=r"/desk/1-C \(2 records; /desk/1-C is ")
    with live(ORDERS, DESKS) as life:
        assert life.records("/desk/1-C") == [{"id": 1}, {"id": 2}]
    with live(ORDERS, DESKS, COPIES, allow_loss=True) as life:
        assert life.records("/desk/1") == [{"id": 1}, {"id": 2}]
        with pytest.raises(InvalidTopic):
            life.publish("/desk/1-C", {"id": 1})
        life.publish("/desk/1", {"id": 3})
    with live(ORDERS, DESKS, COPIES) as life:
        assert life.records("/desk/1-C") == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_definition_that_takes_a_topic_of_a_pattern_for_itself_is_refused(live):
    with_desks(live, "/desk/1")
    exact = Topic("/desk/1", "json", keys=("/id",))
    refused(
        live, ORDERS, exact, DESKS, match="/desk/1 belongs to /desk/1 now, and belonged to desks"
    )
    copy = ConflatedTopic("/desk/1", "json", "orders")
    refused(live, ORDERS, DESKS, copy, match="/desk/1 is the name of a conflated topic now")
    before = replace(DESKS, name="first")
    refused(live, ORDERS, before, DESKS, match="/desk/1 belongs to first now")


def test_a_pattern_is_given_up_with_everything_in_it(live):
    with live(ORDERS, DESKS) as life:
        life.publish("/desk/1", {"id": 1})
        life.checkpoint()
        life.publish("/desk/2", {"id": 2})
    transient = replace(DESKS, durability="transient")
    refused(live, ORDERS, transient, match=r"/desk/1 \(1 record; Durability of desks changed\)")
    with live(ORDERS, allow_loss=True):
        pass
    assert removed(live).keys() == {
        "%2Fdesk%2F1.ndjson",
        "%2Fdesk%2F2.ndjson",
        "desks.json.sow",
    }
    with live(ORDERS, DESKS) as life:
        assert not any(name.startswith("/desk/") for name in life.engine.topics)


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


@pytest.fixture
def trimmed(live):
    """A directory whose journal no longer holds what the checkpoint of `trades` does."""
    with live(ORDERS, TRADES, journal=LITTLE_LOG) as life:
        life.publish("trades", {"id": 1}, {"id": 2})
        life.checkpoint()
        older = (live.path / "trades.json.sow").read_bytes()
        life.publish("trades", {"id": 3})
        life.checkpoint()
        life.fill("orders")
        life.publish("trades", {"id": 4})
        life.checkpoint("trades")
        life.trim()
        assert life.journal.first_seq > 5
    live.older = older
    return live


@pytest.mark.parametrize("how", ["missing", "older"])
def test_a_checkpoint_that_is_missing_or_older_than_the_journal_is_refused_until_repaired(
    trimmed, how, capsys
):
    file = trimmed.path / "trades.json.sow"
    file.unlink() if how == "missing" else file.write_bytes(trimmed.older)
    more = {"journal": LITTLE_LOG}
    detail = refused(
        trimmed, ORDERS, TRADES, match=r"trades: the checkpoint .*trades.json.sow", **more
    )
    assert f"-m sow.store.repair {trimmed.path} {file}" in detail
    assert repair([str(trimmed.path), str(file)]) == 0
    assert "Lost: what came for trades between" in capsys.readouterr().out
    with trimmed(ORDERS, TRADES, **more) as life:
        kept = [] if how == "missing" else [{"id": 1}, {"id": 2}]
        assert life.records("trades") == [
            *kept,
            *([{"id": 4}] if {"id": 4} in life.logged("trades") else []),
        ]
        assert len(life.records("orders")) == 20


def test_a_checkpoint_that_is_missing_is_made_again_from_a_journal_that_holds_everything(live):
    with_desks(live, "/desk/1")
    (live.path / "desks.json.sow").unlink()
    with live(ORDERS, DESKS) as life:
        assert life.records("/desk/1") == [{"id": 1}, {"id": 2}]


def test_a_journal_that_is_missing_is_refused(live):
    with live(ORDERS) as life:
        life.publish("orders", {"id": 1})
    for path in (live.path / "journal").iterdir():
        path.unlink()
    (live.path / "journal").rmdir()
    with pytest.raises(Damaged, match=r"is missing.*sow\.store\.repair"), live(ORDERS):
        pass


def test_a_journal_under_another_name_is_refused_until_it_has_that_name(live):
    with live(ORDERS) as life:
        life.publish("orders", {"id": 1})
    elsewhere = {"journal": JournalSettings(directory="log")}
    refused(live, ORDERS, match="JournalDirectory is log; rename the directory", **elsewhere)
    (live.path / "journal").rename(live.path / "log")
    with live(ORDERS, **elsewhere) as life:
        assert life.records("orders") == [{"id": 1}]


def without_manifest(live):
    for name in (MANIFEST_FILE, COPY_FILE):
        (live.path / name).unlink()


def test_a_directory_of_the_first_release_is_taken_over_and_says_so(trimmed, caplog):
    without_manifest(trimmed)
    with caplog.at_level(logging.WARNING), trimmed(ORDERS, TRADES, journal=LITTLE_LOG) as life:
        assert life.records("trades") == [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}]
    assert "has no manifest" in caplog.text
    caplog.clear()
    with trimmed(ORDERS, TRADES, journal=LITTLE_LOG):
        pass
    assert caplog.text == ""


def test_what_has_no_place_when_a_directory_is_taken_over_is_refused_too(live):
    with live(ORDERS, TRADES, DESKS) as life:
        life.publish("/desk/1", {"id": 1})
        life.checkpoint("desks")
        life.publish("orders", {"id": 1}, {"id": 2})
        life.delete("orders")
        life.publish("trades", {"id": 1})
        life.checkpoint("trades")
    without_manifest(live)
    refused(
        live, ORDERS, DESKS, match=r"no topic of this configuration: trades.json.sow \(1 records\)"
    )
    narrow = replace(DESKS, pattern="^/d/")
    refused(live, ORDERS, TRADES, narrow, match=r"/desk/1 \(1 record; Pattern of desks")
    with live(ORDERS, allow_loss=True):
        pass
    assert {"trades.json.sow", "desks.json.sow"} <= removed(live).keys()
    with live(ORDERS, TRADES, DESKS) as life:
        assert life.records("trades") == []


def test_records_that_only_the_log_tells_of_are_counted_when_it_is_taken_over(live):
    with live(ORDERS, TRADES) as life:
        life.publish("trades", {"id": 1}, {"id": 2})
    without_manifest(live)
    refused(live, ORDERS, match=r"trades \(2 records; the log holds them")
    with live(ORDERS, allow_loss=True):
        pass
    assert b'{"id": 2}' in next(iter(removed(live).values())).read_bytes()
    with live(ORDERS):
        pass


def test_the_manifest_is_written_again_when_a_copy_is_damaged(live, caplog):
    with live(ORDERS) as life:
        life.publish("orders", {"id": 1})
    (live.path / MANIFEST_FILE).write_bytes(b"{")
    with live(ORDERS) as life:
        assert life.records("orders") == [{"id": 1}]
    assert "manifest.json is damaged" in caplog.text
    assert json.loads((live.path / MANIFEST_FILE).read_bytes())["topics"][0]["name"] == "orders"


def test_a_manifest_of_which_nothing_is_whole_is_repaired_by_what_the_files_tell(live, capsys):
    with live(ORDERS) as life:
        life.publish("orders", {"id": 1})
        life.checkpoint()
    for name in (MANIFEST_FILE, COPY_FILE):
        (live.path / name).write_bytes(b"{")
    refused(live, ORDERS, match="sow.store.repair")
    assert repair([str(live.path), str(live.path / MANIFEST_FILE)]) == 0
    assert "manifest.json.damaged-1" in capsys.readouterr().out
    with live(ORDERS) as life:
        assert life.records("orders") == [{"id": 1}]


def test_a_manifest_that_is_older_than_the_log_hides_nothing(live):
    with live(ORDERS) as life:
        life.publish("orders", {"id": 1})
    older = (live.path / MANIFEST_FILE).read_bytes()
    with live(ORDERS, TRADES) as life:
        life.publish("trades", {"id": 7})
    for name in (MANIFEST_FILE, COPY_FILE):
        (live.path / name).write_bytes(older)
    for topics in ((ORDERS, TRADES), (ORDERS,)):
        refused(live, *topics, match=r"trades \(1 record; .* manifest knows no such topic")
    without_manifest(live)
    with live(ORDERS, TRADES) as life:
        assert life.records("trades") == [{"id": 7}]


def test_a_journal_under_another_name_is_missed_without_a_manifest_too(live):
    with live(ORDERS) as life:
        life.publish("orders", {"id": 1})
    without_manifest(live)
    elsewhere = {"journal": JournalSettings(directory="log")}
    refused(live, ORDERS, match="JournalDirectory is log; rename the directory", **elsewhere)
    with live(ORDERS, journal=JournalSettings(directory="./journal")) as life:
        assert life.records("orders") == [{"id": 1}]


def test_a_log_that_a_definition_cannot_read_is_refused_without_a_manifest_too(live):
    with live(ORDERS) as life:
        life.publish("orders", {"id": 1})
    without_manifest(live)
    (live.path / "orders.json.sow").unlink()
    refused(
        live, replace(ORDERS, keys=("/ref",)), match=r"orders: .* record 1 .* start with the Key"
    )


@pytest.mark.parametrize("name", ["journal", "orders.json.sow"])
def test_whoever_wants_a_file_elsewhere_may_link_to_it(live, name, tmp_path_factory):
    with live(ORDERS) as life:
        life.publish("orders", {"id": 1})
    elsewhere = tmp_path_factory.mktemp("elsewhere") / name
    shutil.move(live.path / name, elsewhere)
    (live.path / name).symlink_to(elsewhere)
    with live(ORDERS) as life:
        assert life.records("orders") == [{"id": 1}]


def test_a_checkpoint_that_is_empty_and_of_another_directory_hides_nothing(live):
    with live(ORDERS, TRADES) as life:
        life.publish("trades", *({"id": number} for number in range(50)))
        life.checkpoint("orders")
    of_another = (live.path / "orders.json.sow").read_bytes()
    shutil.rmtree(live.path)
    with live(TRADES):
        (live.path / "orders.json.sow").write_bytes(of_another)
    with live(ORDERS, TRADES) as life:
        life.publish("orders", {"id": 1})
    with live(ORDERS, TRADES) as life:
        assert life.records("orders") == [{"id": 1}]


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

    monkeypatch.setattr("sow.server.opening.move_file", kill)
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
