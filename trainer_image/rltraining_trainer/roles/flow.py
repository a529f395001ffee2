"""What the learner's loop asks of a dataflow: each algorithm learns from what one of them brings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rltraining_api.contract import Warning
from rltraining_api.status import ReplayStatus
from torch import Tensor

from rltraining_trainer.algorithms.reduce import Reduce
from rltraining_trainer.networks import PolicyNetwork
from rltraining_trainer.roles.progress import Experience
from rltraining_trainer.transport import Handler


class Algorithm(Protocol):
    """The state that an update changes, and that a checkpoint keeps."""

    parameters: Tensor
    """All parameters that samplers need, ``[N]``."""
    updates: int

    @property
    def network(self) -> PolicyNetwork: ...
    def learning_rate(self, environment_steps: int) -> float: ...
    def get_state(self) -> dict[str, Any]: ...
    def set_state(self, state: dict[str, Any]) -> None: ...


class Flow(Protocol):
    """The learner's side of a dataflow, and the algorithm that it feeds."""

    @property
    def algorithm(self) -> Algorithm: ...

    @property
    def services(self) -> Mapping[str, Handler]:
        """What samplers and other learners call."""

    def start(self) -> None:
        """The process' endpoint is there."""

    def next_batch(self, timeout: float) -> Any:
        """What one update learns from; None if it did not come within ``timeout`` seconds."""

    def normalizer(self, batch: Any) -> float:
        """What the batch's importance weights are to be divided by, unless another learner's is larger."""

    def learn(self, batch: Any, normalizer: float, reduce: Reduce) -> dict[str, Tensor]:
        """Update from a batch, or, with None, from those of the other learners. Returns terms of the loss, each ``[]``."""

    def allows_update(self, batch: Any) -> bool:
        """Whether all learners may update now that this one has this batch, or None."""

    def share(self, rank: int, size: int) -> None:
        """This is learner ``rank`` of ``size`` that now update in step."""

    def experiences(self) -> list[Experience]:
        """What has come since this was last asked."""

    def metrics(self) -> dict[str, float | None]:
        """Its accounts, for the curves."""

    def replay(self) -> ReplayStatus | None:
        """Its memory, for the status."""

    def warnings(self) -> tuple[Warning, ...]:
        """What users should know."""

    def tend(self, now: float) -> None:
        """What is to be done now and then: called after each update and at least every quarter of a second."""

    def finish(self) -> None:
        """The run is over: whoever asks hears so from now on."""

    def close(self) -> None:
        """End what it has begun of its own."""

    def get_state(self) -> dict[str, Any]: ...
    def set_state(self, state: dict[str, Any]) -> None: ...
