"""`sow verify` of a directory, of a backup and of a server; its exit code says what it found."""

import json

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli import verify as module
from tests.edge.lives import ORDERS, backed_up, lives_on
from tests.edge.serving import Running, configuration

TOPICS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"


def run(*words):
    return CliRunner().invoke(main, ["verify", *map(str, words)])


def test_a_server_looks_at_its_own_files(sow, server, orders):
    orders({"id": 1})
    said = json.loads(sow.ok("verify", "--json"))
    assert said["whole"] is True
    assert any(one["file"].endswith("journal") for one in said["files"])
    assert all(": whole, " in line for line in sow.ok("verify").splitlines())


def test_damage_is_named_and_is_exit_code_1(tmp_path):
    with lives_on(tmp_path / "data")(ORDERS) as life:
        life.publish("orders", {"id": 1, "pad": "needle"})
        backed_up(life, tmp_path / "b")
    assert run(tmp_path / "data").exit_code == run(tmp_path / "b").exit_code == 0
    for file in (tmp_path / "data" / "journal" / "data.mdb", tmp_path / "b" / "log.blocks"):
        file.write_bytes(file.read_bytes().replace(b"needle", b"needlE"))
    result = run(tmp_path / "data")
    assert result.exit_code == 1
    assert f"{tmp_path / 'data' / 'journal'}: " in result.stdout
    assert "sow.store.repair" in result.stdout
    result = run(tmp_path / "b", "--json")
    damaged = [one for one in json.loads(result.stdout)["files"] if one["problem"]]
    assert (result.exit_code, len(damaged)) == (1, 1)
    assert damaged[0]["problem"].endswith("take another backup")


def test_damage_that_a_server_finds_in_its_own_files_is_named_and_is_exit_code_1(tmp_path):
    running = Running(configuration(TOPICS), tmp_path / "data")
    try:
        running.publish("orders", {"id": 1, "pad": "needle"})
        assert run("--url", running.url).exit_code == 0
        # In place: the server has the file open.
        with (tmp_path / "data" / "journal" / "data.mdb").open("r+b") as file:
            file.seek(file.read().index(b"needle"))
            file.write(b"needlE")
        result = run("--url", running.url)
        assert result.exit_code == 1
        assert "sow.store.repair" in result.stdout
        assert running.records("orders") == [{"id": 1, "pad": "needle"}], "memory is whole"
    finally:
        running.close()


def test_what_is_neither_is_a_sentence(tmp_path):
    result = run(tmp_path)
    assert (result.exit_code, "is no data directory, nor a backup" in result.stderr) == (1, True)


@pytest.fixture
def requested(monkeypatch):
    """The arguments of the repair, which then fails."""
    found = []

    def repair_file(arguments):
        found.append(arguments)
        return 1

    monkeypatch.setattr(module, "repair_file", repair_file)
    return found


def test_what_is_requested_is_handed_on_and_so_is_how_it_went(requested, tmp_path):
    result = CliRunner().invoke(main, ["repair", str(tmp_path), "orders.sow", "--after", "17"])
    assert requested == [[str(tmp_path), "orders.sow", "--after", "17"]]
    assert result.exit_code == 1


@pytest.mark.parametrize("arguments", [("nowhere", "x"), (".",), (".", "x", "--after", "-1")])
def test_what_makes_no_sense_is_wrong_usage_and_touches_nothing(requested, arguments):
    assert CliRunner().invoke(main, ["repair", *arguments]).exit_code == 2
    assert requested == []


def test_a_directory_without_data_is_a_sentence(tmp_path):
    result = CliRunner().invoke(main, ["repair", str(tmp_path), "orders.sow"])
    assert result.exit_code == 1
    assert "Traceback" not in result.output
