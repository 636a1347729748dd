"""The windows of a record worked out from times are those that the conflator has cut."""

import random

import pytest

from conflated_topics import FocusedConflator, PerKey, Tick
from sow.history import record_window_history
from sow.history.record_window_history import RecordUpdate, windows_of

INTERVAL_US = 1000
SCHEDULES = {"per-key": PerKey, "tick": Tick}


def came(*times_us, counts=None):
    passes = counts or [True] * len(times_us)
    return [
        RecordUpdate(n, at, ok) for n, (at, ok) in enumerate(zip(times_us, passes, strict=True), 1)
    ]


def windows(updates, schedule="per-key", since_us=None):
    found = windows_of(updates, schedule, INTERVAL_US, since_us)
    return [(one.opened_us, one.ends_us, [u.bookmark for u in one.updates]) for one in found]


def test_a_window_opens_at_its_first_update_and_ends_an_interval_later():
    updates = came(100, 500, 1099, 1100, 5000)
    assert windows(updates) == [(100, 1100, [1, 2, 3]), (1100, 2100, [4]), (5000, 6000, [5])]


def test_a_tick_ends_windows_at_multiples_of_the_interval():
    updates = came(100, 999, 1000, 5000)
    assert windows(updates, "tick") == [(100, 1000, [1, 2]), (1000, 2000, [3]), (5000, 6000, [4])]


def test_what_does_not_pass_opens_a_window_only_where_it_takes_something_away():
    updates = came(100, 3000, 6000, counts=[True, False, False])
    assert windows(updates) == [(100, 1100, [1]), (3000, 4000, [2])]


def test_where_windows_touch_those_before_a_pause_are_not_sent():
    updates = came(1500, 2400, 3300, 5000, 5100)
    assert windows(updates, since_us=1000) == [(5000, 6000, [4, 5])]
    assert windows(updates, since_us=500)[0] == (1500, 2500, [1, 2])
    assert windows(came(1500, 2400), since_us=1000) == []


def test_after_a_pause_it_is_known_what_the_last_update_left_there():
    """A record that is removed and published again each time, after a pause: of the first removal
    nobody knows whether it takes anything away, of the second one it is plain."""
    updates = came(1500, 1510, 5000, 5010, 9000, counts=[False, True] * 2 + [True])
    for schedule in SCHEDULES:
        assert [bookmarks for *_, bookmarks in windows(updates, schedule, since_us=1000)][-2:] == [
            [3, 4],
            [5],
        ]


def cut(updates, schedule):
    """What the conflator makes of them: the updates that each release consists of."""
    held = set()
    conflator = FocusedConflator(
        SCHEDULES[schedule](INTERVAL_US), held.__contains__, lambda a, b: a + b
    )
    found = []

    def release(until_us):
        while (due_us := conflator.due_us()) is not None and due_us <= until_us:
            values, removals = conflator.take(due_us)
            held.update(key for key, _ in values)
            found.extend(value for _, value in values)
            held.difference_update(one.key for one in removals)
            found.extend([one.value[-1:] for one in removals])

    for one in updates:
        release(one.at_us)
        conflator.offer(["k"], [(one.bookmark,)], one.at_us, [one.counts])
    release(10**9)
    return found


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_law_they_are_those_of_the_conflator(schedule):
    for seed in range(300):
        assert worked_out(seed, schedule) == by_conflator(seed, schedule), seed


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_law_who_has_read_less_of_the_log_says_less_and_nothing_else(schedule):
    for seed in range(300):
        updates, pick = drawn(seed, passing=0.6), random.Random(seed)
        first = pick.randrange(len(updates))
        since_us = updates[first - 1].at_us if first else 0
        some = windows_of(updates[first:], schedule, INTERVAL_US, since_us)
        assert some == windows_of(updates, schedule, INTERVAL_US, None)[-len(some) or 10**9 :], seed


def drawn(seed, passing=1.0):
    pick = random.Random(seed)
    times = sorted(pick.sample(range(1, 12_000), pick.randint(1, 25)))
    return came(*times, counts=[pick.random() < passing for _ in times])


def worked_out(seed, schedule):
    return [tuple(u.bookmark for u in one.updates)
            for one in windows_of(drawn(seed), schedule, INTERVAL_US, None)]  # fmt: skip


def by_conflator(seed, schedule):
    return cut(drawn(seed), schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_law_can_fail(schedule, monkeypatch):
    """Planted: windows that each update makes longer, as no conflated topic has them."""
    real = record_window_history.windows_of
    monkeypatch.setitem(
        globals(),
        "windows_of",
        lambda came, kind, interval, since: real(came, kind, interval + 1, since),
    )
    with pytest.raises(AssertionError):
        test_law_they_are_those_of_the_conflator(schedule)
