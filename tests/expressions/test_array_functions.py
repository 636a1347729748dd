"""Functions of lists: what counts as one, what is left out, and which value is the largest."""

import math

from sow.expressions.array_functions import ARRAY_FUNCTIONS
from tests.cases import all_cases


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
