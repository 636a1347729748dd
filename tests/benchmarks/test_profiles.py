"""Profiles are taken of what they say, and their parts are a whole."""

import zlib
from threading import Thread

import pytest

from sow.messages.json import read_document
from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.profiles import PROFILES, REST, shares, subject, tables
from tests.benchmarks.records import configuration, every_order
from tests.benchmarks.sampling import CALLS, ELSEWHERE, THREADS, Sampler, Samples
from tests.benchmarks.sizes import TINY

IN_PROCESS = ("large-messages", "copies", "ranges")
SHORTEST = "low-rates"  # which shows by default that they are taken; `make slow` takes all
WITH_SERVER = sorted(PROFILES.keys() - {*IN_PROCESS, SHORTEST})


def sum_to_one(parts):
    paths = {one.path for one in parts}
    return all(
        sum(one.share for one in parts if one.path == path) == pytest.approx(1) for path in paths
    )


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_profile_without_a_server_is_taken(name):
    assert list(PROFILES[name](TINY))


@pytest.mark.edge
@pytest.mark.parametrize(
    "name", [SHORTEST, *(pytest.param(name, marks=pytest.mark.slow) for name in WITH_SERVER)]
)
def test_a_profile_of_a_server_is_taken(name):
    assert sum_to_one(list(PROFILES[name](TINY)))


def test_a_sample_is_the_innermost_function_of_ours():
    sampler = Sampler()
    sampler.begin()
    while not (found := sampler.end().innermost().keys() - {ELSEWHERE, THREADS}):
        sampler.begin()
        for _ in range(1000):
            read_document(b'{"a":[%b]}' % b",".join([b"1.50"] * 1000))
    modules = {name.partition(" ")[0] for name in found}
    assert modules <= {"sow/messages/json.py", "sow/core/lossless_numbers.py"}


def test_the_smaller_parts_are_put_together():
    samples = Samples({f"caller > part {n}": 100.0 - n for n in range(20)}, 2.0)
    parts = list(shares("a path", samples, 1000, "ms"))
    assert sum_to_one(parts)
    assert sum(one.value for one in parts) == pytest.approx(2000)
    assert [parts[0].part, parts[-1].part] == ["part 0", REST]


def test_what_other_threads_take_is_counted_apart():
    def compressing():
        for _ in range(20):
            zlib.compress(bytes(1 << 20))  # without the interpreter lock

    sampler, thread = Sampler(), Thread(target=compressing)
    sampler.begin()
    thread.start()
    while thread.is_alive():
        sum(range(1000))
    found = sampler.end().innermost()
    assert found.keys() == {ELSEWHERE, THREADS}
    assert found[THREADS] > 0


def test_what_calls_are_about_is_said_by_the_last_that_says_it():
    put, copied = "sow/store/memory.py put", "sow/topic/conflated_topic.py _put"
    published = "sow/engine/running_topics.py publish"
    about = [subject(CALLS.join(calls)) for calls in ((published, put), (published, copied, put))]
    assert about == ["the table of the topic", "the conflated copy: windows, its table"]
    assert subject(THREADS) == THREADS


def test_every_table_of_a_topic_is_weighed():
    driver = EngineDriver(configuration(index=True))
    bodies = every_order(1000)
    driver.load(bodies)
    parts = tables(driver, sum(map(len, bodies)))
    assert all(size > 0 for size in parts.values())
    assert sum(parts.values()) / 1000 < 700
