"""A live window without asyncio; see `sow.client.live_window`."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

from sow.client.live_window import LiveWindow as AsyncLiveWindow
from sow.client.sync.live_view import LiveView
from sow.client.sync.sync_wrapper import handed


class LiveWindow(LiveView[AsyncLiveWindow], Sequence[Any]):
    """Records in the requested order, kept current by the client's thread (`with`).

    An iteration is over the records of one moment. Entering the window raises the errors of the
    subscription.
    """

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...

    def __getitem__(self, at: int | slice) -> Any:
        return self.awaited[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.awaited)

    @property
    def keys(self) -> list[str]:
        """The SowKeys (decimal text) of the records, in order."""
        return self.awaited.keys

    copy = handed(AsyncLiveWindow.copy)
