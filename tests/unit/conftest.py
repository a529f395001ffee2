"""Fixtures for all unit tests."""

from __future__ import annotations

import gc
import logging
import random
import sys

import pytest
from hypothesis import HealthCheck, settings
from soak import SOAK

# Examples have no deadline, because their duration depends on the machine's load. Where CI is set,
# hypothesis uses the same examples each time.
settings.register_profile(
    "untimed",
    settings(),
    max_examples=40 * SOAK,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")

# Nearly all imported objects stay alive. Collecting garbage took a tenth of the time of collecting the tests.
gc.disable()


@pytest.fixture(autouse=True)
def same_numbers_each_time() -> None:
    """Seeds the generators that a test may use, so that failures are reproducible.

    Seeds only modules that a test has imported: torch alone takes two seconds, also in pytest-xdist's
    own process.
    """
    random.seed(5)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(5)
    if (torch := sys.modules.get("torch")) is not None:
        # torch.manual_seed also queues a seed for each kind of device that is absent, each with a formatted stack.
        torch.default_generator.manual_seed(5)


def pytest_collection_finish() -> None:
    """Excludes all imported modules, torch above all, from garbage collection, which took 6% of the time.

    Also removes torch's 119 loggers from the registry, which pytest searches six times for each test.
    torch's modules keep their loggers.
    """
    loggers = logging.root.manager.loggerDict
    for name in [name for name in loggers if name.partition(".")[0] == "torch"]:
        del loggers[name]
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)
    gc.enable()
