"""`mirror`: a topic as a data frame that stays current, for notebooks and scripts.

A live view follows the topic in a thread. When the frame is read, the rows of changed records are
converted and all others copied, and the frame belongs to one moment, which its bookmark names. So a
frame can be compared with anything else of that moment: a query `as_of` it has the same records.
After a broken connection the view goes on from its bookmark, without a gap or with a new snapshot.

Here is nothing that the client does not have; it puts a client, a view and a table together.
"""

from typing import Any, Literal, Self

from sow.client.connector import Token
from sow.client.live_view import Live as AsyncLive
from sow.client.requests import Paths
from sow.client.sync.client import Client, Live
from sow.client.tables import ShownTable, to_pandas, to_polars
from sow.core.addresses import URL_DEFAULT
from sow.errors import ClientError, shown

FRAMES_OF = {"polars": to_polars, "pandas": to_pandas}
"""The libraries, and how each makes a frame of an Arrow table."""


def mirror(
    topic: str,
    *,
    url: str = URL_DEFAULT,
    frame: Literal["polars", "pandas"] = "polars",
    filter: str | None = None,
    select: Paths | None = None,
    token: Token | None = None,
    user: str | None = None,
    password: str | None = None,
    ca: str | None = None,
) -> "Mirror":
    """A topic, or its records that match `filter`, as a `frame` of polars or pandas that stays
    current, until `close` or the end of `with`.

    It is connected when it is returned. `select` are the fields to have; the others are those of a
    `Client`. Raises Unreachable, UnknownTopic, BadFilter, and ClientError for another library.
    """
    if frame not in FRAMES_OF:
        raise ClientError(f"frame is {shown(str(frame))}; write polars or pandas")
    client = Client(url, name="sow.mirror", token=token, user=user, password=password, ca=ca)
    try:
        view = client.live(topic, filter=filter, select=select)
        view.__enter__()
    except BaseException:
        client.close()
        raise
    return Mirror(client, view, frame)


class Mirror:
    """A topic as a data frame that stays current; `mirror` makes one."""

    def __init__(self, client: Client, view: Live, frame: str) -> None:
        self._client = client
        self._view = view
        self._make = FRAMES_OF[frame]
        self._table: Any = None
        self._frame: Any = None
        self._bookmark = ""

    @property
    def frame(self) -> Any:
        """The records of one moment as a DataFrame, `bookmark` being that moment; the same object
        while nothing has changed. Raises the error that ended the view."""
        table, self._bookmark = self._view._bridge.wait(_moment(self._view.awaited))
        if self._frame is None or not table.equals(self._table):
            self._table, self._frame = table, self._make(table)
        return self._frame

    @property
    def bookmark(self) -> str:
        """The moment of the last `frame`, with the name of its log; before that of the records."""
        return self._bookmark or self._view.bookmark

    @property
    def ended(self) -> str | None:
        """Why it is not current any more; None while it is, or reconnects."""
        return self._view.ended

    @property
    def view(self) -> Live:
        """The live view that it is made of, for its changes and single records."""
        return self._view

    def __len__(self) -> int:
        return len(self._view)

    def preview(self) -> ShownTable:
        """The first records, as a table of bounded texts; the reason if it has ended."""
        return self._view.preview()

    def _repr_html_(self) -> str:
        """What notebooks show: the first records, or why it has ended."""
        return self.preview().html()

    def close(self) -> None:
        """End it, and its connection; idempotent."""
        if self.ended is None:
            self._view.__exit__(None, None, None)
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


async def _moment(view: AsyncLive) -> tuple[Any, str]:
    """The records as an Arrow table, and the bookmark that they are as of."""
    table = await view.to_arrow()
    # Nothing was awaited since the table was made.
    return table, view.bookmark
