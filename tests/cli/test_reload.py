"""`sow reload`: asks a server to read its configuration again, and says what that has changed."""

import json

import pytest

from sow.errors import ConfigError


@pytest.fixture
def reread(server, monkeypatch):
    """Has the server read this configuration again, or raise this."""

    def becomes(found):
        def read():
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(server.server, "_reread", read)

    return becomes


def test_a_server_without_a_file_says_that_it_cannot(sow):
    result = sow("reload")
    assert (result.exit_code, "not started from a file" in result.stderr) == (1, True)


def test_nothing_that_has_changed_is_said_to_be_nothing(sow, server, reread):
    reread(server.server.configuration)
    assert sow.ok("reload") == "nothing changed\n"
    assert json.loads(sow.ok("reload", "--json")) == {"changes": []}


def test_a_mistake_in_the_file_is_said_as_it_is(sow, reread):
    reread(ConfigError("config.xml:3: <Topic>: it has no Name"))
    result = sow("reload", "--allow-loss")
    assert result.exit_code == 1
    assert "config.xml:3: <Topic>: it has no Name" in result.stderr
