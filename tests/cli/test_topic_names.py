"""Names of topics for TAB: some of a server's, quickly, and nothing else of anybody's."""

import json
import socket
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import click
import pytest

from sow.cli import topic_names as module
from sow.cli.options import TOKEN_OPTION, USER_OPTION
from sow.cli.topic_names import OFFERED_MAX, topic_names


def offered(url, incomplete="", **meta):
    """What stands there after TAB."""
    context = click.Context(click.Command("query"))
    context.params["url"] = url
    context.meta.update(meta)
    return [one.value for one in topic_names(context, SimpleNamespace(), incomplete)]


@contextmanager
def answering(body=b"[]", waits=False):
    """A server that answers all requests alike, or none; yields its address, and what it heard."""
    heard, done = [], threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                one, _ = listening.accept()
            except OSError:
                return
            with one:
                heard.append(one.recv(65536).decode())
                if waits:
                    done.wait(60)
                head = (
                    f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                one.sendall(head.encode() + body)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", heard
    finally:
        done.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def test_topics_are_offered_whose_names_begin_so(server):
    assert offered(server.url, "or") == ["orders", "orders-C"]
    assert {"orders", "desks", "notes"} <= set(offered(server.url))
    assert offered(server.url, "zzz") == []


def test_no_more_are_requested_for_than_are_shown():
    with answering() as (url, heard):
        offered(url, "a")
    assert f"GET /v1/topics?prefix=a&top_n={OFFERED_MAX}&names=true " in heard[0]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "nonsense", "ftp://x", "https://127.0.0.1:1"]
)
def test_a_server_that_is_not_there_offers_nothing_and_says_nothing(url, capfd):
    assert offered(url) == []
    assert capfd.readouterr() == ("", "")


def test_a_server_that_does_not_answer_is_waited_for_a_moment(monkeypatch):
    monkeypatch.setattr(module, "WITHIN_S", 0.05)
    with answering(waits=True) as (url, heard):
        assert offered(url) == []
    assert heard


@pytest.mark.parametrize("body", [b"<html>", b'{"a":1}', b"[1,null]", b'"text"'])
def test_an_answer_that_is_none_offers_nothing(body):
    with answering(body) as (url, _):
        assert offered(url) == []


def test_a_name_that_a_shell_would_carry_out_is_left_out():
    names = ["/my/orders", "a.b-c_1", "a;rm", "$(id)", "a b", "*", "-x", "~", "a\nb", "a:b", "ü"]
    with answering(json.dumps(names).encode()) as (url, heard):
        assert offered(url) == ["/my/orders", "a.b-c_1"]
        assert offered(url, "$(id") == []
    assert len(heard) == 1


def test_credentials_go_to_this_machine_and_over_tls_alone(monkeypatch):
    made = []

    class Noted:
        def __init__(self, url, **how):
            made.append({name: how.get(name) for name in ("token", "user", "password")})
            raise OSError

    monkeypatch.setattr(module, "Client", Noted)
    said = {"token": "t", "user": None, "password": None}
    nothing = dict.fromkeys(said)
    for url in (
        "http://127.0.0.1:8080",
        "http://localhost",
        "http://[::1]:1",
        "https://far.example",
    ):
        offered(url, **{TOKEN_OPTION: "t"})
        assert made.pop() == said, url
    offered("http://far.example", **{TOKEN_OPTION: "t"})
    assert made.pop() == nothing
    monkeypatch.delenv("SOW_PASSWORD", raising=False)
    offered("http://localhost", **{USER_OPTION: "ann"})
    assert made.pop() == nothing, "no password prompt"
    monkeypatch.setenv("SOW_PASSWORD", "p")
    offered("http://localhost", **{USER_OPTION: "ann", TOKEN_OPTION: "t"})
    assert made.pop() == {"token": None, "user": "ann", "password": "p"}
