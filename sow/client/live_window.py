"""A live window: a range of an ordered topic, as a list that is kept in order.

It is a live view (`sow.client.live_view`) whose records also have positions. It shows the window as
of the end of a turn of the server: a partial turn, in which a record has left and its replacement
has not come, is never visible.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, overload

from sow.client.live_view import Document, LiveView
from sow.client.messages import Message
from sow.client.subscription import Subscription


class LiveWindow(LiveView, Sequence[Document]):
    """Records in the requested order, current while the window is open (`async with`).

    ``window[0]`` is the first one, `keys` are their SowKeys. Entering it raises the errors of the
    subscription. Documents are those of `Message.document`; they belong to the window and must not
    be changed.
    """

    def __init__(
        self,
        subscription: Subscription,
        topic: str,
        columns: Callable[[str], Awaitable[Any]],
    ) -> None:
        super().__init__(subscription, topic, columns)
        self._placed: list[str] = []
        """The SowKeys in order, within the current turn."""
        self._keys: list[str] = []
        self._documents: list[Document] = []
        """The SowKeys and the records at the end of the last turn."""

    @overload
    def __getitem__(self, at: int) -> Document: ...

    @overload
    def __getitem__(self, at: slice) -> list[Document]: ...

    def __getitem__(self, at: int | slice) -> Document:
        self._check()
        return self._documents[at]

    def __len__(self) -> int:
        self._check()
        return len(self._documents)

    @property
    def keys(self) -> list[str]:
        """The SowKeys (decimal text) of the records, in order."""
        self._check()
        return self._keys.copy()

    def copy(self) -> list[Document]:
        """The current records, in a list that does not change."""
        self._check()
        return self._documents.copy()

    def _shown(self) -> dict[str, Document]:
        self._check()
        return dict(zip(self._keys, self._documents, strict=True))

    def _on_message(self, message: Message) -> None:
        super()._on_message(message)
        if message.c == "group_begin":
            self._placed = []
        elif message.c in ("sow", "p", "oof"):
            key = message.k or ""
            if key in self._placed:
                self._placed.remove(key)
            if message.c != "oof":
                self._placed.insert(message.at or 0, key)
        elif message.c in ("group_end", "turn_end"):
            self._keys = self._placed.copy()
            self._documents = [self._records[key] for key in self._keys]
