"""For all unit tests."""

from __future__ import annotations

import gc
import logging
import random

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from soak import SOAK

# How long an example takes says how busy the machine is. Where CI is set, hypothesis takes the same examples each time.
settings.register_profile(
    "untimed",
    settings(),
    max_examples=100 * SOAK,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def same_numbers_each_time() -> None:
    """A test that fails fails again: whoever draws without a seed of their own draws the same each time."""
    random.seed(5)
    np.random.seed(5)
    # torch.manual_seed would also queue seeds, each with a formatted stack, for every kind of device that is not here.
    torch.default_generator.manual_seed(5)


def pytest_collection_finish() -> None:
    """What was imported, torch above all, stays: looking for garbage in it again and again took 6% of the time. And pytest
    has a handler for each test at each logger that does not propagate, which are 43 of torch's."""
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.startswith("torch"):
            logger.propagate = True
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
