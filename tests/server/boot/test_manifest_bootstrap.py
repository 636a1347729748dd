"""The first manifest: a directory without one is new, or what its files tell."""

import pytest

from sow.core.definitions import Configuration, Topic
from sow.errors import StoreError
from sow.server.boot.manifest_bootstrap import NAMED_MAX, first_manifest, handful
from sow.store.directory import DataDirectory
from sow.store.protocols import Slice, numbers

ORDERS = Topic("orders", "json", keys=("/id",))
TRADES = Topic("trades", "json", keys=("/id",))
SLICE = Slice(["1"], [b'{"id":1}'], numbers([1]), numbers([0]), numbers([1]), numbers([0]))


@pytest.fixture
def directory(tmp_path):
    made = DataDirectory(tmp_path / "data")
    yield made
    made.close()


def hold(directory, topic):
    """A checkpoint with a record."""
    checkpoint = directory.checkpoint(topic)
    checkpoint.write(1, [SLICE])
    checkpoint.close()


def journal(directory, configuration):
    directory.journal(configuration.journal).close()


def first(directory, *topics, allow_loss=False):
    return first_manifest(Configuration("test", topics), directory, 0, allow_loss)


def test_an_empty_directory_is_new(directory):
    manifest, is_known = first(directory, ORDERS)
    assert [kept.name for kept in manifest.kept] == ["orders"]
    assert (is_known, manifest.journal) == (True, "journal")


def test_files_without_a_manifest_are_taken_for_those_of_the_configuration(directory, caplog):
    hold(directory, ORDERS)
    manifest, is_known = first(directory, ORDERS)
    assert ([kept.name for kept in manifest.kept], is_known) == (["orders"], False)
    assert "has no manifest" in caplog.text


def test_files_of_no_topic_are_refused_or_moved(directory):
    hold(directory, ORDERS)
    hold(directory, TRADES)
    with pytest.raises(StoreError, match=r"records of no topic .*: trades.*\(1 records\)") as error:
        first(directory, ORDERS)
    assert error.value.reason == "records would be lost"
    first(directory, ORDERS, allow_loss=True)
    (moved,) = (directory.path / "removed").rglob("trades*")
    assert moved.is_file()
    first(directory, ORDERS)


def test_a_journal_somewhere_else_is_refused(directory):
    configuration = Configuration("test", (ORDERS,))
    journal(directory, configuration)
    (directory.path / "journal").rename(directory.path / "old")
    with pytest.raises(StoreError, match=r"the journal is in .*old.* or write old"):
        first(directory, ORDERS)


def test_a_refusal_names_a_handful():
    names = list("abcdefg")
    assert handful(names[:NAMED_MAX]) == "a, b, c, d, e"
    assert handful(names) == "a, b, c, d, e, and 2 more"
