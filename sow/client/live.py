"""A live view as a mapping: the records of a topic by SowKey, current while it is open."""

from collections.abc import Iterator, Mapping

from sow.client.live_view import Document, LiveView


class Live(LiveView, Mapping[str, Document]):
    """Records by SowKey (decimal text), current while the view is open (`async with`).

    A SowKey is a record's within its topic. Over a pattern records are called by both:
    ``/desk/1:4711``. Entering it raises what the subscription is refused with. Documents are those
    of `Message.document`; they are the view's own and not to be changed.
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
        """The records as they stand, in a dictionary that does not change."""
        return self._shown()
