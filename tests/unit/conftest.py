"""For all unit tests."""

from __future__ import annotations

import gc
import logging


def pytest_collection_finish() -> None:
    """What was imported, torch above all, stays: looking for garbage in it again and again took 6% of the time. And pytest
    has a handler for each test at each logger that does not propagate, which are 43 of torch's."""
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.startswith("torch"):
            logger.propagate = True
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
