"""What of ``spec`` may change while the job runs: the operator then rewrites the job's file."""

from __future__ import annotations

import logging
from pathlib import Path

from rltraining_api.job import JobSpec

from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.roles.context import read_job

_LOG = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two looks at the file."""


class LiveSpec:
    """The stop rules and the number of samplers as they are now. Time is passed in, in seconds of a monotonic clock."""

    def __init__(self, job_file: Path, spec: JobSpec) -> None:
        self.stop = spec.stop
        self.samplers = spec.sampler.replicas
        self._job_file = job_file
        self._written = 0  # the file may have changed since ``spec`` was read from it
        self._next_look = 0.0

    def look(self, now: float) -> None:
        """Read the file again, if it is time to and it has changed."""
        if now < self._next_look:
            return
        self._next_look = now + PERIOD
        written = self._modified()
        if written != self._written:
            self._written = written
            self._read()

    def _read(self) -> None:
        try:
            spec = read_job(self._job_file).spec
        except BadConfiguration as error:
            _LOG.warning("the stop rules stay as they were: %s", error)
            return
        self.samplers = spec.sampler.replicas
        if spec.stop != self.stop:
            self.stop = spec.stop
            _LOG.info("new stop rules: %s", spec.stop.to_dict())

    def _modified(self) -> int:
        try:
            return self._job_file.stat().st_mtime_ns
        except OSError:  # between the two steps of an update; the next look sees it
            return 0
