"""`spec.recording`: the learner keeps what its newest updates were made from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rltraining_api.base import ApiModel, Rule
from rltraining_api.fields import Positive
from rltraining_api.roles import ONE_LEARNER

if TYPE_CHECKING:
    from rltraining_api.job import JobSpec

NEEDS_ONE_LEARNER = "recording needs one learner: set learner.replicas to 1"
NEEDS_OTHER_MODE = "a reproducible run repeats all of its updates: leave recording or reproducible out"


class Recording(ApiModel):
    """The learner writes the data of each update to the folder `recording/` of its output, in the order in which it used them,
    and its state now and then. `rltrain rerun` makes these updates again on one machine, bit for bit, although samplers
    sent the data whenever they had them. Writing takes time: measure it with your job."""

    megabytes: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    """Largest size of the folder. The oldest updates are deleted."""
    return_drop: Positive | None = None
    """The recording ends when the mean return is this much lower than its best value, so that the updates before a collapse
    are not deleted. Training continues. Default: it does not end."""

    def problem(self, spec: JobSpec) -> str | None:
        """Returns why the updates of a job with this spec cannot be recorded, or None."""
        if spec.learner.replicas > 1:
            return NEEDS_ONE_LEARNER
        return NEEDS_OTHER_MODE if spec.reproducible is not None else None


def recording_rules() -> Iterator[Rule]:
    """Yields the rules of `Recording.problem`, for an API server."""
    yield Rule(f"!has(self.recording) || ({ONE_LEARNER})", NEEDS_ONE_LEARNER)
    yield Rule("!has(self.recording) || !has(self.reproducible)", NEEDS_OTHER_MODE)
