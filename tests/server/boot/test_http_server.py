"""The port of a server: what its opening refuses and warns of."""

import logging
import socket
from dataclasses import replace

import pytest

from sow.core.definitions import Limits
from sow.errors import StoreError
from sow.server.boot import http_server
from tests.server.boot.servers import configuration, publish


def test_a_port_that_is_taken_is_said_and_the_directory_given_back(served, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = replace(configuration(), port=taken.getsockname()[1])
        with pytest.raises(StoreError, match=r"cannot listen on 127\.0\.0\.1:.*--port") as caught:
            served(publish, config)
    assert caught.value.reason == "address in use"

    async def nothing(_server):
        return True

    assert served(nothing), "nobody holds the directory any more"


def test_fewer_connections_than_are_wanted_are_sent_of(served, caplog, monkeypatch):
    monkeypatch.setattr(http_server, "raise_files_limit", lambda: 80)

    async def nothing(_server):
        return None

    with caplog.at_level(logging.WARNING, "sow"):
        served(nothing, configuration(limits=Limits(connections_max=85)))
        assert caplog.text == "", "a few less are nothing to warn of"
        served(nothing, configuration(limits=Limits(connections_max=100)))
    assert "there can be 80 connections, and not 100 (Limits/Connections)" in caplog.text
