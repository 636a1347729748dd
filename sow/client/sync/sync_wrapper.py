"""Wraps the methods of the client with asyncio as blocking ones.

A method is defined once, in `sow.client`: its name, parameters, types, behaviour and errors. One
line wraps it here, so that callers wait for it (`sow.client.sync.bridge`). Type checkers see the
parameters and types of the original, and `help()` its docstring, without the parts about asyncio.
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
"""Replacements in docstrings: parts that apply only with asyncio."""


class SyncWrapper(Generic[Awaited]):
    """An object of `sow.client` for programs without asyncio."""

    def __init__(self, bridge: Bridge, awaited: Awaited) -> None:
        self._bridge = bridge
        self.awaited = awaited
        """The wrapped object, with asyncio."""


def waited(
    method: Callable[Concatenate[Original, Given], Coroutine[Any, Any, Found]],
) -> Callable[Concatenate[SyncWrapper[Original], Given], Found]:
    """A coroutine method, as one that blocks until it is done."""

    def call(self: SyncWrapper[Original], /, *args: Given.args, **more: Given.kwargs) -> Found:
        return self._bridge.wait(method(self.awaited, *args, **more))

    return _described(call, method)


def handed(
    method: Callable[Concatenate[Original, Given], Found],
) -> Callable[Concatenate[SyncWrapper[Original], Given], Found]:
    """A plain method, called directly."""

    def call(self: SyncWrapper[Original], /, *args: Given.args, **more: Given.kwargs) -> Found:
        return method(self.awaited, *args, **more)

    return _described(call, method)


def mirrored(
    method: Callable[Concatenate[Original, Given], Found], kind: Callable[[Bridge, Found], Made]
) -> Callable[Concatenate[SyncWrapper[Original], Given], Made]:
    """A method that returns an object of `sow.client`, wrapped as a `kind`."""

    def call(self: SyncWrapper[Original], /, *args: Given.args, **more: Given.kwargs) -> Made:
        async def found() -> Found:
            return method(self.awaited, *args, **more)  # on the loop, where it is used

        return kind(self._bridge, self._bridge.wait(found()))

    return _described(call, method, kind)


def mirrored_coroutine(
    method: Callable[Concatenate[Original, Given], Coroutine[Any, Any, Found]],
    kind: Callable[[Bridge, Found], Made],
) -> Callable[Concatenate[SyncWrapper[Original], Given], Made]:
    """The same for a coroutine method."""

    def call(self: SyncWrapper[Original], /, *args: Given.args, **more: Given.kwargs) -> Made:
        return kind(self._bridge, self._bridge.wait(method(self.awaited, *args, **more)))

    return _described(call, method, kind)


Method = TypeVar("Method", bound=Callable[..., Any])


def _described(call: Method, method: Callable[..., Any], kind: object = None) -> Method:
    """`call` with the name, parameters and docstring of the original."""
    signature = inspect.signature(method)
    if kind is not None:
        signature = signature.replace(return_annotation=kind)
    functools.update_wrapper(call, method, assigned=("__name__", "__qualname__"), updated=())
    call.__doc__ = plain(method.__doc__ or "")
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def plain(text: str) -> str:
    """A docstring without the parts that apply only with asyncio."""
    for words, instead in PLAIN_WORDS:
        text = re.sub(words, instead, text)
    return text
