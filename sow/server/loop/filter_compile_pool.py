"""Compiles long filters in a thread before they are used, so that the loop is not blocked.

Compiling may take tens of milliseconds. The result, or the error, is kept in the engine's filter
cache, where the request that uses it finds it. The same holds for row policies
(`sow.security.row_level_security`), alone and combined with a filter: the conditions of roles can
be very long. Nothing here raises for a bad filter.
"""

import asyncio
from collections.abc import Iterable, Sequence

from sow.core.security_definitions import OF_TOPICS
from sow.engine.queries import FilterCache
from sow.errors import ClientError
from sow.expressions import Filter, access_of
from sow.security.authorization import Demand, Permissions
from sow.security.row_level_security import RowPolicy

Guarded = tuple[RowPolicy, str | None]
"""A row policy, and the filter of the request that it is combined with, if any."""

LONG_FILTER_CHARS = 4 * 1024
"""A filter longer than this is compiled in a thread: it may take 50 milliseconds."""


def long_among(filters: FilterCache, texts: Iterable[str | None]) -> list[str]:
    """Those of `texts` that take long to compile and are not cached, each once."""
    return [
        text
        for text in dict.fromkeys(texts)
        if text is not None and len(text) > LONG_FILTER_CHARS and not filters.has(text)
    ]


def guarded_by(rights: Permissions, demand: Demand, topic: str | None) -> RowPolicy | None:
    """The row policy of these rights on a topic for this demand; None: all rows, or the demand is
    not about rows."""
    if rights.is_open or topic is None or demand not in OF_TOPICS:
        return None
    return rights.guard(topic) if demand == "read" else rights.write_guard(topic, demand)


def long_guarded(
    filters: FilterCache, requested: Iterable[tuple[RowPolicy | None, str | None]]
) -> Sequence[Guarded]:
    """Those of `requested` whose combined condition takes long to compile and is not cached."""
    return [
        (guard, text)
        for guard, text in requested
        if guard is not None
        and len(guard.text) > LONG_FILTER_CHARS
        and not guard.is_ready(_filter(filters, text))
    ]


def _filter(filters: FilterCache, text: str | None) -> Filter | None:
    """The filter of a text; None for no text, and for an invalid one, which the request itself
    reports."""
    try:
        return None if text is None else filters.get(text)
    except ClientError:
        return None


async def compile_beside(
    filters: FilterCache, texts: Iterable[str], guarded: Iterable[Guarded] = ()
) -> None:
    """Compile `texts` in a thread, one after the other, then the conditions of `guarded`, and cache
    them."""
    for text in texts:
        filters.keep(text, await asyncio.to_thread(filters.compiled, text))
    for guard, own in guarded:
        await asyncio.to_thread(_make_ready, guard, _filter(filters, own))


def _make_ready(guard: RowPolicy, own: Filter | None) -> None:
    """Combine a row policy with a filter, and find what it is looked up by: of a thousand
    conditions that takes long, too."""
    condition = guard.condition(own)
    if condition is not None:
        access_of(condition)
