"""The plain decoder: parses each message whole, then looks the paths up in the document.

For message types with bodies that are stored (almost) unchanged and are quick enough to parse. JSON
has a faster decoder of its own.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sow.core.paths import Path
from sow.errors import BadMessage, LargeMessage
from sow.messages.base import Column
from sow.messages.document_columns import DocumentColumns

VALUES_MAX = 100_000
"""Values of one message that Python looks at one by one, in one step: a microsecond or two each.
As many elements may an XML message have."""
DEAR_FACTOR = 10
"""The weight of a value that takes some ten times as long as others, such as a decimal."""
PLAIN_KINDS = frozenset({str, int, float, bool, type(None)})


def too_many_values() -> LargeMessage:
    """The error about a message of more values than may be looked at in one step."""
    return LargeMessage(
        f"it has more than {VALUES_MAX:,} values, where lists of plain ones do not count; send "
        "several messages"
    )


def check_values(
    document: Any, size_bytes: int, every: bool = False, dear: type | None = None
) -> None:
    """Raise LargeMessage if a decoded message of `size_bytes` has too many values.

    The values of a list of plain ones do not count, since they are not processed one by one, unless
    `every` is set. Those of the type `dear` count `DEAR_FACTOR` times.
    """
    if size_bytes <= VALUES_MAX:
        return  # each takes a byte at least, and a dear one more than ten
    waiting, count = [document], 0
    while waiting:
        values = waiting.pop()
        if isinstance(values, dict):
            values = values.values()
        elif not every and PLAIN_KINDS.issuperset(map(type, values)):
            continue
        count += len(values)
        if dear is not None:
            count += (DEAR_FACTOR - 1) * list(map(type, values)).count(dear)
        if count > VALUES_MAX:
            raise too_many_values()
        waiting += [value for value in values if isinstance(value, dict | list)]


class DocumentDecoder:
    """Decodes by a type's `parse`; `stored` turns an accepted body into what is to be kept.

    `arriving` is the same as `parse`, of bodies that come from outside: it refuses what takes too
    long. What an earlier release has taken stays readable.
    """

    def __init__(
        self,
        paths: tuple[Path, ...],
        parse: Callable[[bytes], object],
        stored: Callable[[bytes], bytes] = bytes,
        arriving: Callable[[bytes], object] | None = None,
    ) -> None:
        self._values = DocumentColumns(paths)
        self._parse = parse
        self._stored = stored
        self._arriving = arriving or parse

    def columns(self, bodies: Sequence[bytes]) -> list[Column]:
        """One column per path of bodies that `read` has accepted."""
        return self._values(list(map(self._parse, bodies)))

    def read(self, bodies: Sequence[bytes]) -> tuple[list[bytes], list[Column]]:
        """The bodies as they are to be stored, and their columns; raises BadMessage."""
        documents = [self._parsed(body, index) for index, body in enumerate(bodies)]
        return list(map(self._stored, bodies)), self._values(documents)

    def _parsed(self, body: bytes, index: int) -> object:
        try:
            return self._arriving(body)
        except BadMessage as error:
            raise type(error)(f"message {index}: {error.detail}", index=index) from None
