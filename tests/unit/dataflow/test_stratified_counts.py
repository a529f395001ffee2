"""A batch is split over shards exactly, and in proportion to their priority sums."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rltraining_trainer.dataflow.replay.batch import stratified_counts
from soak import SOAK

MASSES = st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any)


@pytest.mark.parametrize(
    ("masses", "count", "offset", "parts"),
    [
        ([1.0, 1.0], 3, 0.0, [2, 1]),
        ([1.0, 1.0], 3, 0.9, [1, 2]),
        ([5.0, 0.0], 4, 0.999, [4, 0]),
        ([1.0, 1.0], 4, 0.9999999999999999, [2, 2]),
        ([1e-12, 1.0], 512, 0.5, [0, 512]),
        ([1e-12, 1.0], 512, 0.0, [1, 511]),
        ([10.0, 26.0, 36.0], 258, 1 - 2**-53, [35, 94, 129]),
        ([21.0, 15.0, 13.0, 9.0, 18.0], 76, 0.0, [21, 15, 13, 9, 18]),
        ([23, 20, 7, 40], 207, 0.9, [52, 46, 17, 92]),
        ([1e300, 1e300], 2000, 0.5, [1000, 1000]),
    ],
)
def test_points_stand_evenly_on_the_line_of_masses(
    masses: list[float], count: int, offset: float, parts: list[int]
) -> None:
    assert stratified_counts(masses, count, offset) == parts


@given(MASSES, st.integers(0, 600), st.floats(0, 1, exclude_max=True))
def test_the_total_is_exact_and_each_shard_gets_its_part_rounded_up_or_down(
    masses: list[int], count: int, offset: float
) -> None:
    parts = stratified_counts(masses, count, offset)

    assert sum(parts) == count
    for mass, part in zip(masses, parts, strict=True):
        exact = Fraction(count * mass, sum(masses))
        assert floor(exact) <= part <= ceil(exact)
        assert mass or not part, "a shard of mass 0 gave something"


@settings(max_examples=50 * SOAK)
@given(MASSES, st.integers(1, 40))
def test_the_expectation_over_all_offsets_is_exact(masses: list[int], count: int) -> None:
    # Counts change only at offsets where count·(a sum of priority sums)/W - offset is an integer, and
    # never between them.
    total = sum(masses)
    steps = sorted(
        {Fraction(count * sum(masses[:end]), total) % 1 for end in range(len(masses))} | {Fraction(1)}
    )
    expected = [Fraction(0)] * len(masses)
    for here, there in zip([Fraction(0), *steps], steps, strict=False):
        for shard, part in enumerate(stratified_counts(masses, count, float((here + there) / 2))):
            expected[shard] += part * (there - here)

    assert expected == [Fraction(count * mass, total) for mass in masses]


@pytest.mark.parametrize(
    ("masses", "count", "offset", "message"),
    [
        ([], 1, 0.0, "nothing to draw from"),
        ([0.0, 0.0], 1, 0.0, "nothing to draw from"),
        ([1.0, -1.0], 1, 0.0, "finite and at least 0"),
        ([float("nan")], 1, 0.0, "finite and at least 0"),
        ([float("inf")], 1, 0.0, "finite and at least 0"),
        ([1.0], -1, 0.0, "cannot split -1 draws"),
        ([1.0], 1, 1.0, "an offset of 1.0"),
    ],
)
def test_what_cannot_be_split_is_refused(
    masses: list[float], count: int, offset: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        stratified_counts(masses, count, offset)
