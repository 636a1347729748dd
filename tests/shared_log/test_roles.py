"""Who leads, by hand; `test_simulation.py` has worlds of three nodes with every fault."""

from itertools import count

from sow.shared_log.entry import ChainState, EntryKind, Lead, LogEnvelope, Reload
from sow.shared_log.roles import (
    ApplyGroup,
    EndSearch,
    FindEnd,
    FollowFrom,
    LeadFrom,
    LogNode,
    ReadFrom,
    ReleaseGroup,
    StandBack,
)
from sow.shared_log.writer import AppendBlock

LEASE_US = 600


class Table:
    """A log, written by hand, and one node; time passes when it is said."""

    def __init__(self, name="a", state=None):
        tokens = (name.encode() + b"%015d" % number for number in count())
        self.now_us = 10_000
        lead = Lead(name, f"http://{name}", LEASE_US)
        self.node = LogNode(
            lead, state or ChainState(), self.now_us, lambda: next(tokens), lambda: 5
        )
        self.blocks = []

    def orders(self, after_us=0):
        self.now_us += after_us
        self.node.pass_time(self.now_us)
        return self.node.take()

    def store(self, *blocks):
        """The engine stores blocks, and the node reads them."""
        for block in blocks:
            self.blocks.append(block)
            self.node.read(len(self.blocks), block, self.now_us)
        return self.orders()

    def foreign(self, kind, content=b"foreign", **more):
        """A valid entry of another node."""
        state = self.node.chain.state
        entry = LogEnvelope(
            kind, state.term + (kind == EntryKind.LEAD), 0, state.hash, bytes(16), content
        )
        return entry._replace(**more).encode()[0]

    def foreign_lead(self):
        return self.foreign(EntryKind.LEAD, Lead("b", "http://b", LEASE_US).encode())

    def end(self):
        self.node.end_is(len(self.blocks), self.now_us)
        return self.orders()

    def become_primary(self):
        self.orders(2 * LEASE_US)
        (order,) = self.end()
        assert LeadFrom(self.node.chain.state.term + 1) in self.store(order.block)
        return self

    def submit(self, *numbers):
        for number in numbers:
            assert self.node.submit(number, EntryKind.RECORDS, b"%d" % number, 5)
        return self.orders()


LED = ChainState(0, bytes(16), 3, 0, Lead("b", "", LEASE_US))
"""Somebody has led before."""


def test_a_node_reads_and_leads_after_two_leases_of_silence():
    table = Table(state=LED)
    assert table.orders() == [ReadFrom(0)]
    assert table.node.due_us() == table.now_us + 2 * LEASE_US
    assert table.orders(2 * LEASE_US - 1) == []
    assert table.orders(1) == [FindEnd()]
    (order,) = table.end()
    assert isinstance(order, AppendBlock)
    assert not table.node.is_primary
    assert table.store(order.block) == [LeadFrom(4)]
    assert table.node.is_primary
    assert table.node.chain.state.lead == Lead("a", "http://a", LEASE_US)


def test_of_a_log_that_nobody_has_led_a_node_leads_once_it_has_read_it():
    table = Table()
    assert table.orders() == [ReadFrom(0), FindEnd()]
    (order,) = table.end()
    assert table.store(order.block) == [LeadFrom(1)]
    # Another one that begins beside it reads first that it is led already.
    other = Table("b")
    assert other.orders() == [ReadFrom(0), FindEnd()]
    other.node.end_is(1, other.now_us)
    assert other.store(order.block) == []
    assert other.node.due_us() == other.now_us + 2 * LEASE_US


def test_it_begins_to_read_where_it_was():
    state = ChainState(7, b"h" * 16, 3, 0, Lead("b", "", 10 * LEASE_US))
    table = Table(state=state)
    assert table.orders() == [ReadFrom(7)]
    # The lease of the primary counts.
    assert table.node.due_us() == table.now_us + 20 * LEASE_US


def test_silence_begins_again_with_each_valid_entry_and_with_no_other():
    table = Table()
    table.store(table.foreign_lead())
    table.now_us += LEASE_US
    table.store(b"void", table.foreign(EntryKind.BEAT, term=9))
    assert table.node.due_us() == table.now_us + LEASE_US
    table.store(table.foreign(EntryKind.BEAT))
    assert table.node.due_us() == table.now_us + 2 * LEASE_US


def test_it_leads_only_when_it_has_read_everything():
    table = Table()
    table.orders(2 * LEASE_US)
    table.node.end_is(2, table.now_us)
    assert table.orders() == []
    assert table.store(b"void") == []
    (order,) = table.store(b"void")
    assert isinstance(order, AppendBlock)


def test_it_does_not_lead_if_something_valid_is_there():
    table = Table()
    table.orders(2 * LEASE_US)
    table.node.end_is(1, table.now_us)
    assert table.store(table.foreign_lead()) == []
    assert table.node.due_us() == table.now_us + 2 * LEASE_US


def test_it_follows_the_one_that_was_first():
    table = Table()
    table.orders(2 * LEASE_US)
    (own,) = table.end()
    first = table.foreign_lead()
    assert table.store(first, own.block) == []
    assert not table.node.is_primary
    assert table.node.chain.state.lead.node == "b"
    (applied,) = table.store(table.foreign(EntryKind.RECORDS))
    assert isinstance(applied, ApplyGroup)
    assert applied.group.content == b"foreign"


def test_a_lead_that_is_not_answered_is_looked_for_and_sent_again():
    table = Table()
    table.orders(2 * LEASE_US)
    (first,) = table.end()
    assert table.orders(LEASE_US // 2) == [FindEnd()]
    (second,) = table.end()
    assert first.token != second.token
    # The first comes all the same, and is as good.
    assert table.store(first.block, second.block) == [LeadFrom(1)]


def test_a_primary_releases_what_it_has_read_back():
    table = Table().become_primary()
    first, second = table.submit(1, 2)
    table.node.acked(first.token, 2, table.now_us)
    table.node.acked(second.token, 3, table.now_us)
    assert table.orders() == []
    assert table.store(first.block) == [ReleaseGroup(1)]
    assert table.store(second.block) == [ReleaseGroup(2)]


def test_who_does_not_lead_takes_nothing():
    assert not Table().node.submit(1, EntryKind.RECORDS, b"1", 5)


def test_a_primary_beats_when_it_has_nothing_to_say():
    table = Table().become_primary()
    assert table.orders(LEASE_US // 3 - 1) == []
    (beat,) = table.orders(1)
    assert table.store(beat.block) == []
    assert table.orders(LEASE_US // 3 - 1) == []
    (order,) = table.submit(1)
    table.store(order.block)
    assert table.node.due_us() == table.now_us + LEASE_US // 3


def test_a_primary_steps_down_at_the_first_foreign_lead():
    table = Table().become_primary()
    first, second, third = table.submit(1, 2, 3)
    lead = table.foreign_lead()
    assert table.store(lead, first.block, second.block, third.block) == [
        FollowFrom(Lead("b", "http://b", LEASE_US), [1, 2, 3])
    ]
    assert not table.node.is_primary
    assert not table.node.submit(4, EntryKind.RECORDS, b"4", 5)


def test_what_it_had_in_the_log_before_that_is_released():
    table = Table().become_primary()
    first, second = table.submit(1, 2)
    assert table.store(first.block, table.foreign(EntryKind.LEAD, b"no lead")) == [ReleaseGroup(1)]
    assert table.store(table.foreign_lead(), second.block) == [
        FollowFrom(Lead("b", "http://b", LEASE_US), [2])
    ]


def test_a_primary_without_a_durable_entry_for_a_lease_is_stale():
    table = Table().become_primary()
    (order,) = table.submit(1)
    sent_us = table.now_us
    table.now_us += LEASE_US
    assert not table.node.is_stale(table.now_us)
    assert table.node.is_stale(table.now_us + 1)
    # What was sent a lease ago says only how things were then.
    table.now_us += 1
    *_, beat = table.store(order.block)
    assert table.node.silent_us(table.now_us) == table.now_us - sent_us
    assert table.node.is_stale(table.now_us)
    table.store(beat.block)
    assert not table.node.is_stale(table.now_us)


def test_a_follower_that_hears_nothing_for_a_lease_is_stale():
    table = Table()
    table.store(table.foreign_lead())
    assert not table.node.is_stale(table.now_us + LEASE_US)
    assert table.node.is_stale(table.now_us + LEASE_US + 1)


def test_doubt_ends_when_the_end_is_read():
    table = Table().become_primary()
    first, second = table.submit(1, 2)
    table.node.failed(first.token)
    assert table.orders() == [FindEnd()]
    assert table.orders() == []  # once is enough
    table.node.end_is(2, table.now_us)
    assert table.orders() == []
    orders = table.store(first.block)
    assert orders[0] == ReleaseGroup(1)
    (again,) = orders[1:]
    assert again.token != second.token
    assert table.store(again.block) == [ReleaseGroup(2)]


def test_the_end_is_looked_for_again_and_a_reader_that_is_dead_is_replaced():
    table = Table().become_primary()
    (order,) = table.submit(1)
    assert table.orders(LEASE_US // 2) == [FindEnd()]
    assert table.node.due_us() == table.now_us + LEASE_US // 2
    assert table.orders(LEASE_US // 2) == [FindEnd()]  # the engine is away
    table.node.end_is(2, table.now_us)
    assert table.orders(LEASE_US // 2) == [ReadFrom(1), FindEnd()]
    assert table.store(order.block) == [ReleaseGroup(1)]


def test_a_reader_that_failed_begins_again_after_a_while():
    table = Table(state=LED)
    table.orders()
    table.node.read_failed(table.now_us)
    assert table.node.due_us() == table.now_us + LEASE_US // 2
    assert table.orders(LEASE_US // 2) == [ReadFrom(0)]
    assert table.orders() == []


def test_a_search_is_not_confused_by_late_answers():
    search = EndSearch(100)
    search.end_is(5)
    assert search.end is None
    assert search.start(0)
    assert not search.start(99)
    search.end_is(5)
    assert search.end == 5
    assert search.start(100)
    assert (search.end, search.due_us()) == (None, 200)
    search.stop()
    assert search.due_us() is None


def test_a_primary_steps_down_behind_all_that_was_submitted():
    table = Table().become_primary()
    first, *_ = table.submit(1)
    assert table.node.step_down(table.now_us)
    assert table.node.step_down(table.now_us)  # once is enough
    (resign,) = table.orders()
    assert not table.node.submit(2, EntryKind.RECORDS, b"2", 5)
    lead = table.node.chain.state.lead
    assert table.store(first.block, resign.block) == [ReleaseGroup(1), FollowFrom(lead, [])]
    assert not table.node.is_primary
    assert table.node.chain.state.lead.node == "a"
    assert not table.node.step_down(table.now_us)


def test_who_has_stepped_down_lets_others_lead_for_ten_leases():
    table = Table().become_primary()
    table.node.step_down(table.now_us)
    (resign,) = table.orders()
    table.store(resign.block)
    assert table.orders(10 * LEASE_US - 1) == []
    assert table.orders(1) == [FindEnd()]
    (order,) = table.end()
    assert LeadFrom(2) in table.store(order.block)
    assert table.submit(3)


def test_others_lead_at_once_where_who_led_has_stepped_down():
    table = Table()
    table.store(table.foreign_lead())
    assert table.store(table.foreign(EntryKind.RESIGN, b"")) == [FindEnd()]
    (order,) = table.end()
    # Another one was first: it is no matter of the past that somebody had stepped down.
    assert table.store(table.foreign_lead(), order.block) == []
    assert table.node.due_us() == table.now_us + 2 * LEASE_US


def test_who_holds_off_does_not_lead_before():
    table = Table()
    table.store(table.foreign_lead())
    table.node.hold_off(table.now_us)
    assert table.orders(10 * LEASE_US - 1) == []
    assert table.orders(1) == [FindEnd()]


def test_the_last_fail_over_says_whether_the_one_before_was_silent_or_stepped_down():
    table = Table().become_primary()
    assert table.node.failover is None
    table.orders(3 * LEASE_US)
    table.store(table.foreign_lead())
    found = table.node.failover
    assert (found.before, found.after, found.resigned) == ("a", "b", False)
    assert found.silent_us >= 3 * LEASE_US
    table.store(table.foreign(EntryKind.RESIGN, b""))
    lead = Lead("c", "http://c", LEASE_US).encode()
    table.store(table.foreign(EntryKind.LEAD, lead))
    found = table.node.failover
    assert (found.before, found.after, found.resigned) == ("b", "c", True)


def test_who_has_a_configuration_that_a_reload_has_replaced_does_not_lead():
    table = Table()
    table.node.lead_with(Lead("a", "http://a", LEASE_US, "old"))
    table.store(table.foreign(EntryKind.LEAD, Lead("b", "", LEASE_US, "old").encode()))
    table.store(table.foreign(EntryKind.RELOAD, Reload("new", "", b"").encode()))
    assert table.orders(2 * LEASE_US) == [FindEnd()]
    assert table.end() == [StandBack()]
    assert table.orders(LEASE_US) == []
    table.node.lead_with(Lead("a", "http://a", LEASE_US, "new"))
    # It has applied the reload: behind one a fail-over takes no longer than else.
    assert table.orders() == [FindEnd()]
    (order,) = table.end()
    assert isinstance(order, AppendBlock)
