"""Where what was folded stands: in its old place or at the end, as docs/slow-clients.md draws.

The figures come out the same whatever the disk does: whether the older update is durable when the
next one comes or on its way, and whether they are in one commit group or in several.
"""

import random

import pytest

from sow.core.definitions import Merge
from tests.effort import seeds
from tests.laws.harness import SlowDisk
from tests.laws.slow import FIGURES, figure, slow, topic, world_of

SUM = {"merges": (Merge("/v", "sum"),)}
PLACES = {
    "none": ({"conflation_policy": "off"}, "A1 B2 C3 A4 C5"),
    "replace": ({}, "A4 B2 C5"),
    "append": ({"placement": "append"}, "B2 A4 C5"),
    "merge and replace": (SUM, "A5 B2 C8"),
    "merge and append": ({"placement": "append"} | SUM, "B2 A5 C8"),
}
ANSWERS = {
    ("current", "replace"): "A1 B2 C3",
    ("current", "append"): "A1 B2 C3",
    ("new", "replace"): "A4 B2 C5",
    ("new", "append"): "B2 A4 C5",
    ("both", "replace"): "A5 B2 C8",
    ("both", "append"): "B2 A5 C8",
    ("neither", "replace"): "A1 B2 C3 A4 C5",
    ("neither", "append"): "A1 B2 C3 A4 C5",
}
"""What leaves by what a Merger returns."""
SETTINGS = PLACES | {
    f"{answer} and {placement}": (
        {"placement": placement, "merger": f"tests.laws.mergers:{answer}"},
        left,
    )
    for (answer, placement), left in ANSWERS.items()
}
EVERY = [
    {"conflation_policy": policy} | settings
    for policy in ("always", "conflate")
    for settings, _ in SETTINGS.values()
]
SAME_GROUP = None
TIMINGS = 15


def timing_of(seed):
    """After each update but the last: the next one comes in the same commit group, or in another
    one while so many groups are on their way to the disk."""
    return random.Random(seed).choices((SAME_GROUP, 0, 1, 2), k=len(FIGURES) - 1)


def said(lines):
    return " ".join(f"{document['id']}{document['v']}" for _, document in lines)


def left(name):
    settings, _ = PLACES[name]
    return " ".join(figure(**{"placement": "replace"} | settings))


def test_no_conflation():
    assert left("none") == "A1 B2 C3 A4 C5"


def test_simple_replace():
    assert left("replace") == "A4 B2 C5"


def test_simple_append():
    assert left("append") == "B2 A4 C5"


def test_merge_and_replace():
    assert left("merge and replace") == "A5 B2 C8"


def test_merge_and_append():
    assert left("merge and append") == "B2 A5 C8"


def left_by_each_setting(timing):
    """What leaves of the figures' updates by each of the settings, where the disk is so slow."""
    names = [f"t{number}" for number in range(len(EVERY))]
    world = SlowDisk(*(topic(name, **one) for name, one in zip(names, EVERY, strict=True)))
    clients = [slow(world, {"c": "subscribe", "t": name}) for name in names]
    for (record, value), lag in zip(FIGURES, (*timing, 2), strict=True):
        for name in names:
            world.say_later(name, {"id": record, "v": value})
        if lag is not SAME_GROUP:
            world.lag = lag
            world.settle()
    for client in clients:
        client.session.conflate(world.now)
        while client.session.folds:
            client.session.fold_some(world.now)
    world.check()
    world.catch_up()
    return [said(client.data()) for client in clients]


def test_the_figures_do_not_depend_on_the_disk():
    expected = [left for _, left in SETTINGS.values()] * 2
    for seed in seeds(TIMINGS):
        timing = timing_of(seed)
        assert left_by_each_setting(timing) == expected, timing


def test_append_starves_nobody():
    world = world_of(topic(placement="append", conflation_policy="always"))
    client = slow(world)
    world.publish("t", {"id": "other"}, {"id": "busy"})
    for px in range(30):
        world.publish("t", {"id": f"new{px % 7}"}, {"id": "busy", "px": px})
    names = [document["id"] for _, document in client.data()]
    assert names.index("busy") < len(names) - 1


@pytest.mark.parametrize("lag", [0, 1, 2, 50])
def test_append_starves_nobody_while_the_disk_is_busy(lag):
    """An update that was moved to the end eight times keeps its place, however it came there."""
    world = SlowDisk(topic(placement="append", conflation_policy="always"))
    client = slow(world)
    world.lag = lag
    for turn in range(12):
        world.publish("t", {"id": "busy", "turn": turn}, {"id": turn})
    world.catch_up()
    assert [document["id"] for _, document in client.data()] == [*range(8), "busy", *range(8, 12)]
