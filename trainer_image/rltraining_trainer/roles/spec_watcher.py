"""The fields of ``spec`` that may change while the job runs. The operator rewrites the job's file."""

from __future__ import annotations

import logging
from pathlib import Path

from rltraining_api.job import JobSpec

from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.roles.context import read_job

_LOG = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two checks of the file."""


class SpecWatcher:
    """The current stop rules, checkpoint settings and number of samplers. Times are seconds of a
    monotonic clock."""

    def __init__(self, job_file: Path, spec: JobSpec) -> None:
        self.stop = spec.stop
        self.checkpoint = spec.checkpoint
        """Only ``every_seconds`` and ``keep`` change."""
        self.samplers = spec.sampler.replicas
        self._job_file = job_file
        self._written = 0  # unknown: the file may have changed since ``spec`` was read
        self._next_look = 0.0

    def look(self, now: float) -> None:
        """Reads the file again if a check is due and it has changed."""
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
            _LOG.warning("a change of the job is ignored, and the earlier settings stay in force: %s", error)
            return
        self.samplers = spec.sampler.replicas
        if spec.stop != self.stop:
            self.stop = spec.stop
            _LOG.info("new stop rules: %s", spec.stop.to_dict())
        if spec.checkpoint != self.checkpoint:
            self.checkpoint = spec.checkpoint
            every, keep = spec.checkpoint.every_seconds, spec.checkpoint.keep
            _LOG.info("checkpoints are now saved every %d s, and the newest %d kept", every, keep)

    def _modified(self) -> int:
        try:
            return self._job_file.stat().st_mtime_ns
        except OSError:  # the file is being replaced
            return 0
