"""A live view as a mapping, without asyncio; see `sow.client.live`."""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any

from sow.client.live import Live as AsyncLive
from sow.client.sync.live_view import LiveView
from sow.client.sync.sync_wrapper import handed


class Live(LiveView[AsyncLive], Mapping[str, Any]):
    """Records by SowKey (decimal text), kept current by the client's thread (`with`).

    Over a pattern of topics the key is the topic's name and the SowKey: ``/desk/1:4711``. Whoever
    goes through the records goes through those of one moment. Entering the view raises what the
    subscription is refused with.
    """

    def __getitem__(self, key: str) -> Any:
        return self.awaited[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.awaited)

    def items(self) -> ItemsView[str, Any]:
        """The records of this moment with their SowKeys."""
        return self.copy().items()

    def values(self) -> ValuesView[Any]:
        """The records of this moment."""
        return self.copy().values()

    copy = handed(AsyncLive.copy)
