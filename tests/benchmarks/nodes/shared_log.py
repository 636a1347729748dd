"""Nodes of a shared log: ingest over three replicas of NATS, and what a fail-over costs.

The servers of NATS write each group to their disks before they answer, all on this machine: what
they take of its cores is not there for the node. Ingest is compared with a server that has a log of
its own, with the same frames in turn. A fail-over is seen by a pinger of the node that leads then.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from urllib.request import urlopen

from tests.benchmarks.ingest import WINDOW_MESSAGES
from tests.benchmarks.measure import Figure, in_turn, seconds
from tests.benchmarks.nodes.edges import KEYS, configured, say
from tests.benchmarks.nodes.sizes import Sizes
from tests.benchmarks.pinger import Pinger
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.records import every_order, updates
from tests.benchmarks.sockets import Client, publishes
from tests.shared_log.adapters.nats_cluster import NatsCluster

FRAME = 1000
"""Records of 220 bytes: a group of 220 kB."""
LEASE_S = 0.6
LONG_LEASE_S = 3.0
"""Where nothing dies: all cores are busy then."""
ROLE_S_MAX = 60.0
LOG = """<SOWConfig><Log><Engine>nats</Engine><Servers>{servers}</Servers>
<Monitor>{monitors}</Monitor><Lease>{lease_ms:.0f}ms</Lease><Node>{name}</Node></Log>"""


@contextmanager
def cluster() -> Iterator[NatsCluster]:
    """Three servers of NATS."""
    with closing(NatsCluster()) as servers:
        yield servers


def node(servers: NatsCluster, name: str, xml: str, lease_s: float = LEASE_S) -> ServerProcess:
    """A node of the log there."""
    own = LOG.format(
        servers=",".join(servers.servers),
        monitors=",".join(servers.monitor_urls),
        name=name,
        lease_ms=1000 * lease_s,
    )
    return ServerProcess(xml.replace("<SOWConfig>", own, 1))


def until_role(server: ServerProcess, role: str) -> None:
    """Wait until a node leads, or follows."""
    end_s = time.monotonic() + ROLE_S_MAX
    while time.monotonic() < end_s:
        with urlopen(f"{server.url}/v1/status") as answer:
            if json.load(answer)["role"] == role:
                return
        time.sleep(0.005)
    raise TimeoutError(f"{server.url} is no {role}")


def shared_log(sizes: Sizes) -> Iterator[Figure]:
    """Ingest, and a fail-over with all records."""
    xml = configured()
    with cluster() as servers, ExitStack() as stack:
        ours = stack.enter_context(node(servers, "a", xml, LONG_LEASE_S))
        alone = stack.enter_context(ServerProcess(xml))
        until_role(ours, "primary")
        yield from _ingest(sizes, ours, alone)
    with cluster() as servers, ExitStack() as stack:
        leads = stack.enter_context(node(servers, "a", xml))
        until_role(leads, "primary")
        follows = stack.enter_context(node(servers, "b", xml))
        until_role(follows, "follower")
        yield from _fail_over(sizes, leads, follows)


def _ingest(sizes: Sizes, ours: ServerProcess, alone: ServerProcess) -> Iterator[Figure]:
    """The same frames for both, in turn."""
    frames = publishes(updates(sizes.updates, KEYS), FRAME)
    used_us: dict[ServerProcess, list[float]] = {ours: [], alone: []}

    def rate(server: ServerProcess, client: Client) -> float:
        before_s = server.cpu_s
        taken_s = seconds(lambda: client.publish(frames, max(2, WINDOW_MESSAGES // FRAME)))
        used_us[server].append(1e6 * (server.cpu_s - before_s) / sizes.updates)
        return sizes.updates / taken_s

    with (
        closing(Client(ours.host, ours.port)) as here,
        closing(Client(alone.host, alone.port)) as there,
    ):
        rates, floor = in_turn(
            sizes.repetitions, lambda: rate(ours, here), lambda: rate(alone, there)
        )
    say(f"published {sizes.updates:,} records")
    case, than = f"three replicas of NATS, frames of {FRAME}", "a log of its own"
    yield Figure("shared log", case, "messages/s", rates, floor, than)
    used, least = used_us[ours][1:], used_us[alone][1:]
    yield Figure("shared log", f"{case}, processor time", "µs/message", used, least, than)


def _fail_over(sizes: Sizes, leads: ServerProcess, follows: ServerProcess) -> Iterator[Figure]:
    """The node that leads dies."""
    with closing(Client(leads.host, leads.port)) as client:
        client.publish(publishes(every_order(sizes.records), FRAME), 2)
    with Pinger(follows.host, follows.port) as pinger:
        time.sleep(2.0)  # what was published is applied
        pinger.longest_ms()
        time.sleep(1.0)
        before_ms, _ = pinger.longest_ms()
        begun_s, used_s = time.monotonic(), follows.cpu_s
        os.kill(leads.pid, signal.SIGKILL)
        until_role(follows, "primary")
        with closing(Client(follows.host, follows.port)) as client:
            client.publish(publishes(every_order(1), 1), 1)
        took_s, used_s = time.monotonic() - begun_s, follows.cpu_s - used_s
        longest_ms, count = pinger.longest_ms()
    case = f"of {sizes.records:,} records"
    say(f"fail-over {case}")
    yield Figure(
        "fail-over", f"{case}, until a write is acknowledged", "s", [took_s],
        [2 * LEASE_S], "two leases",
    )  # fmt: skip
    yield Figure(
        "fail-over", f"{case}, longest wait for the node that leads then", "ms", [longest_ms],
        [before_ms], "a second before",
        note=f"of {count:,} pings; all that it did took {1000 * used_s:.0f} ms of a core",
    )  # fmt: skip
