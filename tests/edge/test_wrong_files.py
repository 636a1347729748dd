"""Files of a data directory that are missing, older, damaged, elsewhere or of another directory."""

import json
import logging
import shutil
from dataclasses import replace

import pytest

from sow.core.definitions import JournalSettings
from sow.errors import Damaged
from sow.store.manifest import COPY_FILE, MANIFEST_FILE
from sow.store.repair import main as repair
from tests.edge.lives import (
    DESKS,
    LITTLE_LOG,
    ORDERS,
    TRADES,
    refused,
    removed,
    with_desks,
    without_manifest,
)


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


def test_records_that_only_the_log_reports_of_are_counted_when_it_is_taken_over(live):
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
