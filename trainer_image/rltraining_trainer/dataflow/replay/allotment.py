"""How many items of a batch come from which shard."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from math import floor, inf

_ROUNDING = 2.0**-50
"""Relative error of a product and a quotient, with room."""


def stratified_counts(masses: Sequence[float], count: int, offset: float) -> list[int]:
    """Split `count` draws over shards in proportion to their masses, by systematic sampling.

    The masses W = Σ m_i lie on a line; `count` points stand on it at (j + offset)·W/count, j = 0, 1, …, and a shard gets
    the points on its piece. So the total is exact, a shard gets its count·m_i/W rounded up or down, and with an offset
    uniform in [0, 1) that is its exact expectation: within a shard that draws by p/m_i, an item of weight p is drawn
    count·p/W times on average, as from one memory that holds everything. A shard of mass 0 gets nothing.

    Raises:
        ValueError: a mass is negative or not finite, all are 0, `count` is negative, or `offset` is outside [0, 1).
    """
    if not all(0 <= mass < inf for mass in masses):
        raise ValueError(f"the masses of shards must be finite and at least 0, not {list(masses)}")
    if count < 0 or not 0 <= offset < 1:
        raise ValueError(f"cannot split {count} draws with an offset of {offset}")
    ends = list(accumulate(masses))
    total = ends[-1] if ends else 0.0
    if not 0 < total < inf:
        raise ValueError("there is nothing to draw from: all masses are 0")
    # Points before the end of each piece; whoever shares the line's very end shares all of them.
    before = [count if end == total else _points_before(end, count, total, offset) for end in ends]
    return [here - there for here, there in zip(before, [0, *before], strict=False)]


def _points_before(end: float, count: int, total: float, offset: float) -> int:
    """How many of the points j + offset lie before end·count/total: its whole part, and one more if its fraction is beyond the
    offset. Where rounding could decide, which is seldom, it is reckoned exactly."""
    place = end * count / total
    whole = floor(place)
    fraction = place - whole
    if min(abs(fraction - offset), fraction, 1 - fraction) > place * _ROUNDING:
        return whole + (fraction > offset)
    exact = Fraction(end) * count / Fraction(total)
    whole = floor(exact)
    return whole + (exact - whole > Fraction(offset))
