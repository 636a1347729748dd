"""Runs coroutines in an event loop of another thread, waits for them, and wraps objects so.

Asynchronous context managers become those of `with`, asynchronous iterators those of `for`. A
method is defined once, in `sow.client`: its name, parameters, types, behaviour and errors. One line
wraps it (`waited`, `handed`, `mirrored`), so that callers wait for it. Type checkers see the
parameters and types of the original, and `help()` its docstring, without the parts about asyncio.

Requests over HTTP are the first that is wrapped: see `sow.client.http`.
"""

import asyncio
import contextlib
import functools
import inspect
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar

from sow.client.http import Answer as AsyncAnswer
from sow.client.http import Http as AsyncHttp
from sow.client.http import Rows as AsyncRows
from sow.client.tables import AnswerTable, to_pandas, to_polars
from sow.core.media_types import JSON
from sow.errors import ClientError

Result = TypeVar("Result")

LOOK_S = 0.2
"""How long Ctrl-C may wait: a library that hears of it first, as polars does, may have it end no
wait, and Python looks for it between two of them."""


def _outcome(future: Future[Result]) -> Result:
    """What a future has in the end."""
    while True:
        try:
            return future.result(LOOK_S)
        except TimeoutError:
            if future.done():  # it may be its own error
                return future.result()


class Bridge:
    """An event loop in a thread of its own, until `close`."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._ending = threading.Lock()
        """Held while work is submitted, so that none is after the end."""
        self._ends = False
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What the coroutine `work` returns or raises; an interrupt cancels it.

        Raises ClientError after `close`, and where it could never return: in a forked process,
        which does not have the thread, and in the thread of the loop itself.
        """
        try:
            self._check_place()
            with self._ending:
                if self._ends:
                    raise ClientError("the client is closed; make another one")
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
            return _outcome(future)
        except CancelledError:
            raise ClientError("the client was closed meanwhile; make another one") from None
        except KeyboardInterrupt:
            # Cancelled, so that it does not take a message and lose it.
            self._loop.call_soon_threadsafe(_give_up, work)
            raise
        except ClientError:
            work.close()  # if it was not started
            raise

    def _check_place(self) -> None:
        if os.getpid() != self._process:
            raise ClientError(
                "this client was made before the process was forked, and its connections are the "
                "parent's; make a client in each process"
            )
        if threading.get_ident() == self._thread.ident:
            raise ClientError(
                "a function that the client itself calls, such as the one that gives its token, "
                "cannot wait for it; use another client there"
            )

    def enter(self, manager: AbstractAsyncContextManager[Result]) -> Result:
        """Enter an asynchronous context; returns what it gives, raises what it raises."""
        return self.wait(_enter(manager))

    def leave(
        self, manager: AbstractAsyncContextManager[Any], error: BaseException | None = None
    ) -> bool:
        """Leave an asynchronous context, with the error of its block; whether it is suppressed."""
        return bool(self.wait(_leave(manager, error)))

    @contextmanager
    def entered(self, manager: AbstractAsyncContextManager[Result]) -> Iterator[Result]:
        """An asynchronous context as one of `with`."""
        entered = self.enter(manager)
        try:
            yield entered
        except BaseException as error:
            if not self.leave(manager, error):
                raise
        else:
            self.leave(manager)

    def each(self, items: AsyncIterator[Result]) -> "Each[Result]":
        """An asynchronous iterator as one of `for`."""
        return Each(self, items)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Run `last`, cancel all other work, stop the loop and its thread; idempotent. What `last`
        raises is raised when all is closed.

        Does nothing in a forked process: loop and connections belong to the parent.
        """
        if os.getpid() != self._process:
            return
        self._check_place()
        with self._ending:
            if self._ends:
                return
            self._ends = True
        try:
            asyncio.run_coroutine_threadsafe(_end(last), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._ends


class Each(Iterator[Result], Generic[Result]):
    """The items of an asynchronous iterator, one by one.

    An object rather than a generator: a generator would end when the wait for an item is
    interrupted, and this continues with the next.
    """

    def __init__(self, bridge: Bridge, items: AsyncIterator[Result]) -> None:
        self._bridge = bridge
        self._items = items

    def next(self, timeout_s: float | None = None) -> Result:
        """The next item; raises StopIteration after the last, TimeoutError when none comes within
        `timeout_s` seconds (None: as long as it takes)."""
        try:
            return self._bridge.wait(_next(self._items, timeout_s))
        except StopAsyncIteration:
            raise StopIteration from None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Result:
        return self.next()


def _give_up(work: Coroutine[Any, Any, Any]) -> None:
    """Cancel work by its coroutine: an interrupt may come before there is a future."""
    tasks = [task for task in asyncio.all_tasks() if task.get_coro() is work]
    for task in tasks:
        task.cancel()
    if not tasks:
        work.close()


async def _enter(manager: AbstractAsyncContextManager[Result]) -> Result:
    return await manager.__aenter__()


async def _leave(
    manager: AbstractAsyncContextManager[Any], error: BaseException | None
) -> bool | None:
    kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
    return await manager.__aexit__(kind, error, traceback)


async def _next(items: AsyncIterator[Result], timeout_s: float | None) -> Result:
    async with asyncio.timeout(timeout_s):
        return await anext(items)


async def _end(last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
    try:
        if last is not None:
            await last()
    finally:
        # Threads that wait for them get a CancelledError.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


Original = TypeVar("Original")
Awaited = TypeVar("Awaited", covariant=True)
Context = TypeVar("Context", bound=AbstractAsyncContextManager[Any], covariant=True)
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

    def _repr_html_(self) -> str | None:
        """What notebooks show: the same as of the wrapped object, if it has something."""
        shown = getattr(self.awaited, "_repr_html_", None)
        return None if shown is None else str(shown())


class SyncContext(SyncWrapper[Context]):
    """The same for an object with a context (`with`), which is entered and left on the loop."""

    def __enter__(self) -> Self:
        self._bridge.enter(self.awaited)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        self._bridge.leave(self.awaited, error)


def waited(
    method: Callable[Concatenate[Original, Given], Coroutine[Any, Any, Found]],
) -> Callable[Concatenate[SyncWrapper[Original], Given], Found]:
    """A coroutine method, as one that blocks until it is done."""

    def call(self: SyncWrapper[Original], /, *args: Given.args, **more: Given.kwargs) -> Found:
        return self._bridge.wait(method(self.awaited, *args, **more))

    return described(call, method)


def handed(
    method: Callable[Concatenate[Original, Given], Found],
) -> Callable[Concatenate[SyncWrapper[Original], Given], Found]:
    """A plain method, called directly."""

    def call(self: SyncWrapper[Original], /, *args: Given.args, **more: Given.kwargs) -> Found:
        return method(self.awaited, *args, **more)

    return described(call, method)


def mirrored(
    method: Callable[Concatenate[Original, Given], Found], kind: Callable[[Bridge, Found], Made]
) -> Callable[Concatenate[SyncWrapper[Original], Given], Made]:
    """A method that returns an object of `sow.client`, wrapped as a `kind`."""

    def call(self: SyncWrapper[Original], /, *args: Given.args, **more: Given.kwargs) -> Made:
        async def found() -> Found:
            return method(self.awaited, *args, **more)  # on the loop, where it is used

        return kind(self._bridge, self._bridge.wait(found()))

    return described(call, method, kind)


def mirrored_coroutine(
    method: Callable[Concatenate[Original, Given], Coroutine[Any, Any, Found]],
    kind: Callable[[Bridge, Found], Made],
) -> Callable[Concatenate[SyncWrapper[Original], Given], Made]:
    """The same for a coroutine method."""

    def call(self: SyncWrapper[Original], /, *args: Given.args, **more: Given.kwargs) -> Made:
        return kind(self._bridge, self._bridge.wait(method(self.awaited, *args, **more)))

    return described(call, method, kind)


Method = TypeVar("Method", bound=Callable[..., Any])


def described(call: Method, method: Callable[..., Any], kind: object = None) -> Method:
    """`call` with the name, parameters and docstring of the original, which returns a `kind`
    here."""
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


class Response(NamedTuple):
    """An HTTP response: its `status`, `headers` and whole `body`."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http(SyncWrapper[AsyncHttp]):
    """The HTTP API of one server, as `sow.client.http.Http`.

    Every method raises Unreachable and Disconnected, and the errors that the server reports.
    """

    @property
    def url(self) -> str:
        """The address of the server."""
        return self.awaited.url

    @contextmanager
    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, object] | None = None,
        *,
        accept: str = JSON,
        body: bytes | None = None,
        content_type: str | None = None,
        any_status: bool = False,
        prefer: str | None = None,
        idempotency_key: str | None = None,
    ) -> Iterator[Response]:
        """A response with its whole body (`with`); a status of 400 or more raises an error, unless
        `any_status` is set.

        `path` is percent-encoded; `params` are the parameters, without those that are None;
        `accept` and `content_type` are media types, `body` is sent as it is, `prefer` (RFC 7240)
        and `idempotency_key` (docs/http.md, "Exactly once") are the headers of these names.
        """
        opening = self.awaited.request(
            method,
            path,
            params,
            accept=accept,
            body=body,
            content_type=content_type,
            any_status=any_status,
            prefer=prefer,
            idempotency_key=idempotency_key,
        )
        with self._bridge.entered(opening) as response:
            read = self._bridge.wait(response.read())
            yield Response(response.status, response.headers, read)

    json = waited(AsyncHttp.json)
    table = waited(AsyncHttp.table)
    columns = waited(AsyncHttp.columns)

    def rows(self, topic: str, params: Mapping[str, object]) -> "Rows":
        """A query answer, read as it arrives (`with` or `for`).

        `params` are parameters of `GET /v1/topics/{topic}/records`.
        """
        return Rows(self._bridge, self.awaited.rows(topic, params))


class TopicAnswer(SyncWrapper[AsyncAnswer]):
    """A whole query answer as of one moment, like `sow.client.Answer`."""

    @property
    def records(self) -> list[Any]:
        """Decoded bodies: a dict for JSON, str or bytes for other types."""
        return self.awaited.records

    @property
    def matches(self) -> int:
        """The number of records that match, before paging."""
        return self.awaited.matches

    @property
    def index(self) -> str:
        """The access path of the query."""
        return self.awaited.index

    @property
    def bookmark(self) -> str:
        """The moment of the answer."""
        return self.awaited.bookmark

    @property
    def advice(self) -> tuple[str, ...]:
        """Sentences on fields that no record has."""
        return self.awaited.advice

    @property
    def tables(self) -> AnswerTable:
        """Converts the records to tables."""
        return self.awaited.tables

    preview = handed(AsyncAnswer.preview)

    def to_arrow(self) -> Any:
        """The records as a pyarrow Table, of the topic's types (docs/clients.md, Tables)."""
        if not self.tables.is_settled:
            with contextlib.suppress(ClientError):  # the client may be closed
                self._bridge.wait(self.tables.settle())
        return self.tables.table(self.records)

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; raises ClientError without pandas."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """The same as a polars DataFrame; raises ClientError without polars."""
        return to_polars(self.to_arrow())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicAnswer) and self.awaited == other.awaited

    __hash__ = None  # type: ignore[assignment]  # it holds a list

    def __repr__(self) -> str:
        return repr(self.awaited)


class Rows:
    """A query answer while it arrives; iterate it once, for the rows as JSON texts (bytes).

    The request is sent when it is first read or entered, and raises BadFilter, UnknownTopic,
    ClientError then. Its connection is released at its end or that of `with`.
    """

    def __init__(self, bridge: Bridge, opening: AbstractAsyncContextManager[AsyncRows]) -> None:
        self._bridge = bridge
        self._opening = opening
        self._rows: AsyncRows | None = None
        self._open = False

    def _opened(self) -> AsyncRows:
        if self._rows is None:
            self._rows = self._bridge.enter(self._opening)
            self._open = True
        return self._rows

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._bridge.leave(self._opening)

    @property
    def matches(self) -> int:
        """The number of records that match, before paging."""
        return self._opened().matches

    @property
    def index(self) -> str:
        """The access path of the query."""
        return self._opened().index

    @property
    def bookmark(self) -> str:
        """The moment of the answer."""
        return self._opened().bookmark

    @property
    def advice(self) -> tuple[str, ...]:
        """Sentences on fields that no record has."""
        return self._opened().advice

    def chunks(self) -> Iterator[list[bytes]]:
        """The rows in lists, as they arrive from the network; raises Disconnected when the
        connection breaks before the last."""
        try:
            yield from self._bridge.each(self._opened().chunks())
        finally:
            self._close()

    def __iter__(self) -> Iterator[bytes]:
        for rows in self.chunks():
            yield from rows

    def all(self) -> TopicAnswer:
        """All remaining rows, decoded; raises Disconnected."""
        try:
            return TopicAnswer(self._bridge, self._bridge.wait(self._opened().all()))
        finally:
            self._close()

    def _repr_html_(self) -> str | None:
        """What notebooks show, once it is opened: what is known before the rows."""
        return None if self._rows is None else self._rows._repr_html_()

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()
