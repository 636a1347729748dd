"""The command line `sow`: one module a command, loaded only when it is asked for."""

from sow.cli.main import main

__all__ = ["main"]
