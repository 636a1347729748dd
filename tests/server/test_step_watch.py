"""The longest step of each name is known, and those that keep everybody waiting are said."""

from sow.server.step_watch import LONG_S, StepWatch


def test_the_longest_step_of_each_name_is_kept():
    watch = StepWatch()
    for name, took_s in (("a", 0.001), ("a", 0.004), ("b", 0.002), ("a", 0.003)):
        watch.note(name, took_s)
    assert watch.longest_s == {"a": 0.004, "b": 0.002}
    assert not watch.long


def test_long_steps_are_said_less_and_less_often():
    said = []
    watch = StepWatch(said.append)
    watch.note("a delete", LONG_S)
    assert not said, "only what is longer"
    for _ in range(100):
        watch.note("a delete", 2 * LONG_S)
    watch.note("a query", 0.0714)
    assert watch.long == {"a delete": 100, "a query": 1}
    assert said[0] == "a delete kept everybody waiting for 100 ms"
    assert said[1] == "a delete kept everybody waiting for 100 ms (2 times by now over 50 ms)"
    assert said[-1] == "a query kept everybody waiting for 71 ms"
    assert len(said) == 8, "the 1st, 2nd, 4th ... 64th, and the query"


def test_all_steps_are_counted_by_how_long_they_took():
    watch = StepWatch()
    for took_s in (0.001, 0.002, 20.0):
        watch.note("a", took_s)
    found = dict(watch.times.cumulative())
    assert (found["0.001"], found["0.0025"], found["10.0"], found["+Inf"]) == (1, 2, 2, 3)
