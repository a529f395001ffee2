from __future__ import annotations

import pytest
from rltraining.units import clock, count, decimal, plural, score, short


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "00:00"), (3.9, "00:03"), (760, "12:40"), (3599.99, "59:59"), (3723, "1:02:03")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ((0, 0.5, 87, 999.4, 1000, 1254, 251_412), "0 0.5 87 999 1k 1.25k 251k"),
        ((999_499, 999_900, 1_254_000, 2e9, -1254), "999k 1M 1.25M 2G -1.25k"),
    ],
)
def test_short(numbers: tuple[float, ...], texts: str) -> None:
    assert " ".join(map(short, numbers)) == texts


def test_the_rest() -> None:
    assert (count(412160), decimal(213.44), decimal(None)) == ("412,160", "213.4", "-")


@pytest.mark.parametrize(
    ("value", "text"),
    [(4069.13, "4069.1"), (-213.44, "-213.4"), (-82.146, "-82.15"), (0.9525, "0.953"), (0, "0.000")],
)
def test_small_returns_have_more_decimals(value: float, text: str) -> None:
    assert score(value) == text
    assert score(None) == "-"
    assert [plural(n, "restart") for n in (0, 1, 2)] == ["0 restarts", "1 restart", "2 restarts"]
