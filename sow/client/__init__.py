"""The Python client: publish, query, delete and subscribe to topics of a server, with asyncio.

One `Client` connects to one server. Errors are those of the server (`sow.errors`), with their
position or index. Subscriptions reconnect and resume automatically. `sow.client.sync` is the same
for programs without asyncio.
"""

from sow.client.client import Client
from sow.client.consuming import LeasedMessage, MessageConsumer
from sow.client.errors import ClosedByServer, Disconnected, SequenceLost, Unreachable
from sow.client.http import Answer, Rows
from sow.client.idempotent import IdempotentPublisher
from sow.client.live_view import Change, Live, LiveWindow
from sow.client.publisher import Publisher
from sow.client.socket import Message, Retry
from sow.client.subscription import Subscription

__all__ = [
    "Answer",
    "Change",
    "Client",
    "ClosedByServer",
    "Disconnected",
    "IdempotentPublisher",
    "LeasedMessage",
    "Live",
    "LiveWindow",
    "Message",
    "MessageConsumer",
    "Publisher",
    "Retry",
    "Rows",
    "SequenceLost",
    "Subscription",
    "Unreachable",
]
