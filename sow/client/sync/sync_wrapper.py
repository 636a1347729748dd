"""The mirror: how the client without asyncio has the methods of the one with it.

A method is defined once, in `sow.client`: its name, its parameters, their types, what it does and
raises. Here it is handed over, by one line, to whoever waits for it (`sow.client.sync.bridge`): the
parameters and their types are those of the original to a type checker, and to `help()` so are the
words, with what is said there about asyncio taken out.
"""

import functools
import inspect
import re
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from sow.client.sync.bridge import Bridge

Original = TypeVar("Original")
Awaited = TypeVar("Awaited", covariant=True)
Found = TypeVar("Found")
Made = TypeVar("Made")
Given = ParamSpec("Given")

PLAIN_WORDS = (
    (r"\basync (with|for)\b", r"\1"),
    (r"With asyncio[^.]*\. ", ""),
)
"""What docstrings say with asyncio, and what of it is so without."""


class SyncWrapper(Generic[Awaited]):
    """Something of `sow.client` for a program without asyncio."""

    def __init__(self, bridge: Bridge, awaited: Awaited) -> None:
        self._bridge = bridge
        self.awaited = awaited
        """The one with asyncio, which does the work."""


def waited(
    method: Callable[Concatenate[Original, Given], Coroutine[Any, Any, Found]],
) -> Callable[Concatenate[SyncWrapper[Original], Given], Found]:
    """A method that is a coroutine, waited for to its end."""

    def call(self: SyncWrapper[Original], /, *args: Given.args, **more: Given.kwargs) -> Found:
        return self._bridge.wait(method(self.awaited, *args, **more))

    return _described(call, method)


def handed(
    method: Callable[Concatenate[Original, Given], Found],
) -> Callable[Concatenate[SyncWrapper[Original], Given], Found]:
    """A method that gives what it has at once."""

    def call(self: SyncWrapper[Original], /, *args: Given.args, **more: Given.kwargs) -> Found:
        return method(self.awaited, *args, **more)

    return _described(call, method)


def mirrored(
    method: Callable[Concatenate[Original, Given], Found], kind: Callable[[Bridge, Found], Made]
) -> Callable[Concatenate[SyncWrapper[Original], Given], Made]:
    """A method that gives something of `sow.client`, as what it is without asyncio: a `kind`."""

    def call(self: SyncWrapper[Original], /, *args: Given.args, **more: Given.kwargs) -> Made:
        async def found() -> Found:
            return method(self.awaited, *args, **more)  # on the loop, where it is used

        return kind(self._bridge, self._bridge.wait(found()))

    return _described(call, method, kind)


def mirrored_coroutine(
    method: Callable[Concatenate[Original, Given], Coroutine[Any, Any, Found]],
    kind: Callable[[Bridge, Found], Made],
) -> Callable[Concatenate[SyncWrapper[Original], Given], Made]:
    """The same of a method that is a coroutine."""

    def call(self: SyncWrapper[Original], /, *args: Given.args, **more: Given.kwargs) -> Made:
        return kind(self._bridge, self._bridge.wait(method(self.awaited, *args, **more)))

    return _described(call, method, kind)


Method = TypeVar("Method", bound=Callable[..., Any])


def _described(call: Method, method: Callable[..., Any], kind: object = None) -> Method:
    """`call` with the name, the parameters and the docstring of the original."""
    signature = inspect.signature(method)
    if kind is not None:
        signature = signature.replace(return_annotation=kind)
    functools.update_wrapper(call, method, assigned=("__name__", "__qualname__"), updated=())
    call.__doc__ = plain(method.__doc__ or "")
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def plain(text: str) -> str:
    """A docstring without what is so with asyncio alone."""
    for words, instead in PLAIN_WORDS:
        text = re.sub(words, instead, text)
    return text
