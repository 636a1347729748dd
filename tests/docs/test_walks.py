"""The walks that docs/ARCHITECTURE.md draws, followed in the engine as it runs.

A profiler notes which of our modules is entered when. A walk is drawn truly if its files are
entered in the order in which they stand there. What stands in `sow/server` is not followed: the
harness takes the place of sockets and threads.
"""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sow.core.definitions import SessionSettings
from tests.laws.harness import ORDERS, SECOND, SLOW, World

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
FOLDERS = ("sow", "conflated_topics")


def drawn(name):
    """The files of a walk in the order of the page."""
    (block,) = re.findall(rf"^```text\n{name} +(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    # Before the words of a line stands the file it is about; others are only mentioned.
    lines = (line.split("  ")[:1] for line in re.findall(r"[\w/]+\.py.*", block))
    return [file if file.startswith("conflated_topics/") else f"sow/{file}" for (file,) in lines]


def followed(walk):
    """Our modules in the order in which `walk()` enters them, with those it comes back to."""
    entered = []

    def note(frame, event, _argument):
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(ROOT):
            place = file.relative_to(ROOT)
            if place.parts[0] in FOLDERS:
                entered.append(place.as_posix())

    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
    return entered


def missing(files, entered):
    """The first file that is not entered after those before it, or None."""
    rest = iter(entered)
    return next((file for file in files if file not in rest), None)


def publish():
    world = World(ORDERS, SLOW)
    follower, client = world.client(), world.client()
    follower.say(c="sow_and_subscribe", t="orders", filter="/symbol = 'A'", opts="oof")

    def walk():
        client.send(b'{"c":"publish","t":"orders","d":{"id":1,"symbol":"A"}}')
        follower.lines()

    return walk


def query():
    world = World(ORDERS)
    world.publish("orders", {"id": 1, "symbol": "A", "price": 1})
    client = world.client()
    return lambda: client.send(b'{"c":"sow","t":"orders","filter":"/price > 0"}')


def conflated():
    world = World(ORDERS, SLOW)
    follower = world.client()
    follower.say(c="sow_and_subscribe", t="orders-C")

    def walk():
        world.publish("orders", {"id": 1})
        world.advance(SECOND)
        follower.lines()

    return walk


def queue():
    topic = replace(ORDERS, conflation_policy="always")
    world = World(topic, sessions=SessionSettings(queue_messages_max=100))
    follower, client = world.client(), world.client()
    follower.say(c="logon", client="grid")
    follower.say(c="subscribe", t="orders")

    def walk():
        for price in range(3):
            client.execute(b'{"c":"publish","t":"orders","d":{"id":1,"price":%d}}' % price)
        follower.lines()

    return walk


WALKS = [publish, query, conflated, queue]


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.__name__)
def test_a_walk_enters_the_files_in_the_order_that_is_drawn(walk):
    files = [file for file in drawn(walk.__name__) if not file.startswith("sow/server/")]
    assert len(files) > 6
    entered = followed(walk())
    assert missing(files, entered) is None


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.__name__)
def test_every_file_that_is_drawn_is_there(walk):
    assert [file for file in drawn(walk.__name__) if not (ROOT / file).is_file()] == []


def test_a_file_at_the_wrong_place_is_found():
    files = [file for file in drawn("publish") if not file.startswith("sow/server/")]
    down, up = files.index("sow/store/memory.py"), files.index("sow/streaming/router.py")
    files[down], files[up] = files[up], files[down]
    assert missing(files, followed(publish())) is not None
