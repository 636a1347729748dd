"""Which event loop runs: the one that was asked for, uvloop where it is there, or asyncio's own."""

import time
from types import SimpleNamespace

import pytest

from sow.errors import ClientError
from sow.server.loop.event_loop import asyncio_loop, loop_factory, loop_name


def there(name):
    """As if uvloop was installed."""
    assert name == "uvloop"
    return SimpleNamespace(new_event_loop="made by uvloop")


def missing(name):
    """As if it was not."""
    raise ModuleNotFoundError(f"No module named {name!r}")


@pytest.mark.parametrize("name", [None, "uvloop"])
def test_uvloop_is_used_where_it_is_installed(name):
    assert loop_factory(name, there) == "made by uvloop"


def test_without_it_the_loop_is_that_of_python():
    assert loop_factory(None, missing) is asyncio_loop


def test_asyncio_may_be_requested_for_where_uvloop_is_installed():
    assert loop_factory("asyncio", there) is asyncio_loop


def test_who_asks_for_uvloop_is_sent_how_to_have_it():
    with pytest.raises(ClientError, match=r"not installed.*sow\[uvloop\]"):
        loop_factory("uvloop", missing)


def test_a_loop_is_known_by_the_library_that_made_it():
    loop = loop_factory("asyncio")()
    assert loop_name(loop) == "asyncio"
    assert loop.time is time.monotonic, "read without a call of Python's"
    loop.close()
