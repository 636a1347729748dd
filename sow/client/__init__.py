"""The Python client: publish, query, delete and follow topics of a server, with asyncio.

One `Client` speaks to one server. What goes wrong is raised as the same errors the server uses
(`sow.errors`), with their position or index. Subscriptions reconnect and resume by themselves.
`sow.client.sync` is the same for programs without asyncio.
"""

from sow.client.client import Client
from sow.client.errors import ClosedByServer, Disconnected, Unreachable
from sow.client.http import Answer, Rows
from sow.client.live import Live
from sow.client.live_view import Change
from sow.client.live_window import LiveWindow
from sow.client.messages import Message
from sow.client.publisher import Publisher
from sow.client.retry import Retry
from sow.client.subscription import Subscription

__all__ = [
    "Answer",
    "Change",
    "Client",
    "ClosedByServer",
    "Disconnected",
    "Live",
    "LiveWindow",
    "Message",
    "Publisher",
    "Retry",
    "Rows",
    "Subscription",
    "Unreachable",
]
