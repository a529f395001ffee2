"""A run of a custom algorithm: progress, stop rules, curves, checkpoints, status and policy."""

from __future__ import annotations

import logging
import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import torch
from gymnasium import spaces
from rltraining_api.contract import LearnerReport, Warning
from rltraining_api.status import ReplayStatus
from torch import Tensor

from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.dataflow.reports import Lived, SamplerReports
from rltraining_trainer.errors import Diverged
from rltraining_trainer.group import GroupChanged, LearnerGroup, SingleLearnerGroup
from rltraining_trainer.metrics import Numbers
from rltraining_trainer.networks import PolicyNetwork
from rltraining_trainer.policy import check_finite
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.discards import Discards
from rltraining_trainer.roles.live_spec import LiveSpec
from rltraining_trainer.roles.progress import Experience
from rltraining_trainer.roles.record import RunRecord
from rltraining_trainer.transport import Endpoint, Stopped
from rltraining_trainer.world.data_path import DataPath
from rltraining_trainer.world.members import Member, Pending
from rltraining_trainer.world.replay import LearnerReplay
from rltraining_trainer.world.reporter import REPORT
from rltraining_trainer.world.services import Services
from rltraining_trainer.world.shared import copied

_LOG = logging.getLogger(__name__)


class Stateful(Protocol):
    """An object with a state of tensors and plain values, such as a torch module or optimizer."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class Run:
    """The run in a learner. The first learner keeps the record, and the others report counts to it.

    If a learner dies, its next incarnation restarts the function. The state (all of `world.run`'s
    state, and the counts of `update`) is copied from a live learner, or read from the newest
    checkpoint if no learner is alive.
    """

    def __init__(
        self,
        context: Context,
        live: LiveSpec,
        services: Services,
        endpoint: Callable[[], Endpoint],
        first: Callable[[], Member],
    ) -> None:
        """For `World`; ``first`` is learner 0."""
        self.done = False
        """Whether a stop rule is met. Equal in all learners."""
        self._context, self._live = context, live
        self._endpoint, self._first = endpoint, first
        self._state: Literal["Starting", "Waiting", "Training", "Finished"] = "Starting"
        self._algorithm = _OwnAlgorithm()
        self._models = ModelServer()
        self._flow = _OwnFlow(self._algorithm, self._models, alone=len(context.learners) == 1)
        self._spaces: tuple[spaces.Space, spaces.Space] | None = None
        self._record: RunRecord | None = None
        self._looks = False  # only with a group: its state may be newer than this learner's
        self._terms: dict[str, float] | None = None  # since the last look
        self._lived, self._sequence = Lived(), 0  # of this learner, if it is not the first
        self._telling: Pending | None = None
        self.group = self._make_group() if len(context.learners) > 1 else SingleLearnerGroup()
        if context.index == 0:
            services.add(REPORT, self._flow.reports.report)

    @property
    def updates(self) -> int:
        """Number of updates so far, including updates before a restart."""
        return self._algorithm.updates

    @property
    def reports(self) -> SamplerReports:
        """Reports of samplers and of the other learners to the first learner."""
        return self._flow.reports

    def add_path(self, name: str, path: DataPath) -> None:
        """For `World`: the record and the end of the run include this data path.

        Raises RuntimeError if the run has begun, or has a path of this name.
        """
        if self._state != "Starting":
            raise RuntimeError(f"call world.{name}() before world.run()")
        if name in self._flow.paths:
            raise RuntimeError(f"world.{name}() was called twice: call it once and keep the result")
        self._flow.paths[name] = path

    def begin(
        self,
        policy: PolicyNetwork | None,
        state: Mapping[str, Stateful],
        spaces: tuple[spaces.Space, spaces.Space],
    ) -> None:
        """For `World`: sets the policy and the state.

        The first learner continues from the newest checkpoint. Raises BadConfiguration if that
        checkpoint is of another algorithm.
        """
        self._algorithm.take(policy, state)
        self._spaces = spaces
        if self._context.index == 0:
            run_id = self._endpoint().incarnation
            parts = (self._context, self._flow, self._models, self._live, run_id)
            self._record = RunRecord(*parts, spaces, Discards())
        self._state = "Waiting"

    def goes_on(self) -> bool:
        """The condition of every learner's loop. Once a stop rule is met, it is False: return then.

        Checks the stop rules, writes points of the curves and checkpoints, and waits until the
        other learners call this method too. If a learner has died or joined, the learners form a
        new group, and the state may be replaced by the newest state of another learner.

        Raises:
            Stopped: this process should end. A checkpoint is written.
            Diverged: the policy of a checkpoint has a value that is NaN or infinite.
        """
        if self._context.stopping.is_set():
            raise Stopped("asked to end")
        for path in self._flow.paths.values():
            path.tick()
        over = self._look() if self._looks else False
        self._looks = True
        if self._state == "Waiting" and self.updates:
            self._state = "Training"
        self.done = self._begin_round(over)
        return not self.done

    def update(
        self,
        steps: int = 0,
        returns: Tensor | Sequence[float] = (),
        *,
        episodes: int | None = None,
        lag: int | None = None,
        **terms: float,
    ) -> None:
        """Counts an update. All learners make the same updates, each with the counts of its data.

        Args:
            steps: number of environment steps in the data, at least 0. Leave out the steps that
                samplers count with `World.count`.
            returns: ``[K]`` undiscounted returns of the episodes that ended in these steps, for the
                stop rules.
            episodes: number of episodes that ended, if some of them have no return here.
            lag: number of versions between the policy that acted and the newest policy.
            terms: further values of the curves, as ``loss/<name>``: numbers, or tensors ``[]``.

        Raises:
            Diverged: a return or a term is NaN or infinite.
            TypeError, ValueError: ``steps`` or ``episodes`` is not a count.
        """
        experience = experience_of(steps, returns, episodes, lag)
        returns = experience.returns
        self._algorithm.updates += 1
        self._terms = {name: float(term) for name, term in terms.items()}
        wrong = returns[~torch.isfinite(returns)][:1].tolist()
        for name, value in (*self._terms.items(), *(("a return", value) for value in wrong)):
            if not math.isfinite(value):
                raise Diverged(f"{name} is {value} at update {self.updates}")
        if self._record is not None:
            self._flow.lived.append(experience)
        else:
            self._lived.add(experience.steps, experience.episodes, experience.returns)

    def report(self) -> LearnerReport:
        """Returns the report for the status. Called from the HTTP server's threads."""
        own = LearnerReport(
            state=self._state, incarnation=self._endpoint().incarnation, time=datetime.now(UTC)
        )
        return self._record.report(own, self.group.warning) if self._record is not None else own

    def numbers(self) -> Numbers:
        """Returns the metrics for Prometheus. Called from the HTTP server's threads."""
        recorded = self._record.point if self._record is not None else {}
        return {**recorded, "updates": self.updates}

    def finish(self) -> None:
        """For the trainer: writes the last checkpoint and the policy, when the function returns."""
        if (record := self._record) is not None:
            record.stop_reason = record.stop_reason or "learner(world) returned"
            record.save()
            assert self._spaces is not None
            record.finish(self._algorithm.network, self._spaces)
        self._state = "Finished"
        for path in self._flow.paths.values():
            path.finish()

    def save(self) -> None:
        """For the trainer: writes a checkpoint of the current state in the background."""
        if self._record is not None:
            self._record.save()

    def close(self) -> None:
        """For the trainer: ends connections and threads. Writes in progress are completed."""
        if self._record is not None:
            self._record.close()
        for path in self._flow.paths.values():
            path.close()
        self.group.close()

    def _look(self) -> bool:
        """Records or reports the last update. Returns whether the record has a stop reason."""
        terms, self._terms = self._terms, None
        if (record := self._record) is None:
            self._tell()
            return False
        now = time.monotonic()
        record.look(terms, now)
        if record.wants_checkpoint(now):
            record.save()
        return record.stop_reason is not None

    def _begin_round(self, over: bool) -> bool:
        """Returns whether the first learner ends the run. The group then has all live learners."""
        while True:
            try:
                if not self.group.size:
                    self.group.form(self._context.stopping)
                return self.group.begin(0.0, over).done
            except GroupChanged as error:
                _LOG.warning("the learners form a new group: %s", error)

    def _make_group(self) -> LearnerGroup:
        context, algorithm = self._context, self._algorithm
        return LearnerGroup(
            context.index,
            len(context.learners),
            endpoint=self._endpoint,
            first_learner=context.learners[0],
            token=context.token,
            device=torch.device("cpu"),
            updates=lambda: algorithm.updates,
            get_state=algorithm.get_state,
            set_state=algorithm.set_state,
        )

    def _tell(self) -> None:
        """Reports this learner's counts to the first learner, one message at a time."""
        if self._lived.news and (self._telling is None or self._telling.done()):
            self._sequence += 1
            origin = {"incarnation": self._endpoint().incarnation, "sequence": self._sequence}
            message = origin | self._lived.take()
            self._telling = self._first().start(REPORT, message)


def experience_of(
    steps: int, returns: Tensor | Sequence[float], episodes: int | None, lag: int | None = None
) -> Experience:
    """Checks the counts of user code.

    Raises TypeError or ValueError if ``steps`` or ``episodes`` is not a count.
    """
    values = torch.as_tensor(returns, dtype=torch.float32).detach().cpu().reshape(-1)
    count = len(values) if episodes is None else _counted("episodes", episodes)
    return Experience(_counted("steps", steps), values, count, lag)


def _counted(name: str, value: int) -> int:
    """Returns ``value`` as an int. Raises TypeError for other types, ValueError below 0."""
    try:
        count = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be an integer, not {value!r}") from error
    if count < 0:
        raise ValueError(f"{name} must be at least 0, not {count}")
    return count


class _OwnAlgorithm:
    """The user's policy and state, as an algorithm for the record and the group."""

    def __init__(self) -> None:
        self.updates = 0
        self.network: PolicyNetwork | None = None
        self._parts: dict[str, Stateful] = {}

    def take(self, policy: PolicyNetwork | None, state: Mapping[str, Stateful]) -> None:
        self.network = policy
        self._parts = {**state} if policy is None else {"policy": policy, **state}

    def learning_rate(self, environment_steps: int) -> float:
        """Returns the learning rate of the first optimizer."""
        rates = (part.param_groups[0]["lr"] for part in self._parts.values() if hasattr(part, "param_groups"))
        return float(next(rates, 0.0))

    def get_state(self) -> dict[str, Any]:
        """Raises Diverged if the policy has a value that is NaN or infinite."""
        if self.network is not None:
            check_finite(self.network, f"at update {self.updates}")
        parts = {name: copied(part.state_dict()) for name, part in self._parts.items()}
        return {"updates": self.updates, "parts": parts}

    def set_state(self, state: dict[str, Any]) -> None:
        parts = state["parts"]
        if parts.keys() != self._parts.keys():
            raise ValueError(f"it holds {sorted(parts)}, but world.run() was given {sorted(self._parts)}")
        for name, part in self._parts.items():
            part.load_state_dict(parts[name])
        self.updates = state["updates"]


class _OwnFlow:
    """The samplers' counts and the data paths, as a data flow for the record."""

    def __init__(self, algorithm: _OwnAlgorithm, models: ModelServer, *, alone: bool) -> None:
        """``alone``: there is no other learner with a state that could include earlier reports."""
        self.algorithm = algorithm
        self.lived: list[Experience] = []
        self.paths: dict[str, DataPath] = {}
        self.reports = SamplerReports(models, self._announce, self._insert_limit, anew=alone)
        """Reports of samplers and of the other learners."""

    def experiences(self) -> list[Experience]:
        lived, self.lived = self.lived, []
        return lived + [Experience(*news[:5]) for news in self.reports.take()]

    @property
    def shares_whole(self) -> bool:
        return True

    def metrics(self) -> dict[str, float | None]:
        return {name: value for path in self.paths.values() for name, value in path.metrics().items()}

    def replay(self) -> ReplayStatus | None:
        replay = self._replay
        return replay.status() if replay is not None else None

    def warnings(self) -> tuple[Warning, ...]:
        return ()

    def get_state(self) -> dict[str, Any]:
        paths = {name: path.get_state() for name, path in self.paths.items()}
        return {"reports": self.reports.get_state(), "paths": paths}

    def set_state(self, state: dict[str, Any]) -> None:
        paths = state.get("paths", {})  # a checkpoint of an earlier version has none
        if paths.keys() != self.paths.keys():
            raise ValueError(f"it has the data paths {sorted(paths)}, not {sorted(self.paths)}")
        self.reports.set_state(state["reports"])
        for name, path in self.paths.items():
            path.set_state(paths[name])

    @property
    def _replay(self) -> LearnerReplay | None:
        path = self.paths.get("replay")
        return path if isinstance(path, LearnerReplay) else None

    def _announce(self, keeper: str, shard: dict[str, Any], lived: bool) -> None:
        if (replay := self._replay) is not None:
            replay.announce(keeper, shard, lived)

    def _insert_limit(self, keeper: str) -> int | None:
        replay = self._replay
        return replay.insert_limit(keeper) if replay is not None else None
