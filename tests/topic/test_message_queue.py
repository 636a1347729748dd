"""Who gets which message: order, backlogs, fairness, barriers, and leases that end."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import QueueSettings
from sow.topic.message_queue import LeaseState, MessageQueue, QueueConsumer
from tests.cases import all_cases
from tests.effort import examples

PLAIN = QueueSettings("orders", lease_us=100)
LEASE_US = 100


def queue(count=0, **settings):
    made = MessageQueue(replace(PLAIN, **settings))
    for bookmark in range(1, count + 1):
        made.add(bookmark, f"{bookmark}-k", 0.0, False)
    return made


def consumer(made, name, backlog=1, is_open=lambda: True):
    one = QueueConsumer(backlog, lambda _bookmark: name, is_open)
    made.join(one)
    return one


def end(made, consumer):
    """A consumer is gone, and its deliveries count."""
    held = [*consumer.held.values()]
    made.leave(consumer)
    for message in held:
        made.cancel(message, counts=True)


def given_out(made, now_us=0, most=100):
    """Who has got which message, in order."""
    found = [(one.name_lease(0), message.bookmark) for one, message in made.give(now_us, most)]
    made.check()
    return found


class Unlisted(dict):
    """What nobody goes through, since it may have a million entries."""

    def __iter__(self):
        raise AssertionError("goes through all messages")

    keys = values = items = __iter__


def test_nothing_that_is_done_goes_through_what_waits():
    made = queue(400, deliveries_max=50)
    made.messages = Unlisted(made.messages)
    first = consumer(made, "first")
    ((_, kept),) = made.give(0, 1)
    for number in range(300):
        one = consumer(made, "a")
        ((_, message),) = made.give(number, 1)
        made.extend(message, number + 150)
        if number % 2:
            made.forget(message)
        else:
            made.cancel(message, counts=True)
        made.leave(one)
    made.leave(first)
    assert made.end_leases(LEASE_US, 9) == [kept]
    assert (made.leased, made.due_us(), len(made.messages)) == (0, None, 250)


def test_messages_go_in_order_and_by_priority_first():
    made = queue()
    for bookmark, priority in ((1, 0), (2, 5), (3, 0), (4, 5), (5, -1)):
        made.add(bookmark, f"{bookmark}-k", float(priority), False)
    consumer(made, "a", 9)
    assert [bookmark for _, bookmark in given_out(made)] == [2, 4, 1, 3, 5]


@all_cases(("fairness", "wanted"), [
        ("fast", "aaab"),
        ("round-robin", "abca"),
        ("proportional", "abcb"),
    ])  # fmt: skip
def test_a_fairness_model_says_who_gets_the_next_message(fairness, wanted):
    made = queue(4, fairness=fairness)
    for name, backlog in (("a", 3), ("b", 9), ("c", 4)):
        consumer(made, name, backlog)
    assert "".join(name for name, _ in given_out(made)) == wanted


def test_a_consumer_has_no_more_than_its_backlog_and_all_no_more_than_theirs():
    made = queue(9, backlog_max=3)
    one, _ = consumer(made, "a", 2), consumer(made, "b", 2)
    assert given_out(made) == [("a", 1), ("b", 2), ("a", 3)]
    made.forget(one.held[1])
    assert given_out(made) == [("b", 4)]


def test_who_is_not_open_gets_nothing_until_it_is_offered_again():
    doors = [False]
    made = queue(1)
    one = consumer(made, "a", 1, lambda: doors[0])
    assert not made.can_give
    doors[0] = True
    assert not made.can_give
    made.offer(one)
    assert given_out(made) == [("a", 1)]


def test_a_barrier_waits_for_all_before_it_and_holds_up_all_after_it():
    made = queue()
    for bookmark, is_barrier in ((1, False), (2, False), (3, True), (4, True), (5, False)):
        made.add(bookmark, f"{bookmark}-k", float(bookmark), is_barrier)
    one = consumer(made, "a", 9)
    assert given_out(made) == [("a", 2), ("a", 1)]
    made.forget(one.held[2])
    assert given_out(made) == []
    made.cancel(one.held[1])
    assert given_out(made) == [("a", 1)]
    for done, following in ((1, [3]), (3, [4]), (4, [5])):
        made.forget(one.held[done])
        assert [bookmark for _, bookmark in given_out(made)] == following


def test_a_lease_ends_in_time_and_only_its_holder_has_it_until_then():
    made = queue(1)
    consumer(made, "a")
    given_out(made, 10)
    assert made.due_us() == 110
    assert made.held(1, "a", 109).deliveries == 1
    assert made.held(1, "a", 110) is None
    assert made.held(1, "b", 50) is made.held(1, "", 50) is made.held(2, "a", 50) is None
    assert made.end_leases(109, 9) == []
    assert [message.bookmark for message in made.end_leases(110, 9)] == [1]
    assert given_out(made, 120) == [("a", 1)]
    assert made.held(1, "a", 120).deliveries == 2


def test_an_extended_lease_ends_later_and_a_shortened_one_earlier():
    made = queue(2)
    one = consumer(made, "a", 2)
    given_out(made)
    made.extend(one.held[1], 500)
    made.extend(one.held[2], 50)
    assert made.due_us() == 50
    assert [message.bookmark for message in made.end_leases(100, 9)] == [2]
    assert made.due_us() == 500
    made.check()


def test_a_delivery_counts_and_a_cancel_takes_it_back():
    made = queue(1, deliveries_max=2)
    one = consumer(made, "a")
    for _ in range(3):
        given_out(made)
        made.cancel(one.held[1])
    for _ in range(2):
        assert given_out(made) == [("a", 1)]
        made.end_leases(100, 9)
    assert [message.deliveries for message in made.dead] == [2]
    assert given_out(made) == []
    made.forget(made.dead.popleft())
    made.check()
    assert not made.messages


def test_what_a_consumer_holds_goes_back_when_it_ends_and_stays_leased_when_it_leaves():
    made = queue(2)
    one, other = consumer(made, "a"), consumer(made, "b")
    given_out(made)
    made.leave(one)
    assert (made.leased, made.messages[1].holder) == (2, "a")
    end(made, other)
    assert (made.leased, made.messages[2].holder) == (1, "")
    made.check()
    assert not made.consumers


def test_what_was_leased_before_is_leased_until_its_end():
    made = queue()
    made.add(1, "1-k", 0.0, False, LeaseState(3, "a", 70))
    made.add(2, "2-k", 0.0, False, LeaseState(2))
    consumer(made, "b", 9)
    assert given_out(made) == [("b", 2)]
    assert made.held(1, "a", 60).deliveries == 3
    made.end_leases(70, 9)
    assert given_out(made) == [("b", 1)]


def test_a_long_life_leaves_no_heap_behind():
    made = queue()
    one = consumer(made, "a", 2)
    for bookmark in range(1, 2_000):
        made.add(bookmark, f"{bookmark}-k", 0.0, False)
        given_out(made)
        made.forget(one.held[bookmark])
    assert len(made._ready) + len(made._ends) < 500
    assert not made.messages
    assert made.due_us() is None


acts = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("give"), st.integers(1, 3)),
    st.tuples(st.just("done"), st.integers(0, 9)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.integers(1, 120)),
    st.tuples(st.just("end"), st.integers(0, 2)),
)


@examples(100)
@given(st.sampled_from(["fast", "round-robin", "proportional"]), st.lists(acts, max_size=40))
def test_no_message_is_lost_or_with_two_whatever_happens(fairness, taken):
    made = queue(fairness=fairness, backlog_max=4)
    consumers = [consumer(made, name, 2) for name in "abc"]
    left, now_us, number, barriers = set(), 0, 0, set()
    for act, *values in taken:
        held = [message for message in made.messages.values() if message.holder]
        match act:
            case "add":
                number += 1
                made.add(number, f"{number}-k", float(values[0]), values[1])
                left.add(number)
                barriers |= {number} if values[1] else set()
            case "give":
                for _, message in made.give(now_us, values[0]):
                    before = {one for one in left if one < message.bookmark}
                    assert not before & barriers, "a message overtakes a barrier"
                    assert message.bookmark not in barriers or not before
            case "done" if held:
                message = held[values[0] % len(held)]
                made.forget(message)
                left.discard(message.bookmark)
            case "cancel" if held:
                made.cancel(held[values[0] % len(held)])
            case "wait":
                now_us += values[0]
                made.end_leases(now_us, 9)
            case "end":
                end(made, consumers[values[0]])
                consumers[values[0]] = consumer(made, "abc"[values[0]], 2)
        made.check()
        assert set(made.messages) == left
        assert made.leased <= 4
