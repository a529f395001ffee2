"""What the one who installs the operator, not the one who writes a job, decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Inputs of every plan."""

    image: str = "rltraining-trainer"
    """Trainer image of jobs that name none."""
    progress_seconds: float = 5.0
    """How often a learner is asked for its progress, and at most how often progress alone is written to a status."""


# Times that a plan waits for; none of them is a poll: a pass is due when one is over.
REMAKE_SECONDS = 10.0
"""A sampler that says it is done is made anew after this, if the learner is not done by then; and a pod that failed
within this time of its creation is not replaced sooner."""
FINISH_SECONDS = 5.0
"""After success pods may end by themselves for so long (the learner tells samplers to), before they are deleted."""
STALL_SECONDS = 180.0
"""Without progress for so long, the condition Progressing turns False."""
LOST_SECONDS = 60.0
"""A deleted pod that is still there so long after its grace is over was on a node that is lost: it is forced out."""
