"""Long filters: compiled in a thread before somebody asks for them, so that nobody else waits.

Compiling may take tens of milliseconds. What was compiled, or the mistake that was found, is kept
by the engine's filters, where whoever asks next finds it at hand. Nothing here raises for a bad
filter.
"""

import asyncio
from collections.abc import Iterable

from sow.engine.filters import Filters

LONG_FILTER_CHARS = 4 * 1024
"""A filter so long is compiled beside the loop: it may take 50 milliseconds."""


def long_among(filters: Filters, texts: Iterable[str | None]) -> list[str]:
    """Those of `texts` that take long to compile and are not at hand, each once."""
    return [
        text
        for text in dict.fromkeys(texts)
        if text is not None and len(text) > LONG_FILTER_CHARS and not filters.has(text)
    ]


async def compile_beside(filters: Filters, texts: Iterable[str]) -> None:
    """Compile `texts` in a thread, one after the other, and have them at hand."""
    for text in texts:
        filters.keep(text, await asyncio.to_thread(filters.compiled, text))
