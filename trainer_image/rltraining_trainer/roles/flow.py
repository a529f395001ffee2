"""What the learner's loop asks of a dataflow: each algorithm learns from what one of them brings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from rltraining_api.contract import Warning
from rltraining_api.status import ReplayStatus
from torch import Tensor

from rltraining_trainer.algorithms.reduce import Reduce
from rltraining_trainer.networks import PolicyNetwork
from rltraining_trainer.roles.progress import Experience
from rltraining_trainer.transport import Handler


class Recordable(Protocol):
    """The state that an update changes, and that a checkpoint keeps."""

    updates: int
    """Made so far, also before a restart."""

    @property
    def network(self) -> PolicyNetwork | None:
        """The policy that evaluations play, or None if the algorithm does not offer one."""

    def learning_rate(self, environment_steps: int) -> float: ...
    def get_state(self) -> dict[str, Any]: ...
    def set_state(self, state: dict[str, Any]) -> None: ...


class Algorithm(Recordable, Protocol):
    """The same of an algorithm that samplers take parameters of."""

    parameters: Tensor
    """All that samplers need of this learner, ``[N]``."""
    total_steps: int | None
    """Environment steps at which schedules end, the current ``spec.stop.environmentSteps``."""

    @property
    def network(self) -> PolicyNetwork: ...


class Recorded(Protocol):
    """What the record of a run asks of what learns."""

    @property
    def algorithm(self) -> Recordable: ...

    @property
    def shares_whole(self) -> bool:
        """Whether each learner has the whole state; otherwise each has a part, and all go back to a checkpoint together."""

    def experiences(self) -> list[Experience]:
        """What has come since this was last asked."""

    def metrics(self) -> dict[str, float | None]:
        """Its accounts, for the curves."""

    def replay(self) -> ReplayStatus | None:
        """Its memory, for the status."""

    def warnings(self) -> tuple[Warning, ...]:
        """What users should know."""

    def get_state(self) -> dict[str, Any]: ...
    def set_state(self, state: dict[str, Any]) -> None: ...


class Flow(Recorded, Protocol):
    """The learner's side of a dataflow, and the algorithm that it feeds."""

    @property
    def algorithm(self) -> Algorithm: ...

    @property
    def sends_large(self) -> bool:
        """Whether messages had better go from memory to memory: see Endpoint."""

    @property
    def services(self) -> Mapping[str, Handler]:
        """What samplers and other learners call."""

    def start(self) -> None:
        """The process' endpoint is there."""

    def next_batch(self, timeout: float) -> Any:
        """What one update learns from; None if it did not come within ``timeout`` seconds."""

    def normalizer(self, batch: Any) -> float:
        """What the batch's importance weights are to be divided by, unless another learner's is larger."""

    def learn(self, batch: Any, normalizer: float, reduce: Reduce) -> Mapping[str, Tensor | float]:
        """Update from a batch, or, with None, from those of the other learners. Returns terms of the loss, each ``[]``."""

    def holds(self, batch: Any) -> bool:
        """Whether all learners are to wait for this one, which has this batch, or None."""

    def collect(self, reduce: Reduce) -> None:
        """All learners: bring together what a checkpoint needs."""

    def allows_update(self, batch: Any) -> bool:
        """Whether all learners may update now that this one has this batch, or None."""

    def part(self) -> None:
        """A learner was lost or comes in: the group forms anew."""

    def share(self, rank: int, size: int) -> None:
        """This is learner ``rank`` of ``size`` that now update in step."""

    @property
    def common_updates(self) -> int:
        """How new the state is that this learner would give to all; the newest is taken."""

    def get_common_state(self) -> dict[str, Any]: ...
    def set_common_state(self, state: dict[str, Any]) -> None: ...

    def tend(self, now: float) -> None:
        """What is to be done now and then: called after each update and at least every quarter of a second."""

    def finish(self) -> None:
        """The run is over: whoever asks hears so from now on."""

    def close(self) -> None:
        """End what it has begun of its own."""


A = TypeVar("A", bound=Algorithm)


class WholeState(Generic[A]):
    """What flows have in common whose learners each have the whole state, and update it in step."""

    algorithm: A

    @property
    def shares_whole(self) -> bool:
        return True

    def holds(self, batch: Any) -> bool:
        return False

    def collect(self, reduce: Reduce) -> None:
        """Each has everything."""

    def part(self) -> None:
        """Nothing to do before there is a new group."""

    @property
    def common_updates(self) -> int:
        return self.algorithm.updates

    def get_common_state(self) -> dict[str, Any]:
        return self.algorithm.get_state()

    def set_common_state(self, state: dict[str, Any]) -> None:
        self.algorithm.set_state(state)
