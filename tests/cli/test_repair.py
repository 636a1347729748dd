"""`sow repair`: the command line of `sow.store.repair`, whose own tests show what it saves."""

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli import repair as module


@pytest.fixture
def requested(monkeypatch):
    """What the repair is asked for, which then says that it could not."""
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
