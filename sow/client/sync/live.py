"""A live view as a mapping, without asyncio; see `sow.client.live`."""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any

from sow.client.live import Live as AsyncLive
from sow.client.sync.live_view import LiveView
from sow.client.sync.sync_wrapper import handed


class Live(LiveView[AsyncLive], Mapping[str, Any]):
    """Records by SowKey (decimal text), kept current by the client's thread (`with`).

    For a pattern of topics the key is the topic and the SowKey: ``/desk/1:4711``. An iteration is
    over the records of one moment. Entering the view raises the errors of the subscription.
    """

    def __getitem__(self, key: str) -> Any:
        return self.awaited[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.awaited)

    def items(self) -> ItemsView[str, Any]:
        """The current records with their SowKeys."""
        return self.copy().items()

    def values(self) -> ValuesView[Any]:
        """The current records."""
        return self.copy().values()

    copy = handed(AsyncLive.copy)
