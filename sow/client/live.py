"""A live view as a mapping: the records of a topic by SowKey, kept current while it is open."""

from collections.abc import Iterator, Mapping

from sow.client.live_view import Document, LiveView


class Live(LiveView, Mapping[str, Document]):
    """Records by SowKey (decimal text), current while the view is open (`async with`).

    For a pattern of topics the key is the topic and the SowKey: ``/desk/1:4711``. Entering it
    raises the errors of the subscription. Documents are those of `Message.document`; they belong to
    the view and must not be changed.
    """

    def __getitem__(self, key: str) -> Document:
        self._check()
        return self._records[key]

    def __iter__(self) -> Iterator[str]:
        self._check()
        return iter(self._records)

    def __len__(self) -> int:
        self._check()
        return len(self._records)

    def copy(self) -> dict[str, Document]:
        """The current records, in a dictionary that does not change."""
        return self._shown()
