"""Functions of numbers at their edges: no result, infinities, and numbers that are none."""

import math

import pytest

from sow.expressions.numeric_functions import ARRAY_FUNCTIONS, NUMERIC_FUNCTIONS
from tests.cases import all_cases


@all_cases(
    ("name", "arguments", "result"),
    [
        ("ABS", ("-3",), 3),
        ("ABS", ("x",), None),
        ("ROUND", (25, -1), 20),
        ("ROUND", (7, 2), 7),
        ("ROUND", (2.5, 10**9), 2.5),
        ("ROUND", (math.inf,), math.inf),
        ("CEILING", (math.inf,), math.inf),
        ("FLOOR", (10**400,), 10**400),
        ("CEILING", ("-" + "9" * 400,), 1 - 10**400),
        ("SQRT", (-1,), None),
        ("POWER", (0, -1), None),
        ("POWER", (10, 400), None),
        ("EXP", (1000,), None),
        ("GREATEST", (None, "a"), None),
        ("GREATEST", (math.nan, 1), 1),
        ("GREATEST", (1, math.nan), 1),
        ("LEAST", (math.nan,), None),
        ("LEAST", ("10", 9), 9),
        ("WIDTH_BUCKET", (-1, 0, 10, 5), 0),
        ("WIDTH_BUCKET", (10, 0, 10, 5), 6),
        ("WIDTH_BUCKET", (3, 10, 0, 5), 4),
        ("WIDTH_BUCKET", (3, 1, 1, 5), None),
        ("WIDTH_BUCKET", (3, 1, 2, math.inf), None),
        ("SIGN", (0,), 0),
    ],
)
def test_edges(name, arguments, result):
    assert NUMERIC_FUNCTIONS[name].run(*arguments) == result


@pytest.mark.parametrize("name", ["LOG", "LOG2", "LOG10"])
def test_there_is_no_logarithm_of_nothing_or_less(name):
    run = NUMERIC_FUNCTIONS[name].run
    assert math.isnan(run(0))
    assert math.isnan(run(-1.5))
    assert run(1) == 0


def test_a_degree_along_a_meridian_is_some_111_km():
    distance = NUMERIC_FUNCTIONS["GEO_DISTANCE"].run
    assert distance(60, 25, 61, 25) == pytest.approx(111_195, abs=1)
    assert distance(0, 0, 0, 180) == pytest.approx(math.pi * 6_371_008.8)
    assert distance(math.inf, 0, 0, 0) is None


@all_cases(
    ("name", "value", "result"),
    [
        ("ARRAY_COUNT", None, 0),
        ("ARRAY_COUNT", 5, 1),
        ("ARRAY_COUNT", [None, "", 1], 1),
        ("ARRAY_MAX", [2, "10", 3.5], "10"),
        ("ARRAY_MAX", [2, "ten"], "ten"),
        ("ARRAY_MAX", [math.nan, 1], 1),
        ("ARRAY_MAX", [], None),
        ("ARRAY_MIN", [2, "10", None], 2),
        ("ARRAY_MIN", "x", "x"),
        ("ARRAY_SUM", [], 0),
        ("ARRAY_SUM", [1, "2", "x", None], 3),
        ("ARRAY_SUM", [10**400, 0.5], math.inf),
        ("ARRAY_SUM", [-(10**400), 0.5], -math.inf),
    ],
)
def test_a_list_gives(name, value, result):
    assert ARRAY_FUNCTIONS[name].run(value) == result
