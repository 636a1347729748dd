"""Taking: how fast each one takes updates that it acknowledges, and what a kill leaves of them.

Updates of 10,000 keys in batches of 100, as many at once as it takes. A figure counts only if the
records are then what was published last. In a second life, killed (SIGKILL) when half is
acknowledged and started again, everything acknowledged has to be there; how much is not is said.
"""

import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.benchmarks.peers.load import Load, final, lost
from tests.benchmarks.peers.peer import Peer


class Taken(NamedTuple):
    """What one round gave."""

    rate: float
    cpu_s_per_million: float


def taken(peer: Peer, load: Load) -> Taken:
    """One round. Raises AssertionError if the final state is wrong."""
    with TemporaryDirectory(prefix="peers-") as folder:
        peer.open(Path(folder))
        try:
            progress = peer.publish(load)
            next(progress)
            before_s, begin = peer.cpu_s(), time.perf_counter()
            for _ in progress:
                pass
            took_s = time.perf_counter() - begin
            used_s = peer.cpu_s() - before_s
            assert peer.current() == final(load.batches()), f"{peer.name}: wrong records"
        finally:
            peer.close()
    return Taken(load.count / took_s, used_s / load.count * 1e6)


def killed(peer: Peer, load: Load) -> int:
    """How many acknowledged records a kill has lost."""
    batches = load.batches()
    with TemporaryDirectory(prefix="peers-") as folder:
        peer.open(Path(folder))
        acknowledged = 0
        with closing(peer.publish(load)) as progress:
            for acknowledged in progress:
                if acknowledged >= len(batches) // 2:
                    break
        peer.kill()
        peer.open(Path(folder))
        try:
            return lost(batches, acknowledged, peer.current())
        finally:
            peer.close()
