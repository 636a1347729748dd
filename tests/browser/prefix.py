"""A reverse proxy that has put a server below a path: `/desk/` in front of `/`."""

import asyncio

import aiohttp
from aiohttp import web

SENT_ON = ("Content-Type", "ETag", "Content-Security-Policy", "SOW-Matches")


class Prefixed:
    """A proxy of a `Running` server, on its loop."""

    def __init__(self, running, prefix="/desk"):
        self._running = running
        self._prefix = prefix
        self.url = running.wait(self._start()) + prefix + "/"

    async def _start(self):
        self._http = aiohttp.ClientSession()
        app = web.Application()
        app.router.add_route("*", self._prefix + "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def close(self):
        self._running.wait(self._stop())

    async def _stop(self):
        await self._runner.cleanup()  # what a page has requested before it was closed ends first
        await self._http.close()

    async def _handle(self, request):
        url = self._running.url + request.raw_path.removeprefix(self._prefix)
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._socket(request, url)
        headers = {name: request.headers[name] for name in ("Accept",) if name in request.headers}
        body = await request.read()
        async with self._http.request(request.method, url, headers=headers, data=body) as answer:
            kept = {name: answer.headers[name] for name in SENT_ON if name in answer.headers}
            return web.Response(status=answer.status, body=await answer.read(), headers=kept)

    async def _socket(self, request, url):
        near = web.WebSocketResponse(max_msg_size=0)
        await near.prepare(request)
        async with self._http.ws_connect(url, max_msg_size=0) as far:
            await asyncio.wait(
                [asyncio.create_task(_hand_on(*ends)) for ends in ((near, far), (far, near))],
                return_when=asyncio.FIRST_COMPLETED,
            )
            await near.close()
        return near


async def _hand_on(source, sink):
    async for message in source:
        if message.type is aiohttp.WSMsgType.TEXT:
            await sink.send_str(message.data)
        else:
            await sink.send_bytes(message.data)
