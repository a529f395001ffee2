"""Time limits of all end-to-end tests."""

from __future__ import annotations

from pathlib import Path

import pytest

HANG_SECONDS = 1800
"""Limit of a test without a mark. Each command has a shorter limit."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives each test of this folder its limit, long enough for a busy machine."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(HANG_SECONDS))
