"""SOW: an open state-of-the-world server.

The current value of every keyed record, queried with content filters, followed live, and
followed at a bounded rate through conflated topics. Importing this package loads no network
or disk library; the edges (`sow.server`, `sow.client`, `sow.cli`) do so on their own.
"""

from importlib import import_module

__version__ = "0.1.0"
LAZY = {"mirror": "sow.client.sync.mirror"}
"""What this package has of others, imported when it is first used."""


def __getattr__(name: str) -> object:
    if name in LAZY:
        return getattr(import_module(LAZY[name]), name)
    raise AttributeError(f"module 'sow' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What a shell completes: `LAZY` is there before its first use."""
    return sorted((*globals(), *LAZY))
