"""The choice of the event loop: uvloop if it is installed, else asyncio's.

uvloop implements the same interface on libuv, and the server depends on neither. `sow serve --loop`
selects one by name.
"""

import asyncio
import time
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from sow.errors import ClientError

Loop = asyncio.AbstractEventLoop
LOOPS = ("asyncio", "uvloop")
"""The names that --loop accepts."""


def loop_factory(
    name: str | None = None, find: Callable[[str], ModuleType] = import_module
) -> Callable[[], Loop]:
    """The factory of the loop `name`; None: uvloop if it is installed.

    `find` imports a module by name. Raises ClientError if the requested loop is not installed.
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
    return asyncio_loop


def asyncio_loop() -> Loop:
    """asyncio's own loop. Its time is read some fifty times for each frame, so without the method
    of Python's around the clock."""
    loop = asyncio.new_event_loop()
    vars(loop)["time"] = time.monotonic
    return loop


def loop_name(loop: Loop) -> str:
    """The name of a loop's implementation."""
    return type(loop).__module__.partition(".")[0]
