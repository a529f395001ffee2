"""The state that a run trains and records: the algorithm and the data paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from rltraining_api.contract import Warning
from rltraining_api.status import ReplayStatus
from torch import Tensor

from rltraining_trainer.checkpoint import UnsupportedValue, snapshot
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.dataflow.reports import SamplerReports, StatsDelta
from rltraining_trainer.metrics import Numbers
from rltraining_trainer.networks import PolicyNetwork
from rltraining_trainer.policy import check_finite
from rltraining_trainer.world.data_path import DataPath
from rltraining_trainer.world.learner_counts import LearnerCounts


class Stateful(Protocol):
    """An object with a state of tensors and plain values, such as a torch module or optimizer."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class Trainable(Protocol):
    """The state that updates change, and that checkpoints contain."""

    updates: int
    """Number of updates, including updates before a restart.

    Each update adds 1. `LearnerLoop.train` publishes the parameters only when the number has changed."""

    @property
    def network(self) -> PolicyNetwork | None:
        """The policy for evaluations and for the export. None: there is no policy."""

    def learning_rate(self, environment_steps: int) -> float: ...
    def get_state(self) -> dict[str, Any]: ...
    def set_state(self, state: dict[str, Any]) -> None: ...


class Algorithm(Trainable, Protocol):
    """An algorithm whose parameters the run publishes."""

    parameters: Tensor
    """The parameters that samplers need from this learner, ``[N]``."""
    total_steps: int | None
    """Environment steps at which schedules end, the current ``spec.stop.environmentSteps``."""

    @property
    def network(self) -> PolicyNetwork: ...


class UserState:
    """The policy and the further objects of a user's algorithm."""

    def __init__(self, policy: PolicyNetwork | None, state: Mapping[str, Stateful]) -> None:
        """Raises TypeError if an object cannot be saved."""
        self.updates = 0
        self.network = policy
        self._parts = {**state} if policy is None else {"policy": policy, **state}
        # Fail now rather than at the first checkpoint.
        for name, part in state.items():
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise TypeError(
                    f"world.run({name}=...): a {type(part).__name__} has no state_dict() and load_state_dict(); "
                    "wrap a tensor in a torch.nn.Module"
                )

    def learning_rate(self, environment_steps: int) -> float:
        """Returns the learning rate of the first optimizer."""
        rates = (part.param_groups[0]["lr"] for part in self._parts.values() if hasattr(part, "param_groups"))
        return float(next(rates, 0.0))

    def get_state(self) -> dict[str, Any]:
        parts = {}
        for name, part in self._parts.items():
            try:
                parts[name] = snapshot(part.state_dict())
            except UnsupportedValue as error:
                raise UnsupportedValue(f"world.run({name}=...): {error}") from None
        return {"updates": self.updates, "parts": parts}

    def set_state(self, state: dict[str, Any]) -> None:
        parts = state["parts"]
        if parts.keys() != self._parts.keys():
            raise ValueError(f"it holds {sorted(parts)}, but world.run() was given {sorted(self._parts)}")
        for name, part in self._parts.items():
            part.load_state_dict(parts[name])
        self.updates = state["updates"]


class RunPaths:
    """The algorithm and the data paths of a run, as the record and the group of learners see them."""

    def __init__(
        self, models: ModelServer, samplers: Callable[[], int], *, index: int, learners: int
    ) -> None:
        """``index``: this learner, of this number of ``learners``."""
        self.algorithm: Trainable = UserState(None, {})
        self.paths: dict[str, DataPath] = {}
        self.other_warnings: Callable[[], Iterable[Warning]] = tuple
        """Returns further problems, such as those of the recording."""
        self.own_warnings: list[Warning] = []
        """Problems that the algorithm has reported."""
        self.received: list[StatsDelta] = []
        """In learner 0: the counts of all learners, without reports, since the last look."""
        self.counts = LearnerCounts(index, learners)
        """All counts of each learner, without reports, according to the newest round."""
        self.moments: list[Tensor] = []
        """Moments of observations that samplers have reported, and that are not merged yet."""
        alone = learners == 1  # there is no other learner with a state that could include earlier reports
        self.reports = SamplerReports(
            models, self._announce, self._insert_limit, samplers, ignores_earlier=alone
        )
        """Reports of samplers and, without counts, of the other learners."""

    def all(self) -> Iterable[DataPath]:
        return self.paths.values()

    @property
    def parameters(self) -> Tensor | None:
        """The flat parameters ``[N]`` of an `Algorithm`. None for a user's policy and state."""
        return getattr(self.algorithm, "parameters", None)

    @property
    def shares_whole(self) -> bool:
        """Whether each learner has the complete state. Otherwise each has a slice, and all roll back together."""
        return all(path.shares_state for path in self.all())

    @property
    def leads(self) -> bool:
        """Whether only learner 0 decides that there is enough data for an update."""
        return any(path.leads for path in self.all())

    def follow_counts(self, largest: Sequence[float], *, late: bool = False) -> None:
        """Keeps the counts of all learners that a round or a state carried. Learner 0 records their increase.

        ``late``: see `StatsDelta`.
        """
        steps, episodes = self.counts.follow(largest)
        if self.counts.index == 0 and (steps or episodes):
            self.received.append(StatsDelta(steps, torch.zeros(0), episodes, None, late))

    def take_received(self) -> list[StatsDelta]:
        """Returns the counts of the learners since the last call."""
        received, self.received = self.received, []
        return received

    def take_stats(self) -> list[StatsDelta]:
        """Returns the counts of the learners, and the news of all reports, since the last call."""
        news = self.reports.take()
        self.moments += [one.moments for one in news if one.moments.numel()]
        return self.take_received() + news

    def metrics(self) -> Numbers:
        return {name: value for path in self.all() for name, value in path.metrics().items()}

    def replay(self) -> ReplayStatus | None:
        return next((status for path in self.all() if (status := path.replay()) is not None), None)

    def facts(self) -> dict[str, Any]:
        return {name: value for path in self.all() for name, value in path.facts().items()}

    def warnings(self) -> tuple[Warning, ...]:
        of_paths = (warning for path in self.all() for warning in path.warnings())
        return (*of_paths, *self.other_warnings(), *self.own_warnings)

    def get_state(self) -> dict[str, Any]:
        return {
            "reports": self.reports.get_state(),
            "moments": list(self.moments),
            "counts": list(self.counts.values),
            "paths": {name: path.get_state() for name, path in self.paths.items()},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        paths = state["paths"]
        if paths.keys() != self.paths.keys():
            raise ValueError(f"it has the data paths {sorted(paths)}, not {sorted(self.paths)}")
        self.received = []  # counts of an update that is discarded
        self.reports.set_state(state["reports"])
        self.moments = list(state["moments"])
        self.counts.set(state.get("counts", ()))  # a checkpoint of an earlier version has none
        for name, path in self.paths.items():
            path.set_state(paths[name])

    def common_updates(self, index: int) -> int:
        """Returns the updates of this learner's state, or -1. The group takes the newest, or with slices learner 0's state."""
        return self.algorithm.updates if self.shares_whole or index == 0 else -1

    def get_learner_state(self) -> dict[str, Any]:
        """Returns the algorithm's state.

        Raises Diverged if the policy has a value that is NaN or infinite: checkpoints and other
        learners never receive such a state, so that a run can continue from the newest checkpoint.
        """
        if (network := self.algorithm.network) is not None:
            check_finite(network, f"at update {self.algorithm.updates}")
        return self.algorithm.get_state()

    def get_common_state(self) -> dict[str, Any]:
        paths = {name: path.get_common_state() for name, path in self.paths.items()}
        return {"learner": self.get_learner_state(), "counts": list(self.counts.values), "paths": paths}

    def set_common_state(self, state: dict[str, Any]) -> None:
        """Takes over the state of another learner. Learner 0 then counts the steps that it has missed."""
        if self.shares_whole:
            self.follow_counts(state["counts"], late=True)
        else:
            self.counts.set(state["counts"])  # all roll back to the checkpoint of learner 0
        self.algorithm.set_state(state["learner"])
        for name, path in self.paths.items():
            path.set_common_state(state["paths"][name])

    def finish(self) -> None:
        """Answers all waiting samplers at the end of the run."""
        self.reports.finish()
        for path in self.all():
            path.finish()

    def _announce(self, keeper: str, shard: dict[str, Any], served_before: bool) -> None:
        for path in self.all():
            path.announce(keeper, shard, served_before)

    def _insert_limit(self, keeper: str) -> int | None:
        limits = (path.insert_limit(keeper) for path in self.all())
        return next((limit for limit in limits if limit is not None), None)
