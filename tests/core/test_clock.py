"""The clock of the server under sources that are moved by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.clock import JUMP_US_MAX, SECOND_US, STEP_US, SharedLogClock, SystemClock
from tests.virtual_clock import VirtualClock

HOUR_US = 3600 * SECOND_US
YEARS_US = 10 * 365 * 24 * HOUR_US


class Machine:
    """A wall clock and a monotonic one."""

    def __init__(self):
        self.wall_us = 1_800_000_000 * SECOND_US
        self.monotonic_us = 5 * SECOND_US
        self.clock = SystemClock(lambda: self.wall_us, lambda: self.monotonic_us * 1000)

    def passes(self, by_us, wall_ppm=0):
        """Time passes; the wall clock runs a little fast or slow."""
        self.monotonic_us += by_us
        self.wall_us += by_us + by_us * wall_ppm // SECOND_US

    def runs(self, seconds, wall_ppm=0):
        """Time passes while somebody asks for it ten times a second."""
        for _ in range(10 * seconds):
            self.passes(SECOND_US // 10, wall_ppm)
            self.clock.now_us()

    @property
    def error_us(self):
        return self.wall_us - self.clock.now_us()


@pytest.fixture
def machine():
    return Machine()


def test_it_reports_what_the_wall_clock_says(machine):
    for _ in range(100):
        machine.passes(123_456)
        assert machine.error_us == 0


@pytest.mark.parametrize("ppm", [50, -50])
def test_small_drift_is_followed_unseen(machine, ppm):
    for _ in range(1000):
        before = machine.clock.now_us()
        machine.passes(SECOND_US, ppm)
        passed = machine.clock.now_us() - before
        assert abs(passed - SECOND_US) <= SECOND_US * 500 // 10**6
        assert abs(machine.error_us) <= 200
    assert machine.clock.ahead_us() <= 200
    assert machine.clock.stepped_us == 0


def test_a_step_back_is_made_up_for_in_ten_times_as_long(machine):
    machine.wall_us -= 60 * SECOND_US
    machine.runs(1)
    assert machine.clock.ahead_us() == pytest.approx(60 * SECOND_US, abs=SECOND_US)
    before = machine.clock.now_us()
    machine.runs(10)
    assert machine.clock.now_us() - before == pytest.approx(9 * SECOND_US, abs=1000)
    machine.runs(600)
    assert machine.clock.ahead_us() <= STEP_US
    machine.runs(60)
    assert machine.clock.ahead_us() <= STEP_US


def test_a_step_forward_is_followed_at_once(machine):
    machine.wall_us += HOUR_US
    machine.passes(SECOND_US)
    assert machine.error_us == 0
    assert machine.clock.stepped_us == HOUR_US


def test_a_small_step_forward_is_not_seen(machine):
    machine.wall_us += STEP_US // 2
    before = machine.clock.now_us()
    machine.passes(SECOND_US)
    assert machine.clock.now_us() - before <= SECOND_US + 500
    assert machine.clock.stepped_us == 0


def test_a_machine_that_slept_has_the_time_when_it_wakes(machine):
    machine.runs(3)
    machine.wall_us += 8 * HOUR_US  # the monotonic clock slept, too
    machine.passes(SECOND_US)
    assert machine.error_us == 0


def test_a_long_silence_does_not_make_it_correct_too_much(machine):
    machine.wall_us -= 10 * SECOND_US
    machine.runs(2)
    machine.passes(HOUR_US)
    assert machine.error_us == 0, "ten seconds were to be made up for, not six minutes"
    assert machine.clock.stepped_us == 0


def test_it_goes_on_from_what_an_earlier_life_has_sent(machine):
    newest_us = machine.wall_us + HOUR_US
    machine.clock.go_on_from(newest_us)
    assert machine.clock.now_us() == newest_us
    assert machine.clock.ahead_us() == HOUR_US
    machine.runs(10)
    assert machine.clock.now_us() - newest_us == pytest.approx(9 * SECOND_US, abs=1000)


def test_what_an_earlier_life_has_sent_is_usually_past(machine):
    machine.clock.go_on_from(machine.wall_us - HOUR_US)
    assert machine.error_us == 0
    assert machine.clock.ahead_us() == 0


def test_a_time_that_is_years_ahead_stops_nothing(machine):
    machine.clock.go_on_from(machine.wall_us + YEARS_US)
    before = machine.clock.now_us()
    machine.runs(100)
    assert machine.clock.now_us() - before >= 90 * SECOND_US
    assert machine.clock.ahead_us() == pytest.approx(YEARS_US, abs=100 * SECOND_US)


waits = st.tuples(st.just("passes"), st.integers(0, 3 * SECOND_US))
steps = st.tuples(st.just("steps"), st.integers(-HOUR_US, HOUR_US))
drifts = st.tuples(st.just("steps"), st.integers(-2 * STEP_US, 2 * STEP_US))
sleeps = st.tuples(st.just("sleeps"), st.integers(0, HOUR_US))
lives = st.tuples(st.just("goes on"), st.integers(-HOUR_US, HOUR_US))


@given(st.lists(st.one_of(waits, waits, waits, drifts, steps, sleeps, lives), max_size=60))
def test_it_never_goes_back_never_stops_and_comes_to_agree(history):
    machine = Machine()
    now = machine.clock.now_us()
    for kind, by in history:
        before, passed = now, 0
        if kind == "passes":
            machine.passes(passed := by)
        elif kind == "goes on":
            machine.clock.go_on_from(machine.wall_us + by)
        else:
            machine.wall_us += by
        now = machine.clock.now_us()
        assert now - before >= passed * 9 // 10 - 1
    for _ in range(200):
        machine.passes(HOUR_US)
        machine.clock.now_us()
    assert machine.error_us == 0


def test_a_virtual_clock_goes_on_too():
    clock = VirtualClock(10)
    clock.go_on_from(5)
    assert clock.now_us() == 10
    clock.go_on_from(50)
    assert clock.now_us() == 50


def test_a_node_follows_no_jump_of_its_clock_over_a_minute():
    machine = Machine()
    machine.clock = SystemClock(
        lambda: machine.wall_us, lambda: machine.monotonic_us * 1000, JUMP_US_MAX
    )
    machine.runs(2)
    for off_us in (3 * HOUR_US, -5 * HOUR_US):
        before_us = machine.clock.now_us()
        machine.wall_us += off_us
        machine.runs(5)
        assert machine.clock.now_us() - before_us == pytest.approx(5 * SECOND_US, abs=10_000)
    assert machine.clock.refused_us == pytest.approx(-2 * HOUR_US, abs=SECOND_US)
    assert (machine.clock.stepped_us, machine.clock.ahead_us()) == (0, 0)
    machine.wall_us += 30 * SECOND_US  # what drifts is followed
    machine.runs(2)
    assert machine.clock.stepped_us == pytest.approx(30 * SECOND_US, abs=SECOND_US)


def test_the_time_of_a_shared_log_goes_on_where_it_was_whatever_the_machine_says():
    machine = Machine()

    def own():
        return SystemClock(
            lambda: machine.wall_us, lambda: machine.monotonic_us * 1000, JUMP_US_MAX
        )

    for off_us in (-3 * HOUR_US, 3 * HOUR_US):
        clock, log_us = SharedLogClock(own), machine.wall_us + off_us
        clock.go_on_from(log_us)
        machine.passes(SECOND_US)
        assert (clock.now_us(), clock.stepped_us, clock.ahead_us()) == (log_us, 0, 0)
        clock.lead(log_us + SECOND_US)
        assert clock.now_us() == log_us + SECOND_US
        for _ in range(50):
            machine.passes(SECOND_US // 10)
            clock.now_us()
        assert clock.now_us() == log_us + 6 * SECOND_US
        assert clock.leading.refused_us == -off_us
        assert (clock.stepped_us, clock.ahead_us()) == (0, 0)
    clock.lead(log_us)  # never back
    assert clock.now_us() >= log_us
