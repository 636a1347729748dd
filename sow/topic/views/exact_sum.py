"""Exact sums: numbers are added and removed, and the sum is that of the present numbers.

A running sum of doubles drifts: what was rounded away when a number was added does not come back
when it is removed. So doubles are added exactly, as integers over a power of two, in one Python
integer of the necessary length, and the sum is rounded once, when it is read: `math.fsum` of the
present numbers, bit for bit, whatever came and went. Integers stay integers. Values without a place
in a sum (NaN, the infinities, text that is no number) are counted separately, and determine the sum
as long as there are any.
"""

import math
from collections.abc import Sequence
from math import inf, nan
from typing import Any

from sow.core.paths import Value
from sow.expressions import as_number

Number = int | float
_SCALE_BITS_MAX = 1024
"""Two to this power is no double any more."""


class ExactSum:
    """The sum of values with their count; also of their squares if `squared`.

    NULLs do not count. A list counts by its first value, text by the number that it spells.
    """

    __slots__ = (
        "_bits", "_doubles", "_infinite", "_minus_infinite", "_scale", "_scaled",
        "_scaled_squares", "_squared", "_strange", "_unit", "_whole", "_whole_squares", "count",
    )  # fmt: skip

    def __init__(self, squared: bool = False) -> None:
        self.count = 0
        self._squared = squared
        # Of doubles: their sum times two to the power of `_bits`, which is `_unit`, and `_scale` as
        # a double; of their squares, twice as many bits.
        self._scale, self._unit = 1.0, 1
        self._bits = self._scaled = self._scaled_squares = 0
        self._whole = self._whole_squares = 0
        self._doubles = self._infinite = self._minus_infinite = self._strange = 0

    def add(self, value: Value, _born: int = 0) -> None:
        """A value was added."""
        self._change(value, 1)

    def remove(self, value: Value, _born: int = 0) -> None:
        """A value was removed."""
        self._change(value, -1)

    def replace(self, was: Any, now: Any, _born: int = 0) -> None:
        """A value was replaced."""
        self._change(now, 1)
        self._change(was, -1)

    @staticmethod
    def add_numbers(these: Sequence["ExactSum"], values: Sequence[Any]) -> None:
        """A number was added to each of these, all of one kind: integers or doubles."""
        rows = zip(these, values, strict=True)
        if these[0]._squared:
            for one, value in rows:
                one._change(value, 1)
            return
        if values[0].__class__ is int:
            for one, value in rows:
                one.count += 1
                one._whole += value
            return
        for one, value in rows:
            scaled = value * one._scale
            if scaled.is_integer():
                one.count += 1
                one._doubles += 1
                one._scaled += int(scaled)
            else:
                # More bits than any before, NaN, or an infinity.
                one._change(value, 1)

    @staticmethod
    def replace_numbers(
        these: Sequence["ExactSum"], olds: Sequence[Any], news: Sequence[Any]
    ) -> None:
        """A number of each of these was replaced, all of one kind."""
        rows = zip(these, olds, news, strict=True)
        if these[0]._squared:
            for one, was, now in rows:
                one.replace(was, now)
            return
        if olds[0].__class__ is int:
            for one, was, now in rows:
                one._whole += now - was
            return
        for one, was, now in rows:
            scale = one._scale
            more = now * scale
            if more.is_integer():
                try:
                    # The old value has no more bits than the scale has room for.
                    one._scaled += int(more) - int(was * scale)
                    continue
                except (ValueError, OverflowError):
                    pass
            # More bits than any before, NaN, or an infinity.
            one.replace(was, now)

    def _change(self, value: Any, sign: int) -> None:
        kind = value.__class__
        if kind is float:
            try:
                # Times a power of two: exact, or no integer, or beyond all doubles.
                scaled = value * self._scale
                whole = int(scaled)
            except (ValueError, OverflowError):
                self._change_unusual(value, sign)
                return
            if whole != scaled:
                self._change_unusual(value, sign)
                return
            self.count += sign
            self._doubles += sign
            self._scaled += sign * whole
            if self._squared:
                self._scaled_squares += sign * whole * whole
        elif kind is int:
            self.count += sign
            self._whole += sign * value
            if self._squared:
                self._whole_squares += sign * value * value
        elif value is not None and value != "":
            self._change_other(value, sign)

    def _change_unusual(self, value: float, sign: int) -> None:
        """A double with more bits than any before, a large one beside a small one, NaN, or an
        infinity."""
        self.count += sign
        try:
            numerator, denominator = value.as_integer_ratio()
        except (ValueError, OverflowError):
            self._change_strange(value, sign)
            return
        bits = denominator.bit_length() - 1
        if bits > self._bits:
            self._rescale(bits)
        whole = numerator << self._bits - bits
        self._doubles += sign
        self._scaled += sign * whole
        if self._squared:
            self._scaled_squares += sign * whole * whole

    def _change_other(self, value: Value, sign: int) -> None:
        """A value that is neither an integer nor a double."""
        if isinstance(value, list):
            first = value[0] if value else None
            if not isinstance(first, list):
                self._change(first, sign)
        elif isinstance(value, float):
            self._change(float(value), sign)
        elif isinstance(value, bool):
            self._change(int(value), sign)
        else:
            number = as_number(str(value))
            if number is None:
                self.count += sign
                self._strange += sign
            else:
                self._change(number, sign)

    def _change_strange(self, value: float, sign: int) -> None:
        if value == inf:
            self._infinite += sign
        elif value == -inf:
            self._minus_infinite += sign
        else:
            self._strange += sign

    def _rescale(self, bits: int) -> None:
        more = bits - self._bits
        self._scaled <<= more
        self._scaled_squares <<= 2 * more
        self._set_scale(bits)

    def _set_scale(self, bits: int) -> None:
        self._bits, self._unit = bits, 1 << bits
        self._scale = 2.0**bits if bits < _SCALE_BITS_MAX else nan

    # Saved state.

    def state(self) -> list[int]:
        """The whole state, as integers, for `restore`."""
        return [
            self.count, self._bits, self._scaled, self._scaled_squares, self._whole,
            self._whole_squares, self._doubles, self._infinite, self._minus_infinite, self._strange,
        ]  # fmt: skip

    def restore(self, state: list[int]) -> None:
        """Continue from another sum's state."""
        (
            self.count, bits, self._scaled, self._scaled_squares, self._whole,
            self._whole_squares, self._doubles, self._infinite, self._minus_infinite, self._strange,
        ) = state  # fmt: skip
        self._set_scale(bits)

    # Results.

    @staticmethod
    def totals(these: Sequence["ExactSum"]) -> list[Number | None]:
        """The sum of each of these: of doubles, which most are, without a call for each."""
        try:
            return [
                one._scaled / one._unit if 0 < one._doubles == one.count else one.total()
                for one in these
            ]
        except OverflowError:
            return [one.total() for one in these]

    @staticmethod
    def averages(these: Sequence["ExactSum"]) -> list[float | None]:
        """The same for averages."""
        try:
            return [
                one._scaled / (one.count * one._unit)
                if 0 < one._doubles == one.count
                else one.average()
                for one in these
            ]
        except OverflowError:
            return [one.average() for one in these]

    def total(self) -> Number | None:
        """The sum; None without values. A double if one of the values is, or has to be one."""
        if not self.count:
            return None
        unusual = self._unusual()
        if unusual is not None:
            return unusual
        if not self._doubles:
            return self._whole
        return quotient(self._scaled + self._whole * self._unit, self._unit)

    def average(self) -> float | None:
        """The sum divided by the count, rounded once; None without values."""
        if not self.count:
            return None
        unusual = self._unusual()
        if unusual is not None:
            return unusual
        return quotient(self._scaled + self._whole * self._unit, self.count * self._unit)

    def deviation(self, of_sample: bool) -> float | None:
        """The standard deviation of values that were `squared`, of a sample or of all there are,
        rounded once; None where there are too few."""
        divisor = self.count - of_sample
        if divisor < 1:
            return None
        if self._unusual() is not None:
            return nan
        total = self._scaled + (self._whole << self._bits)
        squares = self._scaled_squares + (self._whole_squares << 2 * self._bits)
        spread = self.count * squares - total * total
        return root_of_quotient(spread, (self.count * divisor) << 2 * self._bits)

    def _unusual(self) -> float | None:
        """The sum because of a value that is no number, or an infinity; None without such."""
        if self._strange or (self._infinite and self._minus_infinite):
            return nan
        if self._infinite:
            return inf
        return -inf if self._minus_infinite else None


def quotient(numerator: int, denominator: int) -> float:
    """The double nearest to a fraction; an infinity where there is none."""
    try:
        return numerator / denominator
    except OverflowError:
        return inf if numerator > 0 else -inf


def root_of_quotient(numerator: int, denominator: int) -> float:
    """The double nearest to the square root of a fraction that is not negative."""
    if not numerator:
        return 0.0
    # A root of some 110 bits, and one more for whether any are missing, which makes rounding right.
    shift = (numerator.bit_length() - denominator.bit_length() - 220) // 2
    if shift >= 0:
        denominator <<= 2 * shift
    else:
        numerator <<= -2 * shift
    whole, rest = divmod(numerator, denominator)
    root = math.isqrt(whole)
    root = root << 1 | (rest != 0 or root * root != whole)
    shift -= 1
    return quotient(root << shift, 1) if shift >= 0 else quotient(root, 1 << -shift)
