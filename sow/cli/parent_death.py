"""Orphaned: what a server has started ends soon after it, however that came to its end.

A server that is killed stops nobody. It holds the one end of a pipe that is the standard input of
each process that it has started, and writes nothing: when it is gone, that input ends. The process
is then asked to stop as the server would have asked; after a while it is killed with all that it
has started. So who is started by the next server finds nobody at its work for long.
"""

import contextlib
import os
import signal
import threading
import time

READ_BYTES = 4_096
"""Nothing is expected to come."""
ORPHAN_S_MAX = 3.0
"""How long it may take to stop: as long as a server that stops would have waited for it."""


def end_with_input(patience_s: float = ORPHAN_S_MAX, descriptor: int = 0) -> threading.Thread:
    """Have this process stop when the input `descriptor` ends, and be killed `patience_s` later,
    with its group if that is its own; returns who waits for that."""
    waiting = threading.Thread(target=_wait, args=(patience_s, descriptor), daemon=True)
    waiting.start()
    return waiting


def _wait(patience_s: float, descriptor: int) -> None:
    # Not by a file object: its lock would be held when the process ends.
    with contextlib.suppress(OSError):
        while os.read(descriptor, READ_BYTES):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience_s)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
