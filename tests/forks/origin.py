"""The origin: a process that has read SOW's modules, and forks whenever it is asked to.

It is given a socket that listens already, so that who asks early waits for no more than the
reading, and ends when its standard input does. A fork leaves `forked`, and runs what it was asked
to run as the main program. The origin itself opens nothing and starts
no thread, since a fork would have all of that too.
"""

import atexit
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module

from tests.forks.asking import BEGIN, take_terminal

READ = ("sow.cli.main", "sow.client.sync", "tests.fuzz.doors")
"""What processes need beside the commands of `sow`, none of it what is run as the main program."""
CHILD_ENDED = {signal.SIGCHLD}


class End:
    """What comes after all exit handlers: nothing. Python would take each module apart, and so copy
    most of what a fork shares with the origin, for 60 ms."""

    code = None

    def __call__(self):
        if self.code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)


end = End()


def read():
    """Import what processes need, for good: no collector looks through it again."""
    gc.disable()
    for name in READ:
        import_module(name)
    for name in sys.modules["sow.cli.main"].SUBCOMMANDS.values():
        import_module(name)
    # A machine that stands still is no server that does not answer, a line more on every screen,
    # and none that does not stop.
    sys.modules["sow.cli.connecting"].PATIENCE_S = 1e6
    sys.modules["sow.cli.commands.serve"].STOP_S_MAX = 60
    gc.collect()
    gc.freeze()
    gc.enable()


def forked(listening):
    """Fork for everybody who asks, and tell him how it ends.

    Returns in each fork, with the connection and the descriptors that came with it, and in the
    origin with nothing, once its standard input has ended.
    """
    running = {}

    def tell(*_):
        while running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with running.pop(pid) as connection, suppress(OSError):  # He may not care any more.
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))

    signal.signal(signal.SIGCHLD, tell)
    while listening in select.select([listening, sys.stdin], [], [])[0]:
        connection = listening.accept()[0]
        descriptors = socket.recv_fds(connection, len(BEGIN), 3)[1]
        # One that ends at once is told of when it is known.
        signal.pthread_sigmask(signal.SIG_BLOCK, CHILD_ENDED)
        pid = os.fork()
        if pid == 0:
            for other in (listening, *running.values()):
                other.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, CHILD_ENDED)
            return connection, descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(b"%d\n" % pid)
        running[pid] = connection
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CHILD_ENDED)
    return None


def become(connection, descriptors):
    """Take on what was asked for, and run it as the main program."""
    with connection, connection.makefile("rb") as lines:
        requested = json.loads(lines.readline())
    os.chdir(requested["folder"])
    os.environ.clear()
    os.environ.update(requested["environment"])
    if requested["in_session"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if requested["on_terminal"]:
        take_terminal()
    sys.stdin = sys.__stdin__ = _stream(0, "r")
    sys.stdout = sys.__stdout__ = _stream(1, "w", line_buffering=os.isatty(1))
    sys.stderr = sys.__stderr__ = _stream(2, "w", line_buffering=True, errors="backslashreplace")
    sys.orig_argv = requested["command"]
    try:
        _run(requested["command"][1:], requested["folder"])
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        end.code = ended.code or 0
    else:
        end.code = 0


def _stream(number, mode, **how):
    """A standard stream, as Python makes it when it starts."""
    raw = os.fdopen(number, f"{mode}b", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", **how)


def _run(words, folder):
    """Run a main program: `-m` and a module, `-c` and a text, or a file; and what it is told."""
    if is_safe := words[0] == "-P":
        words = words[1:]
    kind, *rest = words
    if not is_safe:
        sys.path[0] = folder if kind in ("-m", "-c") else os.path.dirname(kind)
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = [kind, *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = words
        runpy.run_path(kind, run_name="__main__")


def main():
    atexit.register(end)  # First, so it is called last.
    listening = socket.socket(fileno=int(sys.argv[1]))
    read()
    if fork := forked(listening):
        become(*fork)


if __name__ == "__main__":
    main()
