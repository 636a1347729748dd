"""Profiles are taken of what they say, and their parts are a whole."""

import pytest

from sow.messages.json import read_document
from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.profiles import PROFILES, REST, shares, tables
from tests.benchmarks.records import configuration, every_order
from tests.benchmarks.sampling import ELSEWHERE, Sampler, Samples
from tests.benchmarks.sizes import TINY

IN_PROCESS = ("large-messages", "copies", "ranges")
WITH_SERVER = sorted(PROFILES.keys() - set(IN_PROCESS))


def sum_to_one(parts):
    paths = {one.path for one in parts}
    return all(
        sum(one.share for one in parts if one.path == path) == pytest.approx(1) for path in paths
    )


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_profile_without_a_server_is_taken(name):
    assert list(PROFILES[name](TINY))


@pytest.mark.edge
@pytest.mark.parametrize("name", WITH_SERVER)
def test_a_profile_of_a_server_is_taken(name):
    assert sum_to_one(list(PROFILES[name](TINY)))


def test_a_sample_is_the_innermost_function_of_ours():
    sampler = Sampler()
    sampler.begin()
    while not (found := sampler.end().found):
        sampler.begin()
        for _ in range(1000):
            read_document(b'{"a":[%b]}' % b",".join([b"1.50"] * 1000))
    modules = {name.partition(" ")[0] for name in found.keys() - {ELSEWHERE}}
    assert modules <= {"sow/messages/json.py", "sow/digits.py"}


def test_the_smaller_parts_are_put_together():
    samples = Samples({f"part {n}": 100 - n for n in range(20)}, 2.0)
    parts = list(shares("a path", samples, 1000, "ms"))
    assert sum_to_one(parts)
    assert sum(one.value for one in parts) == pytest.approx(2000)
    assert [parts[0].part, parts[-1].part] == ["part 0", REST]


def test_every_table_of_a_topic_is_weighed():
    driver = EngineDriver(configuration(index=True))
    bodies = every_order(1000)
    driver.load(bodies)
    parts = tables(driver, sum(map(len, bodies)))
    assert all(size > 0 for size in parts.values())
    assert sum(parts.values()) / 1000 < 700
