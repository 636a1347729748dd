"""The client without asyncio: the same methods, each of which returns when it is done.

One event loop in a thread does the work; what is called here waits for it
(`sow.client.sync.bridge`). There is no second implementation: every method hands over to that of
the same name in `sow.client`, where its arguments and what it raises are described in full, and a
test insists that none is missing. Classes are called as there, since they are the same things.
"""

from sow.client.sync.client import Client
from sow.client.sync.http import Http, Response, Rows
from sow.client.sync.live import Live
from sow.client.sync.live_window import LiveWindow
from sow.client.sync.publisher import Publisher
from sow.client.sync.subscription import Subscription

__all__ = ["Client", "Http", "Live", "LiveWindow", "Publisher", "Response", "Rows", "Subscription"]
