"""The command line `sow`: one module per command, imported on first use."""

import signal

try:
    from sow.cli.main import main
except KeyboardInterrupt:
    # Ctrl-C during the third of a second that imports take ends as it does later.
    raise SystemExit(128 + signal.SIGINT) from None

__all__ = ["main"]
