"""The table of operators: each entry is the same for single values, in source and for arrays."""

import itertools
import math

import numpy as np
import pytest

from sow.expressions.operators import CALCULATIONS, COMPARISONS

NUMBERS = (-math.inf, -2.5, -1.0, 0.0, 1.0, 2.0, 3.5, math.inf)
PAIRS = list(itertools.product((*NUMBERS, math.nan), repeat=2))


@pytest.fixture(params=COMPARISONS)
def comparison(request):
    return COMPARISONS[request.param]


def test_arrays_are_compared_like_single_numbers(comparison):
    one, other = np.array(PAIRS).T
    assert comparison.holds(one, other).tolist() == [comparison.holds(*pair) for pair in PAIRS]


def test_the_source_gives_the_same_but_for_nan(comparison):
    run = eval(f"lambda one, other: one {comparison.source} other")
    for pair in [
        *itertools.product(NUMBERS, repeat=2),
        *itertools.product(("", "a", "b"), repeat=2),
    ]:
        assert run(*pair) is comparison.holds(*pair)


def test_it_is_false_of_nan_and_so_is_its_opposite(comparison):
    opposite = COMPARISONS[comparison.opposite]
    for pair in PAIRS:
        is_nan = any(map(math.isnan, pair))
        assert comparison.holds(*pair) + opposite.holds(*pair) == (not is_nan)


def test_the_mirrored_one_takes_its_sides_exchanged(comparison):
    mirrored = COMPARISONS[comparison.mirrored]
    assert COMPARISONS[mirrored.mirrored] is comparison
    for one, other in PAIRS:
        assert mirrored.holds(other, one) is comparison.holds(one, other)


def test_it_is_known_of_a_lesser_left_side(comparison):
    assert comparison.of_lesser is comparison.holds(1, 2) is comparison.holds("", "a")


@pytest.mark.parametrize("symbol", [s for s, one in CALCULATIONS.items() if one.is_elementwise])
def test_what_is_elementwise_is_the_operator_of_doubles_and_of_arrays(symbol):
    run, source = CALCULATIONS[symbol].run, eval(f"lambda one, other: one {symbol} other")
    one, other = np.array(PAIRS).T
    with np.errstate(all="ignore"):
        found = run(one, other)
    for at, pair in enumerate(PAIRS):
        assert repr(float(found[at])) == repr(run(*pair)) == repr(source(*pair))


@pytest.mark.parametrize(
    ("one", "symbol", "other", "result"),
    [
        (7, "/", 2, 3),
        (-7, "/", 2, -3),
        (7, "/", 0, None),
        (7.0, "/", 2, 3.5),
        (-7, "%", 2, -1),
        (7, "%", 0, None),
        (7.5, "%", 2, 1.5),
    ],
)
def test_integers_are_divided_towards_zero(one, symbol, other, result):
    assert repr(CALCULATIONS[symbol].run(one, other)) == repr(result)


@pytest.mark.parametrize("symbol", ["/", "%"])
def test_a_double_divided_by_nothing_is_nan(symbol):
    assert math.isnan(CALCULATIONS[symbol].run(1.0, 0))
