"""A view: one subscription of a simulated client, what it holds, and the laws of its lines.

A law is what every line of a correct server obeys, whatever was folded, dropped or sent again:

    known       no line of an unknown subscription, none that was not requested
    held        an oof or a delta is of a record that the client holds
    order       a record's states come in their order
    rate        a conflated record comes once an interval
    partings    an oof shows the state that was held; one by the filter, a state that fails it
    changes     with no_empties, a line changes what is seen
    sequence    where nothing is folded: exactly what was published, across topics, in its order

The last one, and that the view holds at the end what the topics hold, is for the end of a run.
"""

import re
from dataclasses import dataclass, field

from tests.simulation.model import applied, shown, test_of

FOLDED_BY_OTHERS = ("match", "sums")
"""Topics whose updates may stand for other records, or for several messages."""
FOLDED_ALWAYS = ("always", "end")
FOLDED = (
    *("t", "e", "news", "through", "t-C", "t-tick", "t-CC", "t-C2", "t-F1", "t-F2", "t-F3"),
    *("/desk/1", "/desk/2", "/desk/1-C", "/desk/2-C", "/desk/1-D", "/desk/2-D"),
    *FOLDED_ALWAYS,
    *FOLDED_BY_OTHERS,
)
"""Topics whose updates a full queue may fold; those of the others are all sent, to all clients."""


@dataclass
class View:
    """One subscription and the records that the client holds because of it.

    `start` is the bookmark after which it is sent everything, `reached` the newest one at which it
    could resume.
    """

    topic: str
    filter: str | None
    opts: tuple[str, ...] = ()
    complete: bool = False
    delta: bool = False
    interval_us: int | None = None
    select: tuple[str, ...] | None = None
    from_bookmark: bool = False
    name: str = ""
    start: int = 0
    reached: int | None = None
    replaced: bool = False
    folds: bool = True
    """Its session lets its queue be folded."""
    folded_before: int = 0
    folded: bool = False
    """Its session's queue has been folded since."""
    held: dict = field(default_factory=dict)
    sequence: list = field(default_factory=list)
    sums: dict = field(default_factory=dict)
    newest: dict = field(default_factory=dict)
    released_us: dict = field(default_factory=dict)

    def again(self):
        """The same subscription, before its first line."""
        return View(
            self.topic, self.filter, self.opts, self.complete, self.delta, self.interval_us,
            self.select,
        )  # fmt: skip

    # The request.

    @property
    def oof(self):
        return "oof" in self.opts

    @property
    def paced(self):
        return any(opt.startswith("conflation") for opt in self.opts)

    @property
    def resumable(self):
        """It can resume at a bookmark: all its lines are in the log."""
        return not (self.oof or self.delta or self.follows_copies)

    @property
    def follows_copies(self):
        return "-" in self.topic

    def follows(self, topic):
        """Whether this is a topic of the view's."""
        if self.topic.startswith("^"):
            return re.search(self.topic, topic) is not None
        return topic == self.topic

    @property
    def _follows_folded(self):
        return any(map(self.follows, FOLDED_BY_OTHERS))

    @property
    def is_exact(self):
        """Every matching publish is a line: nothing may be left out or folded."""
        if self.paced or self.follows_copies or self.replaced or "no_empties" in self.opts:
            return False
        if not self.folds or not any(map(self.follows, FOLDED)):
            return True
        return not self.folded and not any(map(self.follows, FOLDED_ALWAYS))

    def test(self, document):
        return test_of(self.filter)(document)

    def shown(self, document):
        return shown(document, self.select)

    def command(self, bookmark=None):
        """What a client sends for it."""
        kind = ("sow_and_" if self.complete else "") + (
            "delta_subscribe" if self.delta else "subscribe"
        )
        command = {"c": kind, "t": self.topic, "opts": ",".join(self.opts)}
        if self.select is not None:
            command["select"] = ",".join(self.select)
        if self.filter is not None:
            command["filter"] = self.filter
        if bookmark is not None:
            command["bm"] = str(bookmark)
        return command

    # Received lines.

    def hear(self, line, now_us, prompt):
        """Take one record line in; `prompt`: it was sent just now, and nothing was folded."""
        key = (line["t"], line["k"])
        assert self.follows(line["t"]), f"a line of another topic: {line}"
        if line["c"] == "oof":
            self._leave(key, line)
            return
        document, before = line["d"], self.held.get(key)
        if line.get("delta"):
            assert self.delta, f"a delta that was not requested: {line}"
            assert before is not None, f"a delta of a record that is not held: {line}"
            document = applied(before, document)
        self.held[key] = document
        if line["c"] == "sow":
            return
        self._check_order(key, line, document)
        if "q" in document:
            self.sums[key] = self.sums.get(key, 0) + document["q"]
        if "bm" in line:
            self.reached = int(line["bm"].partition(".")[0])
        if prompt:
            self._check_rate(key, line, now_us)
            if "no_empties" in self.opts and self.oof and not self.paced and not self.folded:
                assert document != before, f"a line that changes nothing that is seen: {line}"

    def _leave(self, key, line):
        assert self.oof, f"an oof that was not requested: {line}"
        assert key in self.held, f"an oof of a record that is not held: {line}"
        held, document = self.held.pop(key), line["d"]
        if self._follows_folded:
            return
        if line["reason"] in ("deleted", "expired"):
            assert document == held, f"an oof of a state that was not held, {held}: {line}"
        elif not self.follows_copies and self.select is None:
            assert not self.test(document), f"an oof by a filter that still passes: {line}"
            assert document["n"] >= held["n"], f"an oof of a state older than {held}: {line}"

    def _check_order(self, key, line, document):
        # Every publish has a number of its own, so a record's numbers only grow.
        if "n" in document:
            number = document["n"]
            assert number >= self.newest.get(key, 0), f"{key} went backwards: {line}"
            self.newest[key] = number
            self.sequence.append(number)

    def _check_rate(self, key, line, now_us):
        if self.interval_us is not None and not self.from_bookmark:
            before = self.released_us.get(key)
            assert before is None or now_us - before >= self.interval_us, f"too soon: {line}"
            self.released_us[key] = now_us

    # What must hold once everything was read.

    def check_sequence(self, model):
        """Where nothing may be folded: every publish, once, in its order."""
        if self.is_exact and (self.select is None or "/n" in self.select):
            published = model.published_after(self.start, self.follows, self.test)
            expected = [entry.document["n"] for entry in published]
            assert self.sequence == expected, f"{self} lost, repeated or reordered something"

    def check_sums(self, model):
        """What is merged is neither lost nor counted twice."""
        whole = self.filter is None and self.select is None and not self.delta
        if (
            self.topic == "sums"
            and whole
            and not (self.replaced or self.paced or self.from_bookmark)
        ):
            expected = {}
            for entry in model.published_after(self.start, self.follows, self.test):
                expected[entry.key] = expected.get(entry.key, 0) + entry.document["q"]
            told = {str(self.held[key]["id"]): total for key, total in self.sums.items()}
            assert told == expected, f"{self} was sent sums that are not those published"
