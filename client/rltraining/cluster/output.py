"""Determines whether the output of a job is kept after the learner's pod is deleted."""

from __future__ import annotations

from rltraining_api.job import RLTrainingJob

NOT_KEPT = "spec.checkpoint has neither uri nor volume"


def keeps_its_output(job: RLTrainingJob) -> bool:
    """Returns whether checkpoints and policy are kept after the learner's pod is deleted."""
    return job.spec.checkpoint.uri is not None or job.spec.checkpoint.volume is not None
