"""A writer releases what was read back, and nothing else, whatever the engine says."""

from itertools import count

from sow.shared_log.entry import CONTENT_BYTES_MAX, EntryKind, Lead, LogChain, LogEnvelope, decode
from sow.shared_log.writer import EntryWriter

ANSWER_US = 100


class Desk:
    """A writer in term 1 and the chain that reads its log, by hand."""

    def __init__(self, in_flight_max=8):
        self.chain = LogChain()
        self.position = 0
        self.now_us = 1000
        lead = Lead("a", "", 1000).encode()
        block, _ = LogEnvelope(EntryKind.LEAD, 1, 0, bytes(16), bytes(16), lead).encode()
        self.store(block)
        tokens = (b"%016d" % number for number in count())
        self.writer = EntryWriter(
            1, self.chain.state.hash, ANSWER_US, lambda: next(tokens), in_flight_max
        )

    def add(self, *numbers):
        for number in numbers:
            self.writer.add(number, EntryKind.RECORDS, b"%d" % number, 0)
        return self.send()

    def send(self):
        return [*self.writer.send(self.now_us)]

    def store(self, block):
        """The engine stores a block, and it is read; the number that is released."""
        self.position += 1
        known = self.writer.sent(block) if self.position > 1 else None
        entry = self.chain.take(self.position, block, known)
        if self.position == 1:
            return None
        own = self.writer.found(entry.hash, self.now_us) if entry.is_valid else None
        self.writer.passed(self.position, entry.hash)
        return own and own.number

    def again(self):
        """The log was read to its end."""
        self.writer.send_again(self.now_us)
        return self.send()


def contents(orders):
    return [decode(order.block)[0].content for order in orders]


def test_what_comes_next_is_known_by_all_its_bytes():
    desk = Desk()
    first, second = desk.add(1, 2)
    envelope, entry_hash = decode(first.block)
    assert desk.writer.sent(bytes(bytearray(first.block))) == (envelope, entry_hash)
    assert desk.writer.sent(second.block) is None  # not its turn
    for at in range(len(first.block)):
        changed = bytearray(first.block)
        changed[at] ^= 1
        assert desk.writer.sent(bytes(changed)) is None
    assert desk.writer.sent(first.block[:-1]) is desk.writer.sent(b"") is None
    again, _ = desk.again()
    assert desk.writer.sent(first.block) is None  # of an earlier attempt
    assert desk.writer.sent(again.block) == decode(again.block)


def test_what_was_changed_on_its_way_is_void_and_sent_again():
    desk = Desk()
    (order,) = desk.add(1)
    changed = order.block[:-1] + b"x"
    desk.writer.acked(order.token, desk.position + 1, desk.now_us)
    assert desk.store(changed) is None
    assert desk.writer.is_in_doubt
    (again,) = desk.again()
    assert desk.store(again.block) == 1


def test_entries_are_sent_in_a_chain_and_released_as_they_are_read():
    desk = Desk()
    orders = desk.add(1, 2, 3)
    assert contents(orders) == [b"1", b"2", b"3"]
    assert desk.writer.numbers == [1, 2, 3]
    assert [desk.store(order.block) for order in orders] == [1, 2, 3]
    assert desk.writer.is_idle
    assert not desk.writer.is_in_doubt
    assert desk.chain.void_count == 0


def test_an_answer_releases_nothing():
    desk = Desk()
    (order,) = desk.add(1)
    desk.writer.acked(order.token, 2, desk.now_us)
    assert desk.writer.numbers == [1]


def test_so_many_are_on_their_way_at_once():
    desk = Desk(in_flight_max=2)
    first, second = desk.add(1, 2, 3, 4)
    assert desk.send() == []
    desk.store(first.block)
    (third,) = desk.send()
    assert contents([third]) == [b"3"]
    assert [desk.store(one.block) for one in (second, third)] == [2, 3]
    (fourth,) = desk.send()
    assert desk.store(fourth.block) == 4


def test_long_entries_are_on_their_way_by_their_bytes():
    desk = Desk()
    for number in (1, 2, 3):
        desk.writer.add(number, EntryKind.RECORDS, bytes(CONTENT_BYTES_MAX), 0)
    orders = desk.send()
    assert len(orders) == 2
    assert desk.store(orders[0].block) == 1
    assert len(desk.send()) == 1


def test_an_entry_has_its_time_once_the_engine_has_stored_the_one_before():
    desk = Desk()
    orders = desk.add(1, 2)
    desk.now_us += ANSWER_US - 1
    desk.store(orders[0].block)
    desk.now_us += ANSWER_US - 1
    desk.writer.pass_time(desk.now_us)
    assert not desk.writer.is_in_doubt
    desk.now_us += 1
    desk.writer.pass_time(desk.now_us)
    assert desk.writer.is_in_doubt


def test_what_was_lost_is_sent_again_behind_what_is_there():
    desk = Desk()
    first, _, third = desk.add(1, 2, 3)
    desk.store(first.block)
    assert not desk.writer.is_in_doubt
    desk.store(third.block)  # void, since the second is missing
    assert desk.writer.is_in_doubt
    assert desk.add(4) == []
    orders = desk.again()
    assert contents(orders) == [b"2", b"3", b"4"]
    assert [desk.store(order.block) for order in orders] == [2, 3, 4]
    assert desk.chain.void_count == 1


def test_an_earlier_attempt_that_comes_late_counts_once():
    desk = Desk()
    earlier = desk.add(1, 2)
    desk.writer.failed(earlier[0].token)
    later = desk.again()
    assert desk.store(earlier[0].block) == 1
    assert desk.writer.is_in_doubt  # the second attempt of 2 follows one of 1 that is void
    assert desk.store(later[0].block) is None
    assert desk.store(later[1].block) is None
    assert desk.store(earlier[1].block) == 2  # and its first attempt does not
    assert desk.writer.is_idle


def test_an_earlier_attempt_that_comes_later_still_is_void():
    desk = Desk()
    (earlier,) = desk.add(1)
    desk.writer.failed(earlier.token)
    (later,) = desk.again()
    assert desk.store(later.block) == 1
    assert desk.store(earlier.block) is None
    assert not desk.writer.is_in_doubt
    (order,) = desk.add(2)
    assert desk.store(order.block) == 2


def test_an_answer_to_an_earlier_attempt_is_none():
    desk = Desk()
    (earlier,) = desk.add(1)
    desk.writer.failed(earlier.token)
    desk.again()
    desk.writer.acked(earlier.token, 2, desk.now_us + ANSWER_US // 2)
    desk.writer.failed(earlier.token)
    assert not desk.writer.is_in_doubt
    desk.writer.pass_time(desk.now_us + ANSWER_US)
    assert desk.writer.is_in_doubt


def test_what_stands_where_the_answer_says_is_looked_at():
    desk = Desk()
    (order,) = desk.add(1)
    desk.writer.acked(order.token, 2, desk.now_us)
    assert desk.store(b"something else") is None
    assert desk.writer.is_in_doubt
    assert desk.writer.numbers == [1]


def test_no_answer_is_doubt_and_an_answer_gives_time_to_read():
    desk = Desk()
    (order,) = desk.add(1)
    assert desk.writer.due_us() == desk.now_us + ANSWER_US
    desk.writer.acked(order.token, 2, desk.now_us + 50)
    desk.writer.pass_time(desk.now_us + ANSWER_US)
    assert not desk.writer.is_in_doubt
    assert desk.writer.due_us() == desk.now_us + 50 + ANSWER_US
    desk.writer.pass_time(desk.now_us + 50 + ANSWER_US)
    assert desk.writer.is_in_doubt


def test_what_is_sent_in_vain_is_sent_again_after_a_pause():
    desk = Desk()
    (order,) = desk.add(1)
    for attempt in range(3):
        desk.writer.failed(order.token)
        assert desk.writer.is_in_doubt
        orders = desk.again()
        if attempt:
            assert orders == []
            assert desk.writer.due_us() == desk.now_us + ANSWER_US
            desk.now_us += ANSWER_US
            orders = desk.send()
        (order,) = orders
    assert desk.store(order.block) == 1
    (order,) = desk.add(2)
    assert desk.store(order.block) == 2


def test_the_moment_counts_at_which_the_attempt_was_sent_that_is_there():
    desk = Desk()
    (earlier,) = desk.add(1)
    desk.writer.failed(earlier.token)
    desk.now_us += 70
    desk.again()
    assert desk.writer.durable_us is None
    desk.store(earlier.block)
    assert desk.writer.durable_us == 1000


def test_a_group_that_is_large_is_released_with_its_last_part():
    desk = Desk()
    content = bytes(CONTENT_BYTES_MAX) + b"rest"
    desk.writer.add(1, EntryKind.RECORDS, content, 0)
    first, second = desk.send()
    assert desk.store(first.block) is None
    assert desk.writer.numbers == [1]
    assert desk.store(second.block) == 1


def test_what_is_not_its_own_is_said():
    desk = Desk()
    desk.add(1)
    foreign = LogEnvelope(
        EntryKind.LEAD, 2, 0, desk.chain.state.hash, bytes(16), Lead("b", "", 1).encode()
    )
    _, entry_hash = foreign.encode()
    assert desk.writer.found(entry_hash, desk.now_us) is None
    assert desk.writer.numbers == [1]
