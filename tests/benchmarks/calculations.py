"""Calculations: filters with arithmetic and functions, over all records and of each update.

A query over all records, again and again with its columns made, and one of which every text is new:
numbers are worked out by numpy, whose hand-written answer on ready columns is the floor; texts are
asked by compiled code, whose floor is the same in Python, written by hand over a list of them. Then
what one subscription with such a filter adds to an update, in frames of a hundred.
"""

import gc
import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from sow.query import Query
from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.measure import Figure, cpu_seconds, in_turn
from tests.benchmarks.records import configuration, every_order, framed, updates
from tests.benchmarks.sizes import Sizes

FRAME = 100
Fields = dict[str, NDArray[np.float64]]


class Calculated(NamedTuple):
    """A filter of numbers, and the same by numpy."""

    case: str
    condition: str
    by_numpy: Callable[[Fields], NDArray[np.bool_]]


CALCULATED = (
    Calculated(
        "arithmetic",
        "/px * /qty > 990000",
        lambda of: of["px"] * of["qty"] > 990_000,
    ),
    Calculated(
        "arithmetic and two functions",
        "FLOOR(ABS(/px - 500) / 7) * /qty > 70000",
        lambda of: np.floor(np.abs(of["px"] - 500) / 7) * of["qty"] > 70_000,
    ),
    Calculated(
        "two fields and a rounding",
        "ROUND(/px, 1) > /qty AND /qty % 7 = 3 AND /px < 30",
        lambda of: (np.round(of["px"], 1) > of["qty"]) & (of["qty"] % 7 == 3) & (of["px"] < 30),
    ),
)


class OfText(NamedTuple):
    """The n-th filter of a text, and the same in Python."""

    case: str
    condition: Callable[[int], str]
    by_python: Callable[[str, int], bool]


_DIGITS = re.compile("[0-9]+")
OF_TEXTS = (
    OfText(
        "SUBSTR",
        lambda n: f"SUBSTR(/text, 10, 3) = '{100 + n}'",
        lambda text, n: text[9:12] == str(100 + n),
    ),
    OfText(
        "REPLACE and LENGTH",
        lambda n: f"LENGTH(REPLACE(/text, '{n}', '')) < 9",
        lambda text, n: len(text.replace(str(n), "")) < 9,
    ),
    OfText(
        "REGEXP_REPLACE",
        lambda n: f"REGEXP_REPLACE(/text, r'[0-9]+', '{n}') = 'no 7'",
        lambda text, n: _DIGITS.sub(str(n), text) == "no 7",
    ),
)
LIVE = {
    "arithmetic": "/px * /qty > 999999",
    "arithmetic and two functions": "FLOOR(ABS(/px - 500) / 7) * /qty > 71400",
    "SUBSTR": "SUBSTR(/note, 6, 4) = 'none'",
    "REGEXP_REPLACE": "REGEXP_REPLACE(/acct, r'[0-9]+', '#') = 'none'",
}


def calculations(sizes: Sizes) -> Iterator[Figure]:
    """Queries over all records; then what a subscription adds to an update."""
    yield from _queries(sizes)
    yield from _texts(sizes)
    yield from _live(sizes)


def _queries(sizes: Sizes) -> Iterator[Figure]:
    bodies = every_order(sizes.records)
    driver = _driver(bodies)
    rows = [orjson.loads(body) for body in bodies]
    fields = {name: np.array([row[name] for row in rows], np.float64) for name in ("px", "qty")}
    del rows
    for case, condition, by_numpy in CALCULATED:
        assert _matches(driver, condition) == np.count_nonzero(by_numpy(fields)), case
        ours, floor = in_turn(
            sizes.repetitions,
            _us_a_record(lambda condition=condition: _matches(driver, condition), len(bodies)),
            _us_a_record(lambda by_numpy=by_numpy: np.flatnonzero(by_numpy(fields)), len(bodies)),
        )
        yield Figure("calculated filter", case, "µs/record", ours, floor, "numpy")


def _texts(sizes: Sizes) -> Iterator[Figure]:
    """No filter is asked twice: the answers for its texts would be kept."""
    texts = [f"no {at + 1000:09}" for at in range(max(1, sizes.records // 10))]
    bodies = [orjson.dumps({"order": {"id": at}, "text": text}) for at, text in enumerate(texts)]
    driver = _driver(bodies)
    for one in OF_TEXTS:
        numbers = count()

        def ours(one: OfText = one, numbers: Iterator[int] = numbers) -> int:
            return _matches(driver, one.condition(next(numbers)))

        def by_hand(one: OfText = one) -> int:
            return sum([one.by_python(text, 0) for text in texts])

        assert ours() == by_hand(), one.case
        measured, floor = in_turn(
            sizes.repetitions, _us_a_record(ours, len(texts)), _us_a_record(by_hand, len(texts))
        )
        yield Figure(
            "filter of different texts", one.case, "µs/record", measured, floor, "Python by hand"
        )


def _live(sizes: Sizes) -> Iterator[Figure]:
    bodies = updates(sizes.messages // 2, sizes.keys)
    frames = framed(bodies, FRAME)
    without = _driver(every_order(sizes.keys))
    for case, condition in LIVE.items():
        beside = _driver(every_order(sizes.keys))
        beside.subscribe(condition)
        ours, floor = in_turn(
            sizes.repetitions,
            _us_a_record(lambda beside=beside: beside.publish(frames), len(bodies)),
            _us_a_record(lambda: without.publish(frames), len(bodies)),
        )
        yield Figure("calculated subscription", case, "µs/update", ours, floor, "ingest with none")


def _driver(bodies: list[bytes]) -> EngineDriver:
    driver = EngineDriver(configuration())
    driver.load(bodies)
    gc.collect()
    return driver


def _matches(driver: EngineDriver, condition: str) -> int:
    return driver.engine.queries.at_once(
        "orders", Query(filter=driver.engine.filter(condition))
    ).matches


def _us_a_record(work: Callable[[], object], records: int) -> Callable[[], float]:
    return lambda: max(cpu_seconds(work) * 1e6 / records, LEAST_US)


LEAST_US = 1e-6
"""What a clock that has not moved is taken to have measured."""
