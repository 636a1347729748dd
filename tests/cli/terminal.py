"""A terminal for tests: what a person sees of a command, and types to it.

A command runs as a process of its own on a pseudo-terminal of a given size. What it writes is drawn
onto a screen of characters as a terminal would: that is what tests look at. Of the escape sequences
the few that rich writes are known, and any other one is an error. Nothing sleeps: a test waits
until the screen shows something, or the command has ended.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

from tests import forks

WAIT_S = 60.0
"""A safety net, for a command that says nothing more."""
PATIENCE_S = 5.0
"""How long who sits there waits before he presses a key again."""
SEQUENCE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38;[\d;]+)(?:;\d+)*m")


def sow_of(python):
    """The command of the SOW that a Python has."""
    return (str(python), "-P", "-m", "sow")


SOW = sow_of(sys.executable)


class Screen:
    """Lines of characters, and a cursor."""

    def __init__(self, columns):
        self.columns, self.rows, self.row, self.column = columns, [""], 0, 0

    def write(self, text):
        at = 0
        while at < len(text):
            found = SEQUENCE.match(text, at)
            if found:
                self._move(found[1], found[2])
                at = found.end()
            elif text[at] == "\x1b":
                # Its end has not come yet.
                return text[at:]
            else:
                self._put(text[at])
                at += 1
        return ""

    def _put(self, character):
        if character == "\n":
            self._to(self.row + 1, self.column)
        elif character == "\r":
            self.column = 0
        elif character == "\t":
            self.column += 8 - self.column % 8
        elif character.isprintable():
            if self.column == self.columns:
                self._to(self.row + 1, 0)
            line = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = line[: self.column] + character + line[self.column + 1 :]
            self.column += 1

    def _to(self, row, column):
        self.row, self.column = max(0, row), column
        self.rows += [""] * (self.row + 1 - len(self.rows))

    def _move(self, numbers, letter):
        count = int(numbers) if numbers.isdigit() else 1
        if letter == "A":
            self._to(self.row - count, self.column)
        elif letter == "H":
            self._to(0, 0)
        elif letter == "K" and numbers == "2":
            self.rows[self.row] = ""
        elif (letter == "J" and numbers == "2") or (numbers, letter) in (
            ("?1049", "h"),
            ("?1049", "l"),
        ):
            self.rows, self.row, self.column = [""], 0, 0
        elif letter not in "mhl":
            raise AssertionError(f"a sequence that this terminal does not know: {numbers}{letter}")

    def crop(self, columns, lines):
        """What a smaller terminal has no room for is gone."""
        self.columns = columns
        self.rows = [line[:columns] for line in self.rows[:lines]]
        self._to(min(self.row, lines - 1), min(self.column, columns))

    @property
    def text(self):
        return "\n".join(line.rstrip() for line in self.rows).rstrip()


class Terminal:
    """A command on a terminal of its own, until the end of `with`."""

    def __init__(self, *words, columns=100, lines=30, cwd=None, program=SOW, **environment):
        self.screen, self.raw, self._rest = Screen(columns), "", ""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        begin = forks.started if program[0] == sys.executable else forks.real
        self.process = begin(
            [*program, *words],
            on_terminal=True,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**kept, "TERM": "xterm-256color", **environment},
        )
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)

    def resize(self, columns, lines):
        """Resize the terminal, and notify its process."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        self.screen.crop(columns, lines)

    def type(self, text):
        os.write(self._master, text.encode())

    def wait_for(self, pattern):
        """What the screen shows once it matches."""
        ends_s = time.monotonic() + WAIT_S
        while not re.search(pattern, self.screen.text):
            assert time.monotonic() < ends_s, self.screen.text
            assert self._read(), f"it has ended without {pattern!r}: {self.screen.text}"
        return self.screen.text

    def interrupt(self):
        """Press Ctrl-C, and again where nothing comes of it: Python passes over one that comes in
        the moment in which it begins to wait for a line."""
        while self.process.poll() is None:
            self.type("\x03")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_S)

    def end(self):
        """What stands there at the end, and the exit code."""
        while self._read():
            pass
        return self.process.wait(WAIT_S), self.screen.text

    def _read(self):
        ready, _, _ = select.select([self._master], [], [], WAIT_S)
        assert ready, f"it says nothing more: {self.screen.text}"
        try:
            piece = os.read(self._master, 65536)
        except OSError:
            # So a terminal tells that nobody writes to it any more.
            return False
        text = self._rest + piece.decode(errors="ignore")
        self.raw += piece.decode(errors="ignore")
        self._rest = self.screen.write(text)
        return bool(piece)

    @property
    def has_colour(self):
        return COLOUR.search(self.raw) is not None
