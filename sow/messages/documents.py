"""The plain decoder: parse each message whole, then look the paths up in what was parsed.

For message types whose bodies are stored exactly or almost as they come and for which parsing
is quick enough. JSON has a faster one of its own.
"""

from collections.abc import Callable, Sequence

from sow.errors import BadMessage
from sow.messages.base import Column
from sow.messages.document_columns import DocumentColumns
from sow.paths import Path


class DocumentDecoder:
    """Decodes by a type's `parse`; `stored` turns an accepted body into what is to be kept."""

    def __init__(
        self,
        paths: tuple[Path, ...],
        parse: Callable[[bytes], object],
        stored: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._values = DocumentColumns(paths)
        self._parse = parse
        self._stored = stored

    def columns(self, bodies: Sequence[bytes]) -> list[Column]:
        """One column per path of bodies that `read` has accepted."""
        return self._values(list(map(self._parse, bodies)))

    def read(self, bodies: Sequence[bytes]) -> tuple[list[bytes], list[Column]]:
        """The bodies as they are to be stored, and their columns; raises BadMessage."""
        documents = [self._parsed(body, index) for index, body in enumerate(bodies)]
        return list(map(self._stored, bodies)), self._values(documents)

    def _parsed(self, body: bytes, index: int) -> object:
        try:
            return self._parse(body)
        except BadMessage as error:
            raise BadMessage(f"message {index}: {error.detail}", index=index) from None
