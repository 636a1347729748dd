"""Texts that clients send leave nothing behind: all objects made of them are released by reference
counting, after their last use and two sweeps."""

import gc

from sow.core.containers import sweep
from tests.cases import all_cases
from tests.laws.harness import SECOND, World

PROJECTED = "projection=[/symbol,SUM(/qty * {n}) AS /s],grouping=[/symbol]"
REQUESTED = {
    "filter": {"filter": "/qty > {n}.5"},
    "filter of several functions": {"filter": "COALESCE(/qty, {n}) > 1 OR /id > /qty * {n}"},
    "pattern": {"filter": "/symbol LIKE 'a.*b{n}'"},
    "refused filter": {"filter": "/qty > {n} AND"},
    "refused pattern": {"filter": "/symbol LIKE '(a{n}'"},
    "order": {"order_by": "/qty * {n}"},
    "select list": {"opts": "select=[-/,+/qty{n}]"},
    "refused select list": {"opts": "select=[-/,qty{n}]"},
    "projection": {"opts": PROJECTED},
    "refused projection": {"opts": PROJECTED.replace("SUM(", "SUN(")},
    "topics": {"t": "^orders$|{n}"},
    "refused topics": {"t": "(ord{n}"},
    "window": {"opts": "live", "order_by": "/qty * {n}", "top_n": 3},
}
TEXTS = 12
COMMANDS = [
    (kind, command)
    for kind in REQUESTED
    for command in ("sow", "sow_and_subscribe")
    if command != "sow" or kind != "window"
]


@all_cases(("kind", "command"), COMMANDS)
def test_distinct_texts_leave_nothing_behind(kind, command):
    world = World()
    for number in range(20):
        world.publish("orders", {"id": number, "symbol": f"s{number}", "qty": number})
    client = world.client()
    # Threads of servers that other tests left create and release objects meanwhile: of one text the
    # middle one of three counts is taken, and of many texts one of ten is enough. Two objects for
    # each text, the least that there could be, are four times as much.
    _, one, _ = sorted(left_by(world, client, kind, command, [0] * TEXTS) for _ in range(3))
    assert any(
        left_by(world, client, kind, command, range(start, start + TEXTS)) < one + TEXTS / 2
        for start in range(1_000, 11_000, 1_000)
    )


def left_by(world, client, kind, command, numbers):
    """How many more objects there are after all requests; the first two do not count."""
    for number in numbers[:2]:
        ask(world, client, kind, command, number)
    gc.collect()
    before = objects()
    gc.disable()
    for number in numbers:
        ask(world, client, kind, command, number)
    left = objects() - before
    gc.enable()
    return left


def ask(world, client, kind, command, number):
    requested = {name: fill(value, number) for name, value in REQUESTED[kind].items()}
    lines = client.say(**{"c": command, "t": "orders", "cid": "1", **requested})
    assert (lines[0].get("status") == "failure") is kind.startswith("refused"), lines[0]
    world.publish("orders", {"id": 1, "symbol": "s1", "qty": number})
    world.advance(SECOND)
    client.say(c="unsubscribe", s="all", cid="2")


def fill(value, number):
    return value.replace("{n}", str(number)) if isinstance(value, str) else value


def objects():
    for _ in range(2):
        list(sweep())
    return len(gc.get_objects())
