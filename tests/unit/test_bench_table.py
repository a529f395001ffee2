"""Numbers in the tables of benchmarks."""

from __future__ import annotations

import pytest

from tests.bench.table import distribution


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ([], "0"),
        ([0.31], "1: 0.3/0.3/0.3/0.3/0.3 s"),
        ([3.0, 1.0, 2.0], "3: 1.0/2.0/3.0/3.0/3.0 s"),
        ([float(number) for number in range(200, 0, -1)], "200: 20.0/100.0/180.0/198.0/200.0 s"),
    ],
)
def test_a_distribution_has_its_count_percentiles_and_maximum(seconds: list[float], text: str) -> None:
    assert distribution(seconds) == text
