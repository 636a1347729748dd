"""What one run of the simulation does much of, and what it leaves alone."""

from tests.simulation.configurations import COPIES, FOLLOWED, PUBLISHED
from tests.simulation.views import View

ACTS = {
    "publish": 30, "burst": 8, "delta": 12, "delete": 4, "begin_delete": 6, "wait": 20,
    "begin_publish": 6, "subscribe": 14, "follow": 4, "unsubscribe": 2, "resubscribe": 8,
    "replace": 5, "begin_commit": 5, "drop": 4, "back": 6, "go_on": 3, "restart": 1,
    "checkpoint": 1, "reconfigure": 2, "set_clock": 1, "break_disk": 1, "fill_disk": 1, "look": 2,
}  # fmt: skip
"""What may happen, and how often."""


class Taste:
    """What one run does much of, and what it leaves alone.

    Runs that do a little of everything meet in none of its corners: each one has a few topics, its
    own liking for options, and acts that it does often or never.
    """

    def __init__(self, random):
        self.acts = {act: often * random.choice((0, 1, 1, 3)) for act, often in ACTS.items()}
        self.acts |= {act: ACTS[act] for act in ("publish", "subscribe", "wait")}
        self.published = random.sample(PUBLISHED, random.randint(1, 4))
        there = {*self.published, *(c for name in self.published for c in COPIES.get(name, ()))}
        self.followed = [name for name in FOLLOWED if any(map(View(name, None).follows, there))]
        self.followed = self.followed or ["t"]
        self.keys = random.choice((2, 4, 8))
        self.reads = random.choice((0.03, 0.1, 0.3))
        names = (
            "oof", "timestamp", "no_empties", "delta", "complete", "paced", "select", "filter",
            "window", "groups",
        )  # fmt: skip
        self.options = {name: random.choice((0, 0.3, 0.7, 1)) for name in names}

    def wants(self, option, random):
        return random.random() < self.options[option]
