"""The command line `sow`: one module a command, loaded only when it is asked for."""

import signal

try:
    from sow.cli.main import main
except KeyboardInterrupt:
    # Who changes his mind in the third of a second that loading takes is answered as later.
    raise SystemExit(128 + signal.SIGINT) from None

__all__ = ["main"]
