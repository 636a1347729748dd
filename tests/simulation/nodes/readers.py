"""Clients of a run, by the product's own client: who follows one node, and who moves between them.

A watcher follows one node by subscriptions of many kinds and holds what it is sent; when nothing is
on its way that is what the primary answers to the same query. A mover has several addresses, and is
sent each number that was published once, in order, whatever is lost and wherever it goes on.
"""

import asyncio
import json

from sow.client import Client, Retry
from sow.client.errors import ClosedByServer, is_away
from sow.errors import SowError
from tests.simulation.nodes.virtual_loop import Process

FORMS = {
    "plain": ("orders", {"oof": True}),
    "deltas": ("orders", {"oof": True, "delta": True, "filter": "/n % 2 = 0"}),
    "paced": ("orders", {"oof": True, "conflation": "300ms"}),
    "window": ("orders", {"order_by": "/n DESC", "top_n": 3, "live": True}),
    "groups": ("orders", {"projection": ["/desk", "MAX(/n) AS /n"], "grouping": ["/desk"],
                          "oof": True}),
    "conflated": ("orders-C", {"oof": True}),
    "filtered copy": ("orders-F", {"oof": True}),
    "view": ("sums", {"oof": True, "delta": True}),
    "view that changes": ("large", {"oof": True}),
    "view of copies": ("slow", {"oof": True}),
    "copy of a view": ("sums-C", {"oof": True}),
    "pattern": ("^/desk/.$", {"oof": True}),
    "pattern of copies": ("^/desk/.-C$", {"oof": True}),
    "expiring": ("expiring", {"oof": True}),
    "batches": ("batches", {"oof": True}),
}  # fmt: skip
EXACT = {
    "from the beginning": lambda client: client.subscribe("orders", bookmark="0"),
    "from now on": lambda client: client.subscribe("orders"),
    "filtered": lambda client: client.subscribe("orders", filter="/desk < 2"),
    "with a snapshot": lambda client: client.sow_and_subscribe("orders"),
    "of a pattern": lambda client: client.subscribe("^(orders|/desk/.)$", bookmark="0"),
}
WANTED = {
    "from the beginning": lambda topic, _row: topic == "orders",
    "from now on": lambda topic, _row: topic == "orders",
    "filtered": lambda topic, row: topic == "orders" and row["desk"] < 2,
    "with a snapshot": lambda topic, _row: topic == "orders",
    "of a pattern": lambda _topic, _row: True,
}
"""Which of the numbered messages, those of orders and desks, each is sent."""
LAZY_S = 3.0


def retry(chance):
    return Retry(first_s=0.05, longest_s=0.5, give_up_s=600.0, chance=chance.random)


async def opened(made):
    """A subscription, once a server takes it: the first time nobody tries again."""
    while True:
        try:
            subscription = made()
            await subscription.open()
            return subscription
        except SowError as error:
            if not is_away(error):
                raise
            await asyncio.sleep(0.1)


class Reader:
    """A client process that reads one subscription after the other has ended."""

    def __init__(self, loop, chance, name, urls):
        self.chance, self.name, self.urls = chance, name, urls
        self.process = Process(loop, name)
        self.is_lazy = False
        self.subscription = None
        self.tasks = []

    def failure(self):
        """What it has failed with, if anything."""
        for task in self.tasks:
            if task.done():
                task.result()

    async def laze(self):
        """Read nothing for a while, now and then."""
        if self.is_lazy and self.chance.random() < 0.2:
            await asyncio.sleep(LAZY_S * self.chance.random())


class Watcher(Reader):
    """Holds what one node sends to a subscription of a form."""

    def __init__(self, loop, chance, node, form):
        super().__init__(loop, chance, f"watcher of {node.name}: {form}", [node.url])
        self.form, self.held, self.seqs = form, {}, []
        self.topic, self.options = FORMS[form]
        self.tasks = [self.process.run(self._run())]

    async def _run(self):
        while True:
            async with Client(self.urls[0], name=self.name, retry=retry(self.chance)) as client:
                self.held.clear()
                subscription = client.sow_and_subscribe(self.topic, **self.options)
                try:
                    async for line in subscription:
                        await self.laze()
                        self.take(line)
                except SowError as error:
                    if not (isinstance(error, ClosedByServer) or is_away(error)):
                        raise
                    await asyncio.sleep(0.1)

    def take(self, line):
        if line.c in ("gap", "group_begin"):
            self.held.clear()
        elif line.c in ("sow", "p"):
            row = json.loads(line.body)
            if line.delta:
                assert (line.t, line.k) in self.held, f"{self.name}: a delta of nothing"
                row = {**self.held[line.t, line.k], **row}
            self.held[line.t, line.k] = row
        elif line.c == "oof":
            assert self.held.pop((line.t, line.k), None) is not None, f"{self.name}: {line}"

    @property
    def topics(self):
        """Those that it follows."""
        desks = ("/desk/1", "/desk/2")
        copies = tuple(f"{name}-C" for name in desks)
        return {"^/desk/.$": desks, "^/desk/.-C$": copies}.get(self.topic, (self.topic,))

    @property
    def asked(self):
        """The parameters of the same query."""
        names = ("filter", "order_by", "top_n", "projection", "grouping")
        return {name: self.options[name] for name in names if name in self.options}


class Mover(Reader):
    """Follows all nodes that it knows, one at a time, and hears of each number once."""

    def __init__(self, loop, chance, name, urls, form):
        super().__init__(loop, chance, name, urls)
        self.form, self.numbers, self.parts = form, [], []
        self.tasks = [self.process.run(self._run())]

    async def _run(self):
        async with Client(self.urls, name=self.name, retry=retry(self.chance)) as client:
            self.subscription = await opened(lambda: EXACT[self.form](client))
            async for line in self.subscription:
                await self.laze()
                if line.c == "gap":
                    assert line.exact, f"{self.name} ({self.form}) may lack something"
                    if self.form == "with a snapshot":
                        self.numbers.clear()  # a new one follows
                elif line.c == "p":
                    self.numbers.append(json.loads(line.body)["n"])

    def wanted(self, log):
        """What it should have had, of the rows of the log: all behind its first."""
        mine = [row["n"] for topic, row in log if WANTED[self.form](topic, row)]
        from_now = self.form in ("from now on", "filtered", "with a snapshot")
        if not self.numbers:
            return [] if from_now else mine
        return mine[mine.index(self.numbers[0]) :] if from_now and self.numbers[0] in mine else mine
