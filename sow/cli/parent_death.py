"""Parent death: a process that a server starts ends soon after the server, however it ended.

A killed server stops no children. So the server holds one end of a pipe, the standard input of each
child process, and writes nothing: when the server is gone, that input ends. The child then stops
itself as the server would stop it, and after a while is killed with its process group. A restarted
server finds no old child at work for long.
"""

import contextlib
import os
import signal
import threading
import time

READ_BYTES = 4_096
"""Events that poll() waits for: none but the end."""
ORPHAN_S_MAX = 3.0
"""Time to stop: as long as a stopping server waits."""


def end_with_input(patience_s: float = ORPHAN_S_MAX, descriptor: int = 0) -> threading.Thread:
    """Stop this process when the input `descriptor` ends, and kill it `patience_s` later, with its
    group if it leads one; returns the thread that waits for that."""
    waiting = threading.Thread(target=_wait, args=(patience_s, descriptor), daemon=True)
    waiting.start()
    return waiting


def _wait(patience_s: float, descriptor: int) -> None:
    # Not a file object: its lock would be held when the process ends.
    with contextlib.suppress(OSError):
        while os.read(descriptor, READ_BYTES):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience_s)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
