"""A session: what it says in which frames, how it goes on without a socket, and how it ends."""

from weakref import ref

import pytest

from sow.protocol.replies import LINES, skip_lines
from sow.streaming.outbox import Delivery
from sow.streaming.outbox.outbox import FOLDED_AT_ONCE, Outbox
from sow.streaming.outbox.overflow import BURST_FACTOR, PATIENCE_US
from sow.streaming.sessions import SLOW
from sow.topic.batch import Update
from tests.streaming.making import Ended, pulled, session, wording
from tests.topic.making import body


def filled(count, ended=None, group=0, **settings):
    """A session with so many frames of one line waiting."""
    made = session(ended=ended, **settings)
    for number in range(count):
        made.send({"c": "n", "n": number})
        made.seal(group, 0)
    return made


def numbers(of, **how):
    return [line["n"] for frame in pulled(of, **how) for line in frame if line["c"] == "n"]


def test_lines_that_are_said_together_leave_together():
    one = session()
    one.send({"c": "a"})
    one.send_lines([b'{"c":"b"}'])
    assert not one.idle
    assert pulled(one) == []
    one.seal(0, 0)
    assert pulled(one) == [[{"c": "a"}, {"c": "b"}]]
    assert one.idle


def test_nothing_leaves_before_it_is_durable():
    one = filled(1, group=7)
    assert numbers(one, released=6) == []
    assert numbers(one, released=7) == [0]


def test_a_session_that_ended_says_why_and_nothing_more():
    ended = Ended()
    one = filled(3, ended)
    one.end("because", 0)
    one.end("again", 0)
    one.send({"c": "late"})
    one.seal(0, 0)
    one.stream(iter([(b"late", 1)]), 0, 0)
    assert pulled(one) == [[{"c": "close", "reason": "because"}]]
    assert (one.ended, ended.sessions) == ("because", [one])


def test_who_hears_of_the_end_still_finds_what_waits():
    waiting = []
    ended = Ended()
    one = filled(2, ended)
    ended.sessions = waiting  # a list that takes what is there when it is called
    one._on_end = lambda session: waiting.append(session.outbox.message_count)
    one.end("because", 0)
    assert waiting == [2]


class Socket:
    lost = False
    is_stuck = False

    def lose(self):
        self.lost = True


def test_a_session_is_its_sockets_until_another_takes_it_up():
    one, socket = session(), Socket()
    one.belong_to(socket)
    assert one.belongs_to(socket)
    one.disconnect()
    assert not one.connected
    one.resume("grid", "192.0.2.7")
    assert (socket.lost, one.connected, one.client) == (True, True, "grid")
    assert one.address == "192.0.2.7"
    assert not one.belongs_to(socket)
    one.resume(None, "192.0.2.7")
    assert one.client == "grid"


def test_lines_are_counted_from_the_ack_that_names_the_session():
    one = filled(2)
    one.send_name({"c": "ack"}, 0, 0)
    one.send({"c": "n", "n": 2})
    one.seal(0, 0)
    assert numbers(one) == [0, 1, 2]
    assert one.recovery.sent == 1


@pytest.mark.parametrize(("seen", "again"), [(0, [1, 2]), (1, [2]), (2, []), (None, [])])
def test_what_was_not_seen_is_sent_again(seen, again):
    one = session()
    one.send_name({"c": "ack"}, 0, 0)
    for number in (1, 2):
        one.send({"c": "n", "n": number})
        one.seal(0, 0)
    pulled(one)
    assert one.take_back(seen, skip_lines)
    assert numbers(one) == again


def test_while_rights_change_nothing_is_sent_again():
    one = session()
    one.send_name({"c": "ack"}, 0, 0)
    one.send({"c": "n", "n": 1})
    one.seal(0, 0)
    pulled(one)
    one.hold_back()
    assert not one.take_back(0, skip_lines)
    assert one.take_back(1, skip_lines), "all has arrived"
    assert numbers(one) == []


def test_what_is_not_held_any_more_cannot_be_sent_again():
    one = session(recovery_messages_max=0)
    one.send_name({"c": "ack"}, 0, 0)
    for number in (1, 2):
        one.send({"c": "n", "n": number})
        one.seal(0, 0)
        pulled(one)
    assert not one.take_back(0, skip_lines)
    assert one.take_back(2, skip_lines)


def test_that_it_was_taken_up_is_said_before_all_that_waits():
    one = filled(1)
    one.send_resumed({"c": "ack"}, 0)
    assert [line["c"] for frame in pulled(one) for line in frame] == ["ack", "n"]


def test_who_is_lost_again_before_he_is_sent_counts_as_the_session_does():
    one = session()
    one.send_name({"c": "ack"}, 0, 0)
    one.send({"c": "n", "n": 1})
    one.seal(0, 0)
    pulled(one)
    one.send({"c": "n", "n": 2})
    one.seal(0, 0)
    for time in ("first", "second"):
        assert one.take_back(0, skip_lines)
        one.send_resumed({"c": "ack", "time": time}, 0)
    ack, *lines = [line for frame in pulled(one) for line in frame]
    assert ack["time"] == "second"
    assert [line["n"] for line in lines] == [1, 2]
    assert one.recovery.sent == len(lines)


def test_a_full_queue_has_so_long_before_it_is_given_up():
    one = filled(5, queue_messages_max=2, conflates=False)
    for now_us in (0, PATIENCE_US):
        one.apply_back_pressure(now_us)
        assert one.ended is None
    one.apply_back_pressure(PATIENCE_US + 1)
    assert one.ended == SLOW


def test_patience_begins_again_when_the_queue_was_read():
    one = filled(5, queue_messages_max=2, conflates=False)
    one.apply_back_pressure(0)
    pulled(one)
    one.apply_back_pressure(PATIENCE_US // 2)
    for number in range(5):
        one.send({"c": "n", "n": number})
        one.seal(0, 0)
    one.apply_back_pressure(PATIENCE_US + 1)
    assert one.ended is None


def test_a_client_that_reads_answers_for_no_turn_that_its_socket_did_not_get():
    one, socket = filled(5, queue_messages_max=2, conflates=False), Socket()
    one.belong_to(socket)
    for now_us in range(0, 10 * PATIENCE_US, PATIENCE_US):
        one.apply_back_pressure(now_us)
        assert one.ended is None, "nobody has written to it"
    socket.is_stuck = True
    one.apply_back_pressure(10 * PATIENCE_US)
    assert one.ended is None, "it begins to count"
    one.apply_back_pressure(11 * PATIENCE_US)
    assert one.ended is None
    one.apply_back_pressure(11 * PATIENCE_US + 1)
    assert one.ended == SLOW


def test_what_is_folded_late_counts_from_when_it_was_folded():
    one, socket = filled(FOLDED_AT_ONCE + 10, queue_messages_max=FOLDED_AT_ONCE), Socket()
    one.belong_to(socket)
    socket.is_stuck = True
    one.apply_back_pressure(0)
    assert one.folds
    late_us = 5 * PATIENCE_US
    while one.fold_some(late_us):
        one.apply_back_pressure(late_us)
    one.apply_back_pressure(late_us)
    assert one.outbox.full
    assert one.ended is None
    # It reads, while as much as is worth folding again is put behind, and that is late, too.
    socket.is_stuck = False
    for number in range(20):
        one.send({"c": "n", "n": number})
        one.seal(0, late_us)
    one.apply_back_pressure(2 * late_us)
    assert one.folds
    socket.is_stuck = True
    while one.fold_some(3 * late_us):
        pass
    one.apply_back_pressure(3 * late_us)
    assert one.ended is None, "its client has read meanwhile"
    one.apply_back_pressure(3 * late_us + PATIENCE_US + 1)
    assert one.ended == SLOW


def test_a_burst_over_all_measure_and_a_session_without_a_socket_get_no_time():
    huge = session(queue_bytes_max=100, conflates=False)
    huge.send({"c": "x" * (BURST_FACTOR * 100)})
    huge.seal(0, 0)
    huge.apply_back_pressure(0)
    assert huge.ended == SLOW
    alone = filled(5, queue_messages_max=2, conflates=False)
    alone.disconnect()
    alone.apply_back_pressure(0)
    assert alone.ended == SLOW


def test_within_its_bounds_nothing_happens():
    one = filled(2, queue_messages_max=2)
    assert one.apply_back_pressure(10 * PATIENCE_US)
    assert one.ended is None
    assert numbers(one) == [0, 1]
    assert not one.apply_back_pressure(10 * PATIENCE_US), "nothing waits any more"


def test_whether_folding_in_idle_time_is_worth_it():
    one = filled(6, queue_messages_max=10, background_conflation_fraction=0.5)
    assert one.wants_folding()
    one.conflate(0)
    assert not one.wants_folding()  # what was just folded does not fold again
    one.allow_folding(False)
    assert not one.wants_folding()


def test_a_long_queue_is_not_even_looked_through_by_who_fills_it(monkeypatch):
    one = filled(FOLDED_AT_ONCE + 10, queue_messages_max=FOLDED_AT_ONCE)
    monkeypatch.setattr(Outbox, "to_give_up", lambda _: pytest.fail("it was looked through"))
    assert one.apply_back_pressure(0)
    assert one.folds
    assert one.ended is None, "it is judged when it is folded"
    assert one.apply_back_pressure(2 * PATIENCE_US)
    assert one.ended is None
    monkeypatch.undo()
    assert one.fold_some(0), "a step of it"
    while one.fold_some(0):
        one.check()
    short = filled(FOLDED_AT_ONCE // 2, queue_messages_max=5)
    assert short.apply_back_pressure(0)
    assert not short.folds


def test_a_client_is_sent_once_what_it_will_not_see():
    one = filled(1)
    one.overflow.dropped = 3
    one.conflate(0)
    one.conflate(0)
    notices = [line for frame in pulled(one) for line in frame if line["c"] == "heartbeat"]
    assert notices == [{"c": "heartbeat", "conflated": 0, "dropped": 3}]


def test_while_rights_change_nothing_leaves_and_what_has_to_be_made_is_not_made():
    one, made = filled(60), []

    def making():
        made.append("by the rights of before")
        yield one.encoding.frame([b'{"c":"n","n":60}']), 1

    one.stream(making(), 0, 0)
    one.conflate(0)
    assert one.folds, "it stands in the part of the queue that was not gone through"
    assert one.outbox.has_found_records
    one.hold_back()
    assert numbers(one) == []
    assert not made
    one.let_out(0)
    assert numbers(one) == [*range(61)]


def test_lines_that_are_not_sealed_yet_may_be_rows_of_an_answer():
    one = session()
    assert not one.has_answers
    one.send({"c": "sow"})
    assert one.has_answers
    one.seal(0, 0)
    assert one.has_answers


def test_a_queue_has_room_up_to_its_bounds_and_always_where_nothing_waits():
    one = session(queue_messages_max=3, queue_bytes_max=100)
    assert one.has_room(1000, 1000)
    one.outbox.push(b"x" * 40, 1, 0, 0)
    assert one.has_room(2, 60)
    assert not one.has_room(3, 0)
    assert not one.has_room(0, 61)


def test_lines_said_while_permissions_change_come_after_what_was_kept():
    one, lines = session(), wording()
    update = Update("1", False, body(id=1), 1, 0, 1, 0)
    one.hold_back()
    one.deliver(Delivery("sub", LINES, [lines.line(update)], [(lines, update)]), 1, 0)
    one.send({"c": "later"})
    one.let_out(0)
    one.seal(2, 0)
    assert [line["c"] for (line,) in pulled(one, released=2)] == ["p", "later"]


def test_a_session_is_written_by_its_last_socket_until_that_is_closed():
    one, written = session(), []
    one.write(1)
    one.attach(lambda now_us: written.append(("first", now_us)))
    one.attach(lambda now_us: written.append(("second", now_us)))
    one.write(2)
    one.detach()
    one.write(3)
    assert written == [("second", 2)]


def test_a_session_that_nobody_came_back_to_refers_to_no_writer():
    class Writer:
        def write(self, now_us):
            """Called while the session is waited for."""

    one, writer = session(), Writer()
    one.disconnect()
    one.attach(writer.write)
    one.abandon()
    gone = ref(writer)
    del writer
    assert gone() is None, "it would refer to the session, and both would stay"
