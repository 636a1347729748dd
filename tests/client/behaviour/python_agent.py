"""The steps of the tables, done with the Python client."""

import asyncio
import json
import threading
from typing import Any

from sow.client import Client, LiveWindow, Retry
from sow.errors import SowError
from tests.edge.serving import WAIT_S


def by_content(record: Any) -> str:
    return json.dumps(record, sort_keys=True)


class PythonAgent:
    """One client with all that it follows, on a loop of its own."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._open: dict[str, Any] = {}
        self._changes: dict[str, Any] = {}
        self._call(self._begin(url))

    def from_scratch(self) -> None:
        """From now on it is another client."""
        self._call(self._end())
        self._open.clear()
        self._changes.clear()
        self._call(self._begin(self._url))

    async def _begin(self, url: str) -> None:
        self._url = url
        self._back = asyncio.Event()
        self._back.set()
        retry = Retry(sleep=self._sleep, chance=lambda: 0.0)
        self._client = Client(url, name="agent", retry=retry)

    async def _sleep(self, _seconds: float) -> None:
        """No time passes; who is away stays so until it is said otherwise."""
        await asyncio.sleep(0)
        await self._back.wait()

    def _call(self, work: Any) -> Any:
        waited = asyncio.wait_for(work, WAIT_S)
        return asyncio.run_coroutine_threadsafe(waited, self._loop).result()

    def act(self, verb: str, words: list[Any]) -> Any:
        return self._call(self._act(verb, words))

    async def _act(self, verb: str, words: list[Any]) -> Any:
        try:
            return await getattr(self, f"do_{verb}")(*words)
        except TypeError as error:
            # A name that no method has is refused by Python, before anything is sent.
            if "unexpected keyword argument" not in str(error):
                raise
            return {"refused": {}}
        except SowError as error:
            names = ("reason", "index", "position")
            return {"refused": {name: getattr(error, name, None) for name in names}}

    def close(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._back.set()
        for name in list(self._open):
            await self.do_close(name)
        await self._client.close()

    # The steps.

    async def do_query(self, topic, question):
        if topic in ("blobs", "notes"):
            return await self._bodies(topic)
        return (await self._client.query(topic, **question)).records

    async def _bodies(self, topic):
        """What is no JSON travels as it is only to those who follow it."""
        async with self._client.sow_and_subscribe(topic) as messages:
            group = (message async for message in messages)
            found = []
            while (message := await anext(group)).c != "group_end":
                if message.c == "sow":
                    document = message.document()
                    found.append([*document] if isinstance(document, bytes) else document)
            return found

    async def do_matches(self, topic, question):
        return (await self._client.query(topic, **question)).matches

    async def do_bookmark(self, _name, topic):
        return (await self._client.query(topic)).bookmark

    async def do_reached(self, _name, subscription):
        return self._open[subscription].bookmark

    async def do_publish(self, topic, messages):
        await self._client.publish(topic, messages)
        return "done"

    async def do_delta(self, topic, message):
        await self._client.delta_publish(topic, message)
        return "done"

    async def do_many(self, topic, count):
        messages = [{"id": number} for number in range(abs(count) if count > 0 else 2000)]
        if count < 0:
            messages[1500] = {"px": 1}
        return await self.do_publish(topic, messages)

    async def do_nan(self, topic):
        return await self.do_publish(topic, [{"id": 1}, {"id": 2, "px": float("nan")}])

    async def do_bytes(self, topic, key, numbers):
        await self._client.publish(topic, bytes(numbers), key=key)
        return "done"

    async def do_delete(self, topic, which):
        return await self._client.delete(topic, **which)

    async def do_subscribe(self, name, topic, focus):
        focus = dict(focus)
        follow = self._client.sow_and_subscribe if focus.pop("snapshot", False) else None
        self._open[name] = (follow or self._client.subscribe)(topic, **focus)
        await self._open[name].open()

    async def do_next(self, name):
        async for message in self._open[name]:
            found = {"command": message.c, "exact": message.exact, "delta": message.delta}
            if message.d:
                found["record"] = message.document()
            return found | {"reason": message.reason}
        return "end"

    async def do_live(self, name, topic, focus):
        followed = self._client.live(topic, **focus)
        self._open[name] = await followed.__aenter__()
        self._changes[name] = followed.changes()

    async def do_rows(self, name):
        view = self._open[name]
        if isinstance(view, LiveWindow):
            return view.copy()
        return sorted(view.values(), key=by_content)

    async def do_until(self, name, expected):
        """Those that `change` gives are not taken."""
        view = self._open[name]
        moved = getattr(view, "_live", view)._moved
        while (rows := await self.do_rows(name)) != expected:
            moved.clear()
            await moved.wait()
        return rows

    async def do_until_same(self, name, expected):
        """In whatever order where there is none."""
        window = isinstance(self._open[name], LiveWindow)
        await self.do_until(name, expected if window else sorted(expected, key=by_content))
        return True

    async def do_change(self, name):
        async for change in self._changes[name]:
            return {"old": change.old, "new": change.new}
        return "end"

    async def do_gaps(self, name):
        followed = self._open[name]
        return getattr(followed, "subscription", followed).gaps

    async def do_away(self):
        self._back.clear()

    async def do_back(self):
        self._back.set()

    async def do_close(self, name):
        followed = self._open[name]
        if hasattr(followed, "subscription"):
            await followed.__aexit__(None, None, None)
        else:
            await followed.close()
