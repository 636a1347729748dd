"""What was done to the machine's clock is said once."""

import logging

import pytest

from sow.server.loop.clock_jump import ClockJumps


class Clock:
    """A clock of which one can say what was done to it."""

    def __init__(self):
        self.ahead, self.stepped_us = 0, 0

    def ahead_us(self):
        return self.ahead


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.WARNING, "sow")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_clock_that_was_set_back_is_sent_once_until_both_agree_again(said):
    clock = Clock()
    watch = ClockJumps(clock)
    for clock.ahead in (0, 900_000, 7_000_000, 6_500_000):
        watch.look()
    assert len(said()) == 1
    assert "ahead of the machine's by 7 s" in said()[0]
    assert watch.ahead_s() == 6.5
    for clock.ahead in (500_000, 3_000_000):
        watch.look()
    assert len(said()) == 2


def test_each_step_forward_is_sent_by_its_own_length(said):
    clock = Clock()
    watch = ClockJumps(clock)
    for clock.stepped_us in (0, 60_000_000, 60_000_000, 65_000_000):
        watch.look()
    assert [text.split("forward by ")[1].split(",")[0] for text in said()] == ["60 s", "5 s"]


def test_what_a_time_server_corrects_is_nobodys_concern():
    clock = Clock()
    clock.ahead = 1_000_000
    assert ClockJumps(clock).ahead_s() == 0.0
