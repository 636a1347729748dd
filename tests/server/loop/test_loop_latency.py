"""The longest step of each name is known, and those that keep everybody waiting are said."""

from sow.server.loop.loop_latency import LONG_S, LoopLatency


def test_the_longest_step_of_each_name_is_kept():
    watch = LoopLatency()
    for name, took_s in (("a", 0.001), ("a", 0.004), ("b", 0.002), ("a", 0.003)):
        watch.note(name, took_s)
    assert watch.longest_s == {"a": 0.004, "b": 0.002}
    assert not watch.long


class Clock:
    now_s = 1000.0


def test_the_first_long_step_is_said_at_once_and_then_one_line_a_minute():
    said, clock = [], Clock()
    watch = LoopLatency(said.append, lambda: clock.now_s)
    watch.note("a delete", LONG_S)
    assert not said, "only what is longer"
    watch.note("a delete", 2 * LONG_S)
    assert said == ["a delete kept everybody waiting for 100 ms"]
    for at in range(100):
        watch.note(f"kind {at}", 2 * LONG_S)
        watch.note("a query", 0.2714 if at == 50 else 0.06)
        watch.look()
        clock.now_s += 0.5
    assert len(said) == 1
    clock.now_s += 10
    watch.look()
    assert said[1:] == [
        "200 steps kept everybody waiting for over 50 ms each; the longest, a query, for 271 ms"
    ]
    assert (watch.long["a query"], watch.long["a delete"], watch.long["kind 7"]) == (100, 1, 1)


def test_long_steps_write_no_more_lines_than_minutes_have_passed():
    said, clock = [], Clock()
    watch = LoopLatency(said.append, lambda: clock.now_s)
    for at in range(36_000):
        watch.note(f"kind {at % 7}", 0.06)
        clock.now_s += 0.1
    assert len(said) == 60


def test_after_a_quiet_minute_a_long_step_is_said_at_once_again():
    said, clock = [], Clock()
    watch = LoopLatency(said.append, lambda: clock.now_s)
    for took_s in (0.06, 0.07, 0.08):
        watch.note("a", took_s)
        clock.now_s += 61
        watch.look()
    assert said == [f"a kept everybody waiting for {ms} ms" for ms in (60, 70, 80)]


def test_all_steps_are_counted_by_how_long_they_took():
    watch = LoopLatency()
    for took_s in (0.001, 0.002, 20.0):
        watch.note("a", took_s)
    found = dict(watch.times.cumulative())
    assert (found["0.001"], found["0.0025"], found["10.0"], found["+Inf"]) == (1, 2, 2, 3)
