"""Filter cache: filters of clients, compiled once and kept while they are in use.

The same texts come again and again, and compiling takes far longer than a lookup. A text that is
refused is kept with its error. A long text may be compiled in a thread beforehand (`compiled`,
`keep`), so that no other client waits for it.
"""

from collections.abc import Callable, Mapping

from sow.core.cache import ENTRY_WEIGHT, Cache
from sow.core.definitions import Limits
from sow.core.paths import Scalar
from sow.errors import ClientError
from sow.expressions import NO_TRAITS, Filter, Trait, compile_filter

FILTERS_KEPT_WEIGHT = 512 * 1024
"""Characters of the filters that are kept compiled, with `ENTRY_WEIGHT`: two thousand short ones,
of 2 KB each, or eight of the longest, of a hundred times their text."""


class FilterCache:
    """Compiled filters by their text. `limits` returns the current limits, `known` is what all
    messages have in common beside their fields."""

    def __init__(
        self, limits: Callable[[], Limits], known: Mapping[Trait, Scalar] = NO_TRAITS
    ) -> None:
        self._limits = limits
        self._known = known
        self._kept: Cache[str, Filter | ClientError] = Cache(FILTERS_KEPT_WEIGHT)

    def get(self, text: str) -> Filter:
        """The filter of `text`, compiled now if it is not cached.

        Raises BadFilter with the position of the mistake, NotAvailable for what is not built, and
        TooLarge over `Limits/FilterSize` or `FilterDepth` (docs/semantics.md, Rule 6).
        """
        found = self._kept.get(text)
        if found is None:
            found = self.compiled(text)
            self.keep(text, found)
        if isinstance(found, ClientError):
            raise found.afresh()
        return found

    def compiled(self, text: str) -> Filter | ClientError:
        """The filter of `text`, compiled now, or the error that `get` would raise.

        May run in a thread: a long one takes up to 50 milliseconds.
        """
        limits = self._limits()
        try:
            return compile_filter(
                text,
                bytes_max=limits.filter_bytes_max,
                depth_max=limits.filter_depth_max,
                known=self._known,
            )
        except ClientError as error:
            return error.afresh()

    def keep(self, text: str, found: Filter | ClientError) -> None:
        """Cache what `compiled` returned for `text`."""
        self._kept.keep(text, found, len(text) + ENTRY_WEIGHT)

    def has(self, text: str) -> bool:
        """Whether the filter or its error is cached, so that `get` returns at once."""
        return self._kept.get(text) is not None
