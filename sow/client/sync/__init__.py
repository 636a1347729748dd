"""The client without asyncio: the same methods, which block until they are done.

An event loop in a thread does the work, and callers wait for it (`sow.client.sync.bridge`). There
is no second implementation: every method calls that of the same name in `sow.client`, which
documents its arguments and errors, and a test checks that none is missing. Classes have the same
names.
"""

from sow.client.sync.bridge import Http, Response, Rows
from sow.client.sync.client import (
    Client,
    IdempotentPublisher,
    LeasedMessage,
    Live,
    LiveWindow,
    MessageConsumer,
    Publisher,
    Subscription,
)

__all__ = [
    "Client",
    "Http",
    "IdempotentPublisher",
    "LeasedMessage",
    "Live",
    "LiveWindow",
    "MessageConsumer",
    "Publisher",
    "Response",
    "Rows",
    "Subscription",
]
