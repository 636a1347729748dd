"""A page with Perspective's viewer over the topics of a server; Ctrl-C ends it.

pip install 'sow[arrow]' perspective-python
python integrations/perspective/serve.py        (then http://127.0.0.1:8070)
"""

import argparse
import asyncio
from pathlib import Path

from aiohttp import WSMsgType, web
from sow_tables import SowTables

from sow.client.sync import Client


class Viewers:
    """The viewers of a page, each with views of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def page(self, _request: web.Request) -> web.FileResponse:
        """The page, which has Perspective's viewer from where npm's packages are."""
        return web.FileResponse(Path(__file__).with_name("viewer.html"))

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        """One viewer's questions, in their order; queries wait in a thread."""
        import perspective

        virtual = perspective.VirtualServer(SowTables(self._client))
        answers = web.WebSocketResponse(max_msg_size=0)
        await answers.prepare(request)
        async for message in answers:
            if message.type == WSMsgType.BINARY:
                answer = await asyncio.to_thread(virtual.handle_request, message.data)
                await answers.send_bytes(answer)
        return answers


def main() -> None:
    """Serve the page until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the server of the topics")
    parser.add_argument("--token", help="the token of a user who may read them")
    parser.add_argument("--port", type=int, default=8070)
    given = parser.parse_args()
    with Client(given.url, name="perspective", token=given.token) as client:
        viewers = Viewers(client)
        app = web.Application()
        app.add_routes([web.get("/", viewers.page), web.get("/websocket", viewers.socket)])
        web.run_app(app, host="127.0.0.1", port=given.port)


if __name__ == "__main__":
    main()
