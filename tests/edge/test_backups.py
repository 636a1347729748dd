"""What is restored is what the log said at that moment, whatever was checkpointed, trimmed, deleted
or under way; and nobody who comes from the old log is told of other changes in silence.
"""

import json
import random
from contextlib import closing

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import CONSUMERS
from sow.errors import AnotherLog, ClientError, Damaged, NotKept, StoreError
from sow.history.bookmarks import parse_bookmark
from sow.query import Query
from sow.sessions.queries.past_states import PastStates
from sow.store import restoring
from sow.store.backup import BackupWriter, FrameReader, StoredBackup, frames
from sow.store.journal import LmdbJournal
from sow.store.restoring import restore, until_time
from tests.edge.lives import DESKS, LITTLE_LOG, NOW_US, ORDERS, TRADES, backed_up, lives_on
from tests.effort import seeds

TOPICS = (ORDERS, TRADES, DESKS)
NAMES = ("orders", "trades", "/desk/a", "/desk/b")
LATER_US = NOW_US + 10**12


def play(life, seed, steps=12):
    """Do this and that, and say what there is after each record: `{seq: {topic: {id: record}}}`."""
    chance = random.Random(seed)
    now = state(life)
    states = {life.engine.seq: now}
    for number in range(steps):
        topic = chance.choice(NAMES)
        kind = chance.choice(["publish"] * 4 + ["delete", "checkpoint"])
        if kind == "publish":
            count = chance.randrange(1, 5)
            found = [{"id": chance.randrange(6), "n": number} for _ in range(count)]
            seq = life.engine.seq
            life.publish(topic, *found, now_us=NOW_US + number)
            for at, one in enumerate(found, 1):
                now = {**now, topic: {**now.get(topic, {}), one["id"]: one}}
                states[seq + at] = now
        elif kind == "delete" and topic in now:
            life.delete(topic)
            now = {**now, topic: {}}
            states[life.engine.seq] = now
        elif kind == "checkpoint":
            life.checkpoint()
    return states


def state(life):
    """What there is, as `play` says it."""
    found = {}
    for name in NAMES:
        if name in life.engine.topics:
            found[name] = {one["id"]: one for one in life.records(name)}
    return {name: records for name, records in found.items() if records}


def law(directory, seed):
    live = lives_on(directory / "data")
    with live(*TOPICS) as life:
        play(life, seed + 1000, 3)
    with live(*TOPICS) as life:  # what an earlier life has left
        states = play(life, seed)
        backup = backed_up(life, directory / "backup")
        play(life, seed + 2000)  # which the backup knows nothing of
    assert all(problem == "" for *_, problem in backup.verify())
    for seq, expected in states.items():
        target = directory / f"as-of-{seq}"
        made = restore(backup, target, now_us=LATER_US, until_seq=seq)
        with lives_on(target)(*TOPICS) as life:
            assert state(life) == {name: one for name, one in expected.items() if one}
            assert life.journal.last_seq == made.bookmark
    target = directory / "whole"
    restore(backup, target, now_us=LATER_US)
    with lives_on(target)(*TOPICS) as life:
        assert state(life) == {name: one for name, one in states[max(states)].items() if one}
        life.publish("orders", {"id": 1, "new": True})


@pytest.mark.parametrize("seed", seeds(2))
def test_what_is_restored_is_what_the_log_said_at_that_bookmark(tmp_path, seed):
    law(tmp_path, seed)


def nothing(_self, _after_seq, _until_seq):
    return iter(())


@pytest.mark.parametrize(
    ("where", "name", "bug"),
    [
        (restoring, "_until", lambda entry, _seq: entry),
        (LmdbJournal, "blocks", nothing),
    ],
)
def test_the_law_finds_a_copy_that_ends_elsewhere(tmp_path, monkeypatch, where, name, bug):
    monkeypatch.setattr(where, name, bug)
    with pytest.raises(AssertionError):
        law(tmp_path, 0)


@pytest.fixture
def trimmed(tmp_path):
    """A backup whose log does not reach back to the beginning."""
    live = lives_on(tmp_path / "data")
    with live(ORDERS, journal=LITTLE_LOG) as life:
        life.fill("orders")
        life.trim()
        life.publish("orders", {"id": 100}, now_us=NOW_US + 5)
        yield backed_up(life, tmp_path / "backup")


def test_what_the_log_no_longer_reports_is_restored_as_of_its_end_alone(trimmed, tmp_path):
    assert 0 < trimmed.oldest < trimmed.bookmark
    with pytest.raises(StoreError, match="only the end is known, bookmark"):
        restore(trimmed, tmp_path / "a", now_us=LATER_US, until_seq=trimmed.bookmark - 1)
    with pytest.raises(StoreError, match="is not in the backup"):
        restore(trimmed, tmp_path / "a", now_us=LATER_US, until_seq=trimmed.bookmark + 1)
    assert not (tmp_path / "a").exists()
    restore(trimmed, tmp_path / "a", now_us=LATER_US)
    with lives_on(tmp_path / "a")(ORDERS, journal=LITTLE_LOG) as life:
        assert len(life.records("orders")) == 21


def said_then(life, seq):
    """The records as of a bookmark."""
    past = PastStates(life.engine, life.journal, life.opening.checkpoints)
    then = run_to_completion(past.query("orders", str(seq), Query())).rows
    return [json.loads(body) for body in then.part(0, len(then)).bodies]


def test_what_is_restored_with_its_whole_log_answers_for_all_of_its_past(tmp_path):
    """Nothing was before the log, though its numbers begin late: also of a record that is gone it
    is known that it was not there."""
    with lives_on(tmp_path / "data")(ORDERS) as life:
        for at_us, document in enumerate(({"id": 1}, {"id": 2}, {"id": 1, "n": 2}), NOW_US):
            life.publish("orders", document, now_us=at_us)
        life.delete("orders")
        life.publish("orders", {"id": 1}, now_us=NOW_US + 9)
        expected = [said_then(life, seq) for seq in range(life.engine.seq + 1)]
        assert expected[:3] == [[], [{"id": 1}], [{"id": 1}, {"id": 2}]]
        backup = backed_up(life, tmp_path / "backup")
    for name in ("a", "b"):  # and so does what is restored of what was
        restore(backup, tmp_path / name, now_us=LATER_US)
        with lives_on(tmp_path / name)(ORDERS) as life:
            assert life.journal.first_seq > 1
            begin = life.journal.first_seq - 1
            assert [said_then(life, begin + seq) for seq in range(len(expected))] == expected
            backup = backed_up(life, tmp_path / f"backup of {name}")


def test_what_is_restored_behind_a_trimmed_log_knows_that_something_was_before(tmp_path):
    with lives_on(tmp_path / "data")(ORDERS, journal=LITTLE_LOG) as life:
        life.fill("orders")
        life.trim()
        life.delete("orders")
        backup = backed_up(life, tmp_path / "backup")
    restore(backup, tmp_path / "a", now_us=LATER_US)
    with lives_on(tmp_path / "a")(ORDERS, journal=LITTLE_LOG) as life:
        with pytest.raises(NotKept, match="has changed since bookmark"):
            said_then(life, life.journal.first_seq - 1)
        assert said_then(life, life.engine.seq) == []


def test_consumers_are_dropped_and_what_is_restored_starts_also_behind_a_trimmed_log(tmp_path):
    with lives_on(tmp_path / "data")(ORDERS, CONSUMERS, journal=LITTLE_LOG) as life:
        life.fill("orders")
        account = life.engine.catalog.account(CONSUMERS)
        noted = b'{"name":"report","bookmark":"3"}'
        life.engine.put(account, account.records.read([noted]), NOW_US, 0)
        life.store()
        life.checkpoint()
        life.trim()
        backup = backed_up(life, tmp_path / "backup")
    assert backup.oldest > 0
    restore(backup, tmp_path / "a", now_us=LATER_US)
    with lives_on(tmp_path / "a")(ORDERS, CONSUMERS, journal=LITTLE_LOG) as life:
        assert len(life.records("orders")) == 20
        assert life.records(CONSUMERS.name) == []


def test_a_time_is_the_last_record_that_is_no_newer(trimmed):
    assert until_time(trimmed, NOW_US + 4) == trimmed.bookmark - 1
    assert until_time(trimmed, NOW_US + 5) == trimmed.bookmark
    with pytest.raises(StoreError, match="begins after that time"):
        until_time(trimmed, NOW_US - 1)


def test_a_bookmark_of_the_old_log_is_refused_however_far_the_new_one_gets(tmp_path):
    live = lives_on(tmp_path / "data")
    with live(ORDERS) as life:
        life.publish("orders", {"id": 1}, {"id": 2})
        backup = backed_up(life, tmp_path / "backup")
        life.publish("orders", *({"id": n} for n in range(50)))
        old, old_log = life.engine.seq, life.opening.log_id
    restored = []
    # Restored twice: what the first one has told of is not the second one's to go on from.
    for number, name in enumerate(("a", "b")):
        restore(backup, tmp_path / name, now_us=LATER_US + number * 10**9)
        with lives_on(tmp_path / name)(ORDERS) as life:
            life.publish("orders", *({"id": n} for n in range(100)))
            assert life.opening.log_id not in (old_log, *(log for _, log in restored))
            newest = life.engine.seq
            for seq in (1, 2, old, *(seq for seq, _ in restored)):
                with pytest.raises(ClientError, match="is not kept"):
                    parse_bookmark(str(seq), life.journal, newest)
            for seq, log in ((0, old_log), (old, old_log), *restored):
                for not_found in ("fail", "epoch", "now"):
                    with pytest.raises(AnotherLog):
                        parse_bookmark(f"{log}-{seq}", life.journal, newest, not_found)
            restored.append((newest, life.opening.log_id))


def test_a_clock_that_is_behind_gives_no_number_twice(tmp_path):
    with lives_on(tmp_path / "data")(ORDERS) as life:
        life.publish("orders", {"id": 1})
        backup = backed_up(life, tmp_path / "backup")
    assert restore(backup, tmp_path / "a", now_us=0).bookmark > NOW_US
    with lives_on(tmp_path / "a")(ORDERS) as life:
        again = backed_up(life, tmp_path / "again")
        newest = life.engine.seq
    assert restore(again, tmp_path / "b", now_us=0).bookmark > newest


def test_a_backup_under_way_is_not_disturbed_by_checkpoints_and_retention(tmp_path):
    live = lives_on(tmp_path / "data")
    with live(ORDERS, journal=LITTLE_LOG) as life:
        life.fill("orders")
        wanted = state(life)
        with closing(life.opening.checkpoints["orders"].blocks()) as copied:
            first = next(copied)
            for number in range(3):
                life.publish("orders", *({"id": n, "later": number} for n in range(20)))
                life.checkpoint()
                life.trim()
            rest = [*copied]
        assert rest
        assert first != life.opening.checkpoints["orders"]._contents
        assert state(life) != wanted
        life.checkpoint()  # sweeps what was kept for the copy
        assert life.opening.checkpoints["orders"]._stale() == []


def test_a_configuration_that_changes_meanwhile_ends_it(tmp_path):
    with lives_on(tmp_path / "data")(ORDERS) as life:
        found = frames(life.opening, NOW_US, "1")
        first = next(found)
        life.opening._file.write(life.opening._file.manifest)
        with BackupWriter(tmp_path / "backup") as writer:
            reader = FrameReader(writer.take)
            reader.feed(first)
            with pytest.raises(StoreError, match="make another backup"):
                reader.feed(b"".join(found))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("name", ["manifest.json", "topic-1.blocks", "log.blocks"])
def test_a_byte_that_was_changed_is_found_in_each_file(tmp_path, name):
    with lives_on(tmp_path / "data")(ORDERS) as life:
        life.publish("orders", {"id": 1})
        life.checkpoint()
        backup = backed_up(life, tmp_path / "backup")
    file = tmp_path / "backup" / name
    whole = file.read_bytes()
    for text in (whole[:-1], whole[:-2] + b"\0" + whole[-1:], whole + b"x"):
        file.write_bytes(text)
        problems = {path: problem for path, _, problem in backup.verify() if problem}
        assert list(problems) == [str(file)]
    file.unlink()
    assert any("cannot be read" in problem for *_, problem in backup.verify())


def test_a_restore_that_fails_leaves_nothing_and_one_that_is_killed_is_no_data(
    tmp_path, monkeypatch
):
    with lives_on(tmp_path / "data")(ORDERS) as life:
        life.publish("orders", {"id": 1})
        backup = backed_up(life, tmp_path / "backup")
    target = tmp_path / "a"

    def failing(*_arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(restoring, "_restore_log", failing)
        with pytest.raises(OSError, match="No space left"):
            restore(backup, target, now_us=LATER_US)
        assert list(target.iterdir()) == []
        patched.setattr(restoring.shutil, "rmtree", lambda _path: None)
        patched.setattr(type(target), "unlink", lambda *_, **__: None)
        with pytest.raises(OSError, match="No space left"):
            restore(backup, target, now_us=LATER_US)
    with pytest.raises(Damaged, match="run sow restore once more"), lives_on(target)(ORDERS):
        pass
    with pytest.raises(StoreError, match="is not empty"):
        restore(backup, target, now_us=LATER_US)


def test_a_backup_of_a_later_release_is_refused_by_name(tmp_path):
    with lives_on(tmp_path / "data")(ORDERS) as life:
        backed_up(life, tmp_path / "backup")
    file = tmp_path / "backup" / "backup.json"
    said = json.loads(file.read_bytes())
    file.write_text(json.dumps({**said, "format": 3, "new": 1}))
    with pytest.raises(StoreError, match=r"by a later release \(format 3, this one reads up"):
        StoredBackup(tmp_path / "backup")
    for text in ("{", "[]", "{}", json.dumps({**said, "bookmark": "1"})):
        file.write_text(text)
        with pytest.raises(StoreError, match="is not as it was written"):
            StoredBackup(tmp_path / "backup")
    file.unlink()
    with pytest.raises(StoreError, match="holds no backup"):
        StoredBackup(tmp_path / "backup")
