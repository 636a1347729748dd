"""Commands that are planned take whatever they are given, and say that they are not there."""

import pytest
from click.testing import CliRunner

from sow.cli import unavailable
from sow.cli.main import SUBCOMMANDS
from sow.errors import NotAvailable

PLANNED = [name for name, module in SUBCOMMANDS.items() if module == unavailable.__name__]


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("words", [(), ("--some", "option", "word")])
def test_it_is_refused_by_name_whatever_follows(name, words):
    command = getattr(unavailable, name)
    result = CliRunner().invoke(command, words)
    assert isinstance(result.exception, NotAvailable)
    assert str(result.exception) == f"sow {name} is not available yet"


@pytest.mark.parametrize("name", PLANNED)
def test_its_help_says_so(name):
    assert "not available yet" in getattr(unavailable, name).help


def test_none_stands_there_that_no_name_leads_to():
    import click

    made = {name for name, found in vars(unavailable).items() if isinstance(found, click.Command)}
    assert made == set(PLANNED)
