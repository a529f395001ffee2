"""Whether what a job writes outlives the learner's pod."""

from __future__ import annotations

from rltraining_api.job import RLTrainingJob

NOT_KEPT = "spec.checkpoint has neither uri nor volume"


def keeps_its_output(job: RLTrainingJob) -> bool:
    """Checkpoints and policy are there when the learner's pod is gone."""
    return job.spec.checkpoint.uri is not None or job.spec.checkpoint.volume is not None
