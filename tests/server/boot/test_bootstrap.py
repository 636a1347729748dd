"""Opening a data directory: what fits is restored, what has no place is refused or given up.

Every way in which a directory and a configuration may differ is in tests/edge (test_opening.py,
test_passing_names.py, test_wrong_files.py), over whole lives; here are the rules on the way.
"""

import logging
from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Configuration, Topic, with_system_topics
from sow.engine.engine import Engine
from sow.errors import StoreError
from sow.history.bookmarks import parse_bookmark
from sow.server.boot.bootstrap import LOG_ID_BYTES, ServerBootstrap
from sow.server.boot.quarantine import REMOVED
from sow.store import manifest
from sow.store.manifest import ManifestFile

ORDERS = Topic("orders", "json", keys=("/id",))
FILLS = replace(ORDERS, name="fills")
NOW_US = 1_700_000_000_000_000


@pytest.fixture
def opened(tmp_path):
    """Opens the directory for these topics, and closes it at the end; `log` sees the replay."""
    openings = []

    def open_for(*topics, log=iter, **more):
        configuration = with_system_topics(Configuration("test", topics))
        opening = ServerBootstrap(
            configuration, tmp_path, lambda: Engine(configuration), NOW_US, **more
        )
        openings.append(opening)
        run_to_completion(opening.open(log))
        return opening

    def close():
        while openings:
            openings.pop().close()

    open_for.close = close
    yield open_for
    close()


def fill(opening, topic, *numbers):
    """Publish records, and store them."""
    bodies = [b'{"id":%d}' % number for number in numbers]
    opening.engine.publish(topic, bodies, NOW_US)
    opening.journal.append(opening.engine.flush().entries)


def count(opening, topic):
    return len(opening.engine.topic(topic).records.table)


def test_what_was_stored_is_there_again_and_the_log_is_the_same_one(opened):
    first = opened(ORDERS)
    fill(first, "orders", 1, 2)
    assert len(first.log_id) == 2 * LOG_ID_BYTES
    opened.close()
    replayed = []

    def log(entries):
        for entry in entries:
            replayed.append(entry.seq)
            yield entry

    second = opened(ORDERS, log=log)
    assert (count(second, "orders"), second.log_id) == (2, first.log_id)
    assert replayed == [1]


def test_a_directory_of_the_first_releases_gets_a_name_and_keeps_its_positions(
    opened, tmp_path, monkeypatch
):
    fill(opened(ORDERS), "orders", 1, 2)
    opened.close()
    file = ManifestFile(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(manifest, "FORMAT", 1)
        file.write(replace(file.manifest, log_id=""))
    upgraded = opened(ORDERS)
    log = upgraded.journal.log_id
    assert len(log) == 2 * LOG_ID_BYTES
    for bookmark in ("1", f"{log}-1"):
        assert parse_bookmark(bookmark, upgraded.journal, 2).after == 1
    opened.close()
    assert opened(ORDERS).journal.log_id == log


def test_a_checkpoint_shortens_the_replay(opened):
    first = opened(ORDERS)
    fill(first, "orders", 1)
    fill(first, "orders", 2)
    fill(first, "orders", 3)
    table = first.engine.topic("orders").records.table
    for name, checkpoint in first.checkpoints.items():
        checkpoint.write(3, [table.slice(0, 100)] if name == "orders" else ())
    opened.close()
    replayed = []
    second = opened(ORDERS, log=lambda entries: [replayed.append(e.seq) or e for e in entries])
    assert count(second, "orders") == 3
    assert replayed == [3], "the newest is read in any case: time goes on from there"


def test_records_without_a_place_are_refused_by_name_and_stay(opened, tmp_path):
    fill(opened(ORDERS, FILLS), "fills", 1, 2)
    opened.close()
    with pytest.raises(StoreError, match=r"2 acknowledged records .* fills \(2 records;") as caught:
        opened(ORDERS)
    assert caught.value.reason == "records would be lost"
    opened.close()
    assert count(opened(ORDERS, FILLS), "fills") == 2
    assert not (tmp_path / REMOVED).exists()


def test_who_says_so_gives_them_up_and_finds_them_written_out(opened, tmp_path, caplog):
    fill(opened(ORDERS, FILLS), "fills", 1, 2)
    opened.close()
    with caplog.at_level(logging.WARNING, "sow"):
        opened(ORDERS, allow_loss=True)
    assert "given up: topic fills, 2 records" in caplog.text
    (written,) = (tmp_path / REMOVED).rglob("fills.ndjson")
    assert written.read_text() == '{"id":1}\n{"id":2}\n'
    opened.close()
    again = opened(ORDERS, FILLS)
    assert count(again, "fills") == 0, "what was given up does not come back by its log"


def test_a_directory_is_one_servers(opened):
    opened(ORDERS)
    with pytest.raises(StoreError):
        opened(ORDERS)
