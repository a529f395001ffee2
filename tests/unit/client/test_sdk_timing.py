"""Pauses between attempts."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rltraining.sdk.timing import Timing

TIMING = Timing(first_pause=0.25, longest_pause=15.0)


@pytest.mark.parametrize(("failures", "ceiling"), [(1, 0.25), (2, 0.5), (6, 8.0), (7, 15.0), (10_000, 15.0)])
def test_a_pause_is_half_its_ceiling_or_more(failures: int, ceiling: float) -> None:
    pauses = [TIMING.pause_after(failures) for _ in range(100)]
    assert ceiling / 2 <= min(pauses) < max(pauses) <= ceiling


def test_forked_processes_do_not_pause_in_step() -> None:
    """Simulates a pool: each child process prints its pauses."""
    program = """
import os
from rltraining.sdk.timing import Timing
for _ in range(2):
    if os.fork() == 0:
        print([Timing().pause_after(3) for _ in range(3)], flush=True)
        os._exit(0)
    os.wait()
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = told.stdout.splitlines()
    assert first != second
