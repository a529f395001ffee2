from __future__ import annotations

import pytest
from rltraining.units import clock, count, decimal, plural, short


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "00:00"), (3.9, "00:03"), (760, "12:40"), (3599.99, "59:59"), (3723, "1:02:03")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *[
            (0, "0"),
            (0.5, "0.5"),
            (87, "87"),
            (999.4, "999"),
            (1000, "1k"),
            (1254, "1.25k"),
            (251_412, "251k"),
        ],
        *[(999_499, "999k"), (999_900, "1M"), (1_254_000, "1.25M"), (2e9, "2G"), (-1254, "-1.25k")],
    ],
)
def test_short(number: float, text: str) -> None:
    assert short(number) == text


def test_the_rest() -> None:
    assert count(412160) == "412,160"
    assert (decimal(213.44), decimal(None)) == ("213.4", "-")
    assert (plural(1, "restart"), plural(2, "restart"), plural(0, "restart")) == (
        "1 restart",
        "2 restarts",
        "0 restarts",
    )
