"""A live window of a simulated client, and the laws of its lines.

    room        no line finds more records than the window has room for
    places      each line says where its record stands, and lines applied in order keep a list
    partings    an oof that is none by the window shows the state that was held
    query       at the end, the list is what the same query answers

Whatever was folded for others, dropped, sent again or conflated.
"""

from dataclasses import dataclass, field

from tests.simulation.model import applied
from tests.simulation.views import View

ORDERS = ("/v DESC", "/v, /n DESC", "/w/x DESC, /v", "/n DESC", None)


@dataclass
class WindowView(View):
    """One live window and the list that the client keeps of it."""

    order_by: str | None = None
    top_n: int = 3
    skip_n: int = 0
    order: list = field(default_factory=list)

    @classmethod
    def at_random(cls, view, random):
        """A window over what a view follows, as it wants to see it."""
        opts = [opt for opt in view.opts if opt != "oof"]
        return cls(
            view.topic, view.filter, (*opts, "live", "positions"), True, view.delta,
            view.interval_us, view.select, order_by=random.choice(ORDERS),
            top_n=random.choice((1, 2, 3, 5)), skip_n=random.choice((0, 0, 1, 3)),
        )  # fmt: skip

    def again(self):
        return WindowView(
            self.topic, self.filter, self.opts, True, self.delta, self.interval_us, self.select,
            order_by=self.order_by, top_n=self.top_n, skip_n=self.skip_n,
        )  # fmt: skip

    @property
    def oof(self):
        return True

    @property
    def resumable(self):
        return False

    @property
    def is_exact(self):
        return False

    def check_sums(self, _model):
        """It is sent the rows of the window, not all that is published."""

    def question(self):
        requested = {
            "t": self.topic, "filter": self.filter, "order_by": self.order_by, "top_n": self.top_n,
            "skip_n": self.skip_n, "select": self.select and ",".join(self.select),
        }  # fmt: skip
        return {name: value for name, value in requested.items() if value is not None}

    def command(self, bookmark=None):
        return {**super().command(bookmark), **self.question()}

    def hear(self, line, now_us, prompt):
        key, place = (line["t"], line["k"]), line["at"]
        before = self.held.get(key)
        if key in self.held:
            stood = self.order.index(key)
            assert line["c"] != "oof" or place == stood, f"it stood at {stood}: {line}"
            self.order.remove(key)
        if line["c"] == "oof":
            assert before is not None, f"an oof of a record that is not held: {line}"
            if line["reason"] != "match":
                assert line["d"] == before, f"an oof of a state that was not held: {line}"
            del self.held[key]
            return
        document = line["d"]
        if line.get("delta"):
            assert before is not None, f"a delta of a record that is not held: {line}"
            document = applied(before, document)
        assert place <= len(self.order), f"there is no such place: {line}"
        self.held[key] = document
        self.order.insert(place, key)
        assert len(self.order) <= self.top_n, f"more than there is room for: {line}"
        if line["c"] == "p":
            self._check_order(key, line, document)
            if prompt:
                self._check_rate(key, line, now_us)

    def check_at_the_end(self, world):
        """It is what the query answers."""
        lines = world.client().say(c="sow", **self.question())
        expected = [(line["k"], line["d"]) for line in lines if line["c"] == "sow"]
        found = [(key[1], self.held[key]) for key in self.order]
        assert found == expected, f"{self} is not {expected}"
