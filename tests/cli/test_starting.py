"""What a server begins with that has no file, and whom it trusts above it."""

import os
import ssl

import click
import pytest

from sow.cli.starting import (
    NOTHING_CONFIGURED,
    check_folder,
    server_above,
    starter_of,
    without_records,
)
from sow.config import loads
from sow.core.definitions import Configuration, JournalSettings, Topic
from sow.errors import ClientError
from sow.server.boot.reporting import Upstream
from tests.edge.certificates import certificates

URL = "https://a:8080"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_server_of_other_records_needs_no_file_and_takes_one_that_there_is(here):
    assert starter_of("config.xml", False, (), True) == NOTHING_CONFIGURED
    assert loads(NOTHING_CONFIGURED).configuration is not None
    assert starter_of("config.xml", True, (), True) == "", "one that was named has to be there"
    assert starter_of("config.xml", False, (), False) == ""
    (here / "config.xml").touch()
    assert starter_of("config.xml", False, (), True) == ""


def test_topics_are_a_configuration_and_replace_a_file():
    found = loads(starter_of("config.xml", False, ("quotes:/symbol",), False)).configuration
    assert "quotes" in {one.name for one in found.topics}
    with pytest.raises(click.UsageError, match="replaces CONFIG"):
        starter_of("x.xml", True, ("quotes:/symbol",), False)


def test_a_folder_that_holds_something_else_is_left_alone(here):
    check_folder("starter", None)
    (here / "data").mkdir()
    check_folder("starter", None)
    (here / "data" / "following").mkdir()
    check_folder("starter", None)
    (here / "data" / "thesis.txt").touch()
    with pytest.raises(ClientError, match="--data-dir"):
        check_folder("starter", None)
    check_folder("starter", "elsewhere")
    check_folder("", None)
    (here / "data" / "manifest.json").touch()
    check_folder("starter", None)


def test_there_is_one_server_above_or_none():
    assert server_above(None, None, "t", None, False) is None
    with pytest.raises(click.UsageError, match="give one"):
        server_above(URL, URL, None, None, False)
    with pytest.raises(ClientError, match="is not an address"):
        server_above(None, "ftp://x", None, None, False)
    assert server_above(URL, None, "t", None, False) == Upstream(URL, "t")


def test_a_server_beside_another_is_let_in_by_its_token_and_acts_for_nobody(here):
    assert server_above(None, URL, "t", None, True) == Upstream(URL, "t")
    edge = server_above(URL, None, "t", "no such file", True)
    assert edge == Upstream(URL, report_token="t"), "its server listens without TLS"


def test_an_authority_is_trusted_where_a_file_names_it(here):
    found = server_above(URL, None, None, certificates(here).ca, False)
    assert isinstance(found.encryption, ssl.SSLContext)
    (here / "empty.pem").touch()
    for file in ("absent.pem", "empty.pem", os.curdir):
        with pytest.raises(ClientError, match=f"ca {file} cannot be used"):
            server_above(URL, None, None, file, False)


def test_of_a_chained_server_topics_and_log_do_not_count():
    given = Configuration("desk", (Topic("a", "json"),), journal=JournalSettings(directory="j"))
    assert without_records(given) == Configuration("desk")
