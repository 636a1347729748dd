"""Long filters: compiled in a thread before somebody asks for them, so that nobody else waits.

Compiling may take tens of milliseconds. What was compiled, or the mistake that was found, is kept
by the engine's filters, where whoever asks next finds it at hand. So is what somebody may see or
write (`sow.security.row_level_security`), which his roles may say in very many words, by itself and
with his filter. Nothing here raises for a bad filter.
"""

import asyncio
from collections.abc import Iterable, Sequence

from sow.core.security_definitions import OF_TOPICS
from sow.engine.filter_cache import FilterCache
from sow.errors import ClientError
from sow.expressions import Filter
from sow.security.authorization import Demand, Permissions
from sow.security.row_level_security import RowPolicy

Guarded = tuple[RowPolicy, str | None]
"""What somebody may see or write, and the filter by which he asks for it, if by one."""

LONG_FILTER_CHARS = 4 * 1024
"""A filter so long is compiled beside the loop: it may take 50 milliseconds."""


def long_among(filters: FilterCache, texts: Iterable[str | None]) -> list[str]:
    """Those of `texts` that take long to compile and are not at hand, each once."""
    return [
        text
        for text in dict.fromkeys(texts)
        if text is not None and len(text) > LONG_FILTER_CHARS and not filters.has(text)
    ]


def guarded_by(rights: Permissions, demand: Demand, topic: str | None) -> RowPolicy | None:
    """What of a topic who has these rights may see or write, by what is demanded of him; None: all,
    or it is not about that."""
    if rights.is_open or topic is None or demand not in OF_TOPICS:
        return None
    return rights.guard(topic) if demand == "read" else rights.write_guard(topic, demand)


def long_guarded(
    filters: FilterCache, requested: Iterable[tuple[RowPolicy | None, str | None]]
) -> Sequence[Guarded]:
    """Those of `asked` of which what is seen takes long to compile and is not at hand."""
    return [
        (guard, text)
        for guard, text in requested
        if guard is not None
        and len(guard.text) > LONG_FILTER_CHARS
        and not guard.is_ready(_filter(filters, text))
    ]


def _filter(filters: FilterCache, text: str | None) -> Filter | None:
    """The filter of a text; None for none, and for a mistake, which is told to who asks."""
    try:
        return None if text is None else filters.get(text)
    except ClientError:
        return None


async def compile_beside(
    filters: FilterCache, texts: Iterable[str], guarded: Iterable[Guarded] = ()
) -> None:
    """Compile `texts` in a thread, one after the other, then what is `guarded`, and have them at
    hand."""
    for text in texts:
        filters.keep(text, await asyncio.to_thread(filters.compiled, text))
    for guard, own in guarded:
        await asyncio.to_thread(guard.condition, _filter(filters, own))
