"""The Python client: publish, query, delete and follow topics of a server, with asyncio.

One `Client` speaks to one server. What goes wrong is raised as the same errors the server uses
(`sow.errors`), with their position or index. It does not reconnect by itself yet.
"""

from sow.client.client import Client
from sow.client.failures import Disconnected, Unreachable
from sow.client.http import Answer, Rows
from sow.client.messages import Message
from sow.client.publisher import Publisher
from sow.client.subscription import Subscription

__all__ = [
    "Answer",
    "Client",
    "Disconnected",
    "Message",
    "Publisher",
    "Rows",
    "Subscription",
    "Unreachable",
]
