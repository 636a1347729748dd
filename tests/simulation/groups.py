"""An aggregated subscription of a simulated client: rows of groups of records, and their laws.

    held        an oof or a delta is of a row that the client holds
    partings    an oof that is none by the filter shows the row that was held
    rows        at the end it holds a recomputation over the records that pass

And when groups have no followers any more, nothing is kept of them (`Simulation.drain`).
"""

from dataclasses import dataclass

from tests.simulation.configurations import FIELDS
from tests.simulation.model import applied
from tests.simulation.views import View
from tests.topic.views.recomputation import recomputed

GROUPINGS = ("/v", "/g", "/w/x")


@dataclass
class GroupView(View):
    """One aggregated subscription and the rows that the client holds because of it."""

    by: str = "/v"

    @classmethod
    def at_random(cls, view, random):
        """About groups of what a view follows."""
        opts = tuple(opt for opt in view.opts if opt != "no_empties")
        return cls(
            view.topic, view.filter, opts, True, view.delta, view.interval_us,
            by=random.choice(GROUPINGS),
        )  # fmt: skip

    def again(self):
        return GroupView(
            self.topic, self.filter, self.opts, True, self.delta, self.interval_us, by=self.by
        )

    @property
    def resumable(self):
        return False

    @property
    def is_exact(self):
        return False

    def question(self):
        requested = {"projection": ",".join(map(str, FIELDS)), "grouping": self.by}
        return requested | ({} if self.filter is None else {"filter": self.filter})

    def command(self, bookmark=None):
        return {**super().command(bookmark), **self.question()}

    def follows(self, topic):
        return True  # the generated name is not checked

    def hear(self, line, now_us, prompt):
        key, document = line["k"], line["d"]
        before = self.held.get(key)
        if line["c"] == "oof":
            assert self.oof, f"an oof that was not requested: {line}"
            assert before is not None, f"an oof of a row that is not held: {line}"
            if line["reason"] != "match":
                assert document == before, f"an oof of a row that was not held, {before}: {line}"
            del self.held[key]
            return
        if line.get("delta"):
            assert self.delta, f"a delta that was not requested: {line}"
            assert before is not None, f"a delta of a row that is not held: {line}"
            document = applied(before, document)
        self.held[key] = document
        if line["c"] == "p" and prompt:
            self._check_rate(key, line, now_us)

    def check_sums(self, _model):
        """Rows are of records, not of what was published."""

    def check_at_the_end(self, world):
        """It holds what a recomputation gives, and so answers a question."""
        topic = world.engine.topics[self.topic]
        wanted = [*recomputed(topic, FIELDS, (self.by,), self.filter).values()]
        lines = world.client().say(c="sow", t=self.topic, **self.question())
        found = [(line["k"], line["d"]) for line in lines if line["c"] == "sow"]
        assert [row for _, row in found] == wanted, f"{self} is answered otherwise"
        for key, row in found:
            assert self.held.get(key) == row, f"{self} was not sent {row}"
        assert not self.oof or len(self.held) == len(found), f"{self} holds what is not there"
