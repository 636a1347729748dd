"""Keys as they are pressed; what a terminal does with them, test_top.py shows."""

import asyncio
import os
import pty
import sys
import termios

from sow.cli.keyboard import keys


def test_a_key_is_heard_at_once_and_the_terminal_is_given_back(monkeypatch):
    master, slave = pty.openpty()
    heard = []

    async def press():
        came = asyncio.Event()

        def note(key):
            heard.append(key)
            came.set()

        with keys(note):
            os.write(master, b"r")
            await came.wait()

    before = termios.tcgetattr(slave)
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        asyncio.run(press())
        assert termios.tcgetattr(slave) == before
    os.close(master)
    assert heard == ["r"]


def test_where_there_is_no_terminal_nothing_is_read(monkeypatch):
    reading, writing = os.pipe()

    async def press():
        with keys(lambda _key: None):
            pass

    with os.fdopen(reading) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        os.write(writing, b"left alone\n")
        asyncio.run(press())
        os.close(writing)
        assert pipe.read() == "left alone\n"
