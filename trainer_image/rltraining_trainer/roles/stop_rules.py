"""``spec.stop`` may change while the job runs: the operator then rewrites the job's file."""

from __future__ import annotations

import logging
from pathlib import Path

from rltraining_api.lifecycle import Stop

from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.roles.context import read_job

_LOG = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two looks at the file."""


class StopRules:
    """The rules as they are now. Time is passed in, in seconds of a monotonic clock."""

    def __init__(self, job_file: Path, stop: Stop) -> None:
        self._job_file = job_file
        self._stop = stop
        self._written = 0  # the file may have changed since ``stop`` was read from it
        self._next_look = 0.0

    def current(self, now: float) -> Stop:
        if now >= self._next_look:
            self._next_look = now + PERIOD
            written = self._modified()
            if written != self._written:
                self._written = written
                self._read()
        return self._stop

    def _read(self) -> None:
        try:
            stop = read_job(self._job_file).spec.stop
        except BadConfiguration as error:
            _LOG.warning("the stop rules stay as they were: %s", error)
            return
        if stop != self._stop:
            self._stop = stop
            _LOG.info("new stop rules: %s", stop.to_dict())

    def _modified(self) -> int:
        try:
            return self._job_file.stat().st_mtime_ns
        except OSError:  # between the two steps of an update; the next look sees it
            return 0
