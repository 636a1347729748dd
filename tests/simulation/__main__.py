"""`python -m tests.simulation`: many seeds, or one to look at.

With `--digest` it prints what names everything that clients were given, and when. A change that is
not to change behaviour gives the same digest as before.
"""

import argparse
import hashlib
import logging
import time

from sow.streaming.sessions import Session
from tests.simulation.simulation import run


class Digest:
    """A hash over every frame that a session gives out, with the moment at which it does."""

    def __init__(self):
        self._hash = hashlib.sha256()
        self._pull = Session.pull

    def listen(self):
        """Observe every frame from now on."""
        pull, add = self._pull, self._hash.update

        def heard(session, released, now_us):
            frame = pull(session, released, now_us)
            if frame is not None:
                text = frame or b""  # of a frame that is not made yet
                add(b"%d %d %b" % (now_us, len(text), text))
            return frame

        Session.pull = heard

    def __str__(self):
        return self._hash.hexdigest()


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--seeds", type=int, default=2000, help="run so many seeds")
    parser.add_argument("--first", type=int, default=0, help="begin with this seed")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--digest", action="store_true", help="print a hash of all frames")
    requested = parser.parse_args()
    logging.disable()  # disks that fail say so again and again
    digest = Digest()
    if requested.digest:
        digest.listen()
    if requested.seed is not None:
        run(requested.seed, requested.clients, requested.steps)
        return
    began = time.monotonic()
    for seed in range(requested.first, requested.first + requested.seeds):
        run(seed, requested.clients, requested.steps)
    print(f"{requested.seeds} seeds in {time.monotonic() - began:.0f} s: no difference")
    if requested.digest:
        print(digest)


if __name__ == "__main__":
    main()
