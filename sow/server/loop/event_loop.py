"""The event loop: uvloop where it is installed, or else the one that comes with Python.

uvloop is a loop of the same interface on libuv, and nothing here is written for one of them: what
is waited for is asked of whichever runs. It is found by its name when a loop is made, so nobody has
to install it; `sow serve --loop` says which one it is to be all the same.
"""

import asyncio
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from sow.errors import ClientError

Loop = asyncio.AbstractEventLoop
LOOPS = ("asyncio", "uvloop")
"""Those that may be asked for by name."""


def loop_factory(
    name: str | None = None, find: Callable[[str], ModuleType] = import_module
) -> Callable[[], Loop]:
    """What makes the loop of this name; None: uvloop if it is there.

    `find` imports a module by its name. Raises ClientError if the loop that was asked for is not
    installed.
    """
    if name != "asyncio":
        try:
            make: Callable[[], Loop] = find("uvloop").new_event_loop
        except ImportError:
            if name is not None:
                raise ClientError(
                    "uvloop is not installed; install it with pip install 'sow[uvloop]', or leave "
                    "out --loop"
                ) from None
        else:
            return make
    return asyncio.new_event_loop


def loop_name(loop: Loop) -> str:
    """Which one a loop is, for an operator."""
    return type(loop).__module__.partition(".")[0]
