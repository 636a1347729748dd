"""What must hold after any faults: it knows answers, lines and the log of the nodes, nothing else.

lost        acknowledged, or of the feed, and not in the log
doubled     in the log twice
refused     refused as not applied, and in the log all the same
different   nodes that show another state hash, records or log at one bookmark; topics whose records
            are not the last of each key in the log
gaps        lines that a subscriber lacks, has twice or in another order than the log
"""

import json
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field

from sow.shared_log.entry import LogChain
from tests.crash.faults.nodes import NAMES, TOPICS

PAGE_ROWS = 10_000
SHOWN = ("log", "bookmark", "state hash", "records")
COUNTS = ("lost", "doubled", "refused", "different", "gaps", "errors")


@dataclass
class Verdict:
    """Counts of what is wrong, and some of it by name."""

    lost: int = 0
    doubled: int = 0
    refused: int = 0
    different: int = 0
    gaps: int = 0
    errors: int = 0
    named: list[str] = field(default_factory=list)

    @property
    def is_good(self):
        return not any(getattr(self, what) for what in COUNTS)

    def count(self, what, found):
        """Add what was found, a list, to a count."""
        setattr(self, what, getattr(self, what) + len(found))
        if found:
            self.named.append(f"{what}: {sorted(found)[:9]}")


def judged(stored, publisher, feed, subscribers):
    """The verdict over what is stored: topic and number of each entry of the log, in order."""
    verdict = Verdict()
    copies = Counter(stored)
    plain = {number for topic, number in copies if topic == "plain"}
    fed = {number for topic, number in copies if topic == "feed"}
    verdict.count("lost", publisher.acknowledged - plain)
    verdict.count("lost", set(range(1, feed.last + 1)) - fed)
    verdict.count("doubled", [one for one, times in copies.items() if times > 1])
    verdict.count("refused", publisher.refused & plain)
    for one in subscribers:
        verdict.count("gaps", differences(stored, one.lines))
    return verdict


def differences(stored, lines):
    """What a subscriber lacks or has too often, from its first line on; what is out of order."""
    if not lines:
        return ["nothing came"]
    expected = stored[stored.index(lines[0]) :] if lines[0] in stored else stored
    if lines == expected:
        return []
    lacks, more = Counter(expected) - Counter(lines), Counter(lines) - Counter(expected)
    return [*lacks.elements(), *more.elements()] or ["another order"]


async def logs(nodes, bookmark):
    """What each node has in its log up to a bookmark, and shows there."""
    found = {}
    for name in NAMES:
        path = f"/v1/status?min_bookmark={bookmark}&wait=30"
        status = await nodes.until(
            lambda name=name, path=path: nodes.ask(name, path), f"{name} comes to {bookmark}"
        )
        text = await log_of(nodes, name)
        records = [await records_of(nodes, name, topic) for topic in TOPICS]
        found[name] = (text, status["bookmark"], status["state_hash"], records)
    return found


async def records_of(nodes, name, topic):
    """What a topic of a node shows. A busy node may be stale for a moment, and answers later."""
    path = f"/v1/topics/{topic}/records"
    return await nodes.until(lambda: nodes.ask(name, path), f"{topic} of {name}")


async def log_of(nodes, name):
    """The whole log of a node, in pages: a long one takes longer than an answer may."""
    pages, after = [], 0
    while not pages or pages[-1]:
        path = f"/v1/log?from={after}&limit={PAGE_ROWS}"
        page = await nodes.until(lambda path=path: nodes.text(name, path), f"the log of {name}")
        pages.append(page)
        if page:
            after = json.loads(page.splitlines()[-1])["seq"]
    return "".join(pages)


def unlike(found):
    """Nodes that show something else than the first one, and what."""
    first = found[NAMES[0]]
    return [
        f"{name}: {what}"
        for name, shown in found.items()
        for what, one, other in zip(SHOWN, first, shown, strict=True)
        if one != other
    ]


def shown_as_stored(rows, records):
    """Topics that show something else than the last of each key in the log."""
    wrong = []
    for topic, shown in zip(TOPICS[:2], records, strict=False):
        last = {row["d"]["id"]: row["d"] for row in rows if row["topic"] == topic}
        if {one["id"]: one for one in shown} != last:
            wrong.append(topic)
    return wrong


async def voids(log):
    """Terms and void entries of the shared log, as the rule of the chain has them."""
    chain = LogChain()
    end = await log.last()
    async with aclosing(log.read(0)) as blocks:
        async for position, block in blocks:
            chain.take(position, block)
            if position >= end:
                break
    return chain.state.term, chain.void_count
