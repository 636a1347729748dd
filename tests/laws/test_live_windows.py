"""A live window is what the same query answers, after every turn and whatever has happened.

The state machine has many readers over few records, so that everything meets everything: windows
that share an ordered set or a channel, records that move, go and come again, slow readers,
intervals, scrolling while others publish, and reloads.
"""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sow.core.definitions import ConflatedTopic, SessionSettings, Topic, View
from sow.streaming.windows import ordered_sets
from tests.effort import examples
from tests.laws.harness import MS, SECOND, World
from tests.laws.window_reader import WindowReader

TOPICS = (
    Topic("t", "json", keys=("/id",), expires=True),
    ConflatedTopic("c", "json", "t", interval_us=300 * MS),
    ConflatedTopic("high", "json", "t", interval_us=300 * MS, filter="/v > 2"),
)
ORDERS = (None, "/v", "/v DESC", "/s DESC, /v", "/v TEXT", "/v * 2 DESC", "/w/x, /id DESC")
FILTERS = (None, None, "/v > 1", "/s = 'a'", "/w/x IS NULL")
VALUES = st.sampled_from((0, 1, 2, 3, 2.5, -1, None, "", "a", "b", True, 10**20, [1, 2], "é"))
DOCUMENTS = st.fixed_dictionaries(
    {"id": st.integers(0, 11)},
    optional={"v": VALUES, "s": st.sampled_from("abc"), "w": st.just({"x": 1}), "n": st.integers()},
)
ROWS_MAX = 5
"""The most records of a window."""
SESSIONS = SessionSettings(queue_messages_max=2 * ROWS_MAX + 1)
"""A queue has room for one turn in which a whole window is another one, and for no more."""
MORE = examples(8, stateful_step_count=40)


class Windows(RuleBasedStateMachine):
    """A world with few records and several readers."""

    def __init__(self):
        super().__init__()
        self.world = World(*TOPICS, sessions=SESSIONS)
        self.topics = TOPICS
        self.readers = []
        self.asleep = set()
        self.bounds = pytest.MonkeyPatch()

    @initialize(spare=st.sampled_from((0, 1, 100)), in_steps=st.booleans())
    def begin(self, spare, in_steps):
        """Heads with little to spare are filled again and again, at once or in steps."""
        self.in_steps = in_steps
        self.bounds.setattr(ordered_sets, "SPARE_MIN", spare)
        if in_steps:
            self.bounds.setattr(ordered_sets, "FILLED_AT_ONCE", 0)

    @rule(
        topic=st.sampled_from(("t", "t", "c", "high")),
        order_by=st.sampled_from(ORDERS),
        top_n=st.integers(0, ROWS_MAX),
        skip_n=st.integers(0, 4),
        condition=st.sampled_from(FILTERS),
        select=st.sampled_from((None, None, "/id,/v")),
        delta=st.booleans(),
        pace=st.sampled_from(("", "", "", "conflation=500ms", "conflation=auto")),
        empties=st.booleans(),
        positions=st.booleans(),
    )
    def open(
        self, topic, order_by, top_n, skip_n, condition, select, delta, pace, empties, positions
    ):
        if len(self.readers) == 6:
            return
        opts = (pace,) * bool(pace) + ("no_empties",) * (delta and not empties)
        reader = WindowReader(
            self.world.client(), topic, order_by, top_n, skip_n, condition, select, delta, opts,
            positions,
        )  # fmt: skip
        reader.begin()
        self.readers.append(reader)

    @rule(documents=st.lists(DOCUMENTS, min_size=1, max_size=5), delta=st.booleans())
    def publish(self, documents, delta):
        self.world.publish("t", *documents, delta=delta)

    @rule(document=DOCUMENTS)
    def publish_to_expire(self, document):
        self.world.publish("t", document, expires_s=1)

    @rule(count=st.integers(0, 11))
    def delete(self, count):
        self.world.delete("t", f"/id < {count}")

    @rule(by_ms=st.sampled_from((1, 100, 400, 2000)))
    def wait(self, by_ms):
        self.world.advance(by_ms * MS)

    @precondition(lambda self: self.readers)
    @rule(
        data=st.data(), skip_n=st.integers(0, 6), top_n=st.integers(0, ROWS_MAX),
        condition=st.sampled_from(FILTERS), document=DOCUMENTS,
    )  # fmt: skip
    def scroll(self, data, skip_n, top_n, condition, document):
        reader = data.draw(st.sampled_from(self.readers))
        if reader.client.session.connected:
            reader.scroll(
                lambda: self.world.publish("t", document), skip_n=skip_n, top_n=top_n,
                filter=condition,
            )  # fmt: skip

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def fall_asleep(self, data):
        self.asleep.add(id(data.draw(st.sampled_from(self.readers))))

    @rule()
    def wake_up(self):
        self.asleep.clear()

    @rule()
    def reload(self):
        """The conflated topic's filter is another one."""
        *rest, high = self.topics
        other = "/v > 0" if high.filter == "/v > 2" else "/v > 2"
        self.topics = (*rest, replace(high, filter=other))
        configuration = replace(self.world.configuration, topics=self.topics)
        self.world.executor.reconfigure(configuration, self.world.now)
        self.world.configuration = configuration
        self.world.settle()

    @invariant()
    def windows_are_what_queries_answer(self):
        if self.readers and self.in_steps:
            self.world.advance(2 * ordered_sets.REFILL_US_MIN)
        for reader in self.readers:
            assert reader.client.session.ended is None, "it is closed for its window"
            if id(reader) not in self.asleep:
                reader.read()
                if not any("conflation=5" in opt for opt in reader.opts):
                    reader.check(self.world)
        self.world.check()

    def teardown(self):
        try:
            self.check_at_the_end()
        finally:
            self.bounds.undo()

    def check_at_the_end(self):
        self.asleep.clear()
        for reader in self.readers:
            reader.read()
        self.world.advance(5 * SECOND)
        for reader in self.readers:
            reader.read()
        self.world.advance(5 * SECOND)
        for reader in self.readers:
            reader.read()
            reader.check(self.world)


TestWindows = Windows.TestCase
TestWindows.settings = MORE


@pytest.mark.slow
class TestWindowsForLong(Windows.TestCase):
    settings = settings(max_examples=1500, stateful_step_count=60)


@pytest.mark.parametrize("order_by", [None, "/last", "/last DESC"])
def test_a_window_over_a_view_has_its_rows_where_the_query_has_them(order_by):
    """A row of a view stands where the oldest record of its group does, whichever that is by
    now, and not where it stood when it came."""
    rows = View("rows", "json", ("t",), ("/desk", "MAX(/one) AS /last"), ("/desk",))
    world = World(Topic("t", "json", keys=("/id",)), rows)
    reader = WindowReader(world.client(), "rows", order_by=order_by, top_n=2)
    reader.begin()
    for steps in (
        [{"id": 1, "desk": "a", "one": 1}, {"id": 2, "desk": "b", "one": 1}],
        [{"id": 3, "desk": "a", "one": 1}],
        [{"id": 1, "desk": "c", "one": 1}],  # c stands first now, and a last
        [{"id": 2, "desk": "a", "one": 1}],
    ):
        world.publish("t", *steps)
        reader.read()
        reader.check(world)
        world.check()
