import os

import pytest

from sow.core.definitions import JournalSettings, Topic
from sow.errors import StoreError
from sow.store.directory import LOCK_FILE, DataDirectory, kept_from_servers
from tests.store.entries import group, part

ORDERS = Topic("/my/orders", "json", keys=("/id",))


@pytest.fixture
def data(tmp_path):
    data = DataDirectory(tmp_path / "deep" / "data")
    yield data
    data.close()


def test_a_second_holder_is_refused_with_the_process(data):
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}; stop it"):
        DataDirectory(data.path)


def test_readers_keep_servers_away_and_write_nothing(data):
    with pytest.raises(StoreError, match="take a backup"), kept_from_servers(data.path):
        pass
    data.close()
    before = (data.path / LOCK_FILE).read_bytes()
    taken = pytest.raises(StoreError, match="in use by process")
    with kept_from_servers(data.path), kept_from_servers(data.path), taken:
        DataDirectory(data.path)
    assert (data.path / LOCK_FILE).read_bytes() == before


def test_a_directory_without_a_lock_is_held_by_nobody(tmp_path):
    with kept_from_servers(tmp_path):
        pass
    assert [*tmp_path.iterdir()] == []


def test_a_released_directory_can_be_taken(data):
    data.close()
    DataDirectory(data.path).close()


def test_a_directory_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be used: Not a directory; .* --data-dir"):
        DataDirectory(tmp_path / "file" / "data")


def test_a_file_where_the_journal_belongs_is_reported(data):
    (data.path / "journal").write_text("")
    with pytest.raises(StoreError, match=r"journal cannot be used: "):
        data.journal(JournalSettings())


def test_names_stay_inside(data):
    with pytest.raises(AssertionError, match="leads out"):
        data.resolve("../elsewhere")


def test_a_topic_without_a_file_name_gets_a_safe_one(data):
    data.checkpoint(ORDERS).close()
    assert (data.path / "%2Fmy%2Forders.json.sow").is_file()


def test_a_file_name_may_lead_into_a_folder(data):
    data.checkpoint(Topic("t", "json", file_name="sow/t.sow")).close()
    assert (data.path / "sow" / "t.sow").is_file()


def test_a_topic_with_another_key_is_refused(data):
    data.checkpoint(ORDERS).close()
    with pytest.raises(StoreError, match=r"another Key, KeyDomain or MessageType \(then .*\"/id\""):
        data.checkpoint(Topic("/my/orders", "json", keys=("/ref",)))


def test_journal_and_checkpoint_are_found_again(data):
    for _ in range(2):
        checkpoint = data.checkpoint(ORDERS)
        journal = data.journal(JournalSettings(), at_least_seq=checkpoint.seq)
        journal.append(group(journal.last_seq + 1, 10))
        checkpoint.write(journal.last_seq, [part(0, 3)])
        journal.close()
        checkpoint.close()
    assert journal.last_seq == checkpoint.seq == 20
