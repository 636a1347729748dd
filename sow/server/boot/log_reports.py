"""What the nodes of a shared log report to each other, and how one finds that it is not as others.

    a follower ──> reports to the primary each second how far it is, and what it needs of the log,
                   and requests what the primary knows of all nodes
    its first report > finds whether another process of its name was there before: then it stops
    each node ───> compares state hashes with those that were at its own bookmark: in the minority,
                   or with no majority unlike the primary, it stops, for good

A node that stops has lost, kept or changed a record that the others have not: it serves nothing any
more, and never leads. What it has on its disk is marked, and no process begins with it. While
changes come without a pause nodes are at equal bookmarks only by chance: the difference is found in
the next pause.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from aiohttp import ClientError as CallFailed
from aiohttp import ClientSession

from sow.core.clock import SECOND_US
from sow.engine.engine import Engine
from sow.engine.running_topics import SourceTopic
from sow.errors import ConfigError, SowError, StateDiffers
from sow.server.api.nodes import (
    AS_CHAINED,
    AS_PRIMARY,
    STATUS_BYTES_MAX,
    Nodes,
    ServerNode,
    Upstream,
    nodes_of,
    report,
)
from sow.server.api.status import StatusHandler
from sow.server.boot.follower import session_with
from sow.server.http.body_reading import beginning
from sow.server.loop.log_checkpoint import CheckpointKeeper, mark_differing, mark_of, put_aside
from sow.server.loop.log_driver import LogDriver

log = logging.getLogger("sow.log")

REPORT_S = 1.0
"""Between two reports to the primary: people look at them."""
REPORT_S_MAX = 5.0
"""How long one may take."""


class NodeReports:
    """The reports of the node that `driver` drives; `keeper` has what it needs of the log. It calls
    others as `peers` says. `corrupts`: a record is changed before the first report, for tests."""

    def __init__(
        self, driver: LogDriver, keeper: CheckpointKeeper, peers: Upstream, corrupts: bool = False
    ) -> None:
        self._driver = driver
        self._keeper = keeper
        self._peers = peers
        self._corrupts = corrupts
        self._is_alone = False
        """No other node has its name, as far as is known."""
        self.known: Sequence[ServerNode] = ()
        """What the primary has said of all nodes."""
        self._status: StatusHandler
        self._nodes: Nodes
        self._engine: Engine
        self._task: asyncio.Task[None] | None = None

    def start(self, status: StatusHandler, nodes: Nodes, engine: Engine) -> None:
        """Report what `status` says of `engine` from now on; `nodes` have reported to this one."""
        self._status, self._nodes, self._engine = status, nodes, engine
        status.be_listed_as(self._driver.lead.address, lambda: mark_of(self._keeper.kept))
        nodes.have_log(self._figures)
        self._task = asyncio.create_task(self._run())

    def take_over(self) -> None:
        """This node leads: what the one before knew of others holds until they report here."""
        own = self._driver.lead.address
        self._nodes.remember(*(one for one in self.known if one.checkpoint and one.url != own))

    async def close(self) -> None:
        """Report no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _figures(self) -> dict[str, float]:
        driver, chain = self._driver, self._driver.node.chain
        return {
            "leads": float(driver.is_primary),
            "term": chain.state.term,
            "silent_seconds": driver.silent_us() / SECOND_US,
            "void_entries": chain.void_count,
        }

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            try:
                await self._report()
            except (CallFailed, OSError, TimeoutError, SowError):
                pass  # who reads the log sees the loss of the primary there
            except Exception:
                log.exception("the node failed to report to the primary, and tries again")

    async def _report(self) -> None:
        if self._corrupts:
            self._corrupts = not corrupt(self._engine)
        driver, own = self._driver, await self._status.own()
        others: Sequence[ServerNode] = ()
        if driver.is_primary:
            others = self._nodes.heard()
        elif driver.address:
            url = driver.address.rstrip("/")
            async with session_with(self._peers, REPORT_S_MAX) as calls:
                await report(calls, url, own, below=self._nodes.heard())
                others = self.known = await nodes_of(calls, url)
                await self._check_name(calls, others)
        if not driver.is_stale and is_outvoted(own, others):
            await self._stop(own)

    async def _stop(self, own: ServerNode) -> None:
        """Stop for good: no later life begins with these records."""
        directory = self._keeper.directory
        error = StateDiffers(
            f"at bookmark {own.bookmark} node {self._driver.lead.node} has the state hash "
            f"{own.state_hash}, and other nodes of the log have another one: its records are "
            f"not what was written, so it stops; {put_aside(directory)}"
        )
        log.error("%s", error.detail)
        try:
            await asyncio.to_thread(mark_differing, directory, error.detail)
        except SowError as failed:
            log.error("%s: do not start the node again before that", failed.detail)
        self._driver.fail(error)

    async def _check_name(self, calls: ClientSession, others: Sequence[ServerNode]) -> None:
        """Stop where a node of this name has reported before, and answers: one that was started
        again elsewhere is listed for a while. A chained server answers as the node above it."""
        lead = self._driver.lead
        urls = [one.url for one in others if one.role != AS_CHAINED]
        if self._is_alone or lead.address not in urls:
            return
        for url in urls[: urls.index(lead.address)]:
            if await name_at(calls, url) == lead.node:
                error = ConfigError(
                    f"another process is node {lead.node} of the shared log, at {url}: give each "
                    "node a Node of its own in <Log>, or stop that one"
                )
                self._driver.fail(error)
                return
        self._is_alone = True


class _Named(msgspec.Struct):
    node: str | None = None


async def name_at(calls: ClientSession, url: str) -> str | None:
    """The name of the node at an address; None where none answers."""
    try:
        async with calls.get(f"{url.rstrip('/')}/v1/log/status", allow_redirects=False) as answer:
            return msgspec.json.decode(await beginning(answer, STATUS_BYTES_MAX), type=_Named).node
    except (CallFailed, OSError, TimeoutError, msgspec.MsgspecError):
        return None


def is_outvoted(own: ServerNode, others: Iterable[ServerNode]) -> bool:
    """Whether most nodes that are at a node's bookmark have another state than it; of as many the
    primary is right."""
    there = [own, *(one for one in others if one.url != own.url and one.bookmark == own.bookmark)]
    votes = Counter(one.state_hash for one in there if one.state_hash is not None)
    if own.state_hash is None or len(votes) < 2:
        return False
    leading = {one.state_hash for one in there if one.role == AS_PRIMARY}
    wins = max(votes, key=lambda state: (votes[state], state in leading))
    return wins != own.state_hash


def corrupt(engine: Engine) -> bool:
    """Change one record as nothing of the product does, for tests; False: there is none."""
    for topic in engine.catalog:
        if isinstance(topic, SourceTopic) and topic.is_logged and not topic.is_system:
            table = topic.records.table
            slots = table.occupied()
            if len(slots):
                table.seqs[slots[0]] += 1
                engine.note_change(topic)
                return True
    return False
