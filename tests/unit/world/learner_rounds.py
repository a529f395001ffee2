"""A learner with a group, data path and algorithm that record a run's calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from own_runs import Begin, make_context
from rltraining_trainer.algorithms.schedules import scheduled
from rltraining_trainer.dataflow.reports import StatsDelta
from rltraining_trainer.group import GroupChanged, GroupDecision
from rltraining_trainer.roles.spec_watcher import SpecWatcher
from rltraining_trainer.transport import Traffic
from rltraining_trainer.world.data_path import DataPath
from rltraining_trainer.world.run import Run

SAVE, IDLE, DONE = (
    GroupDecision(done=False, update=False, checkpoint=True),
    GroupDecision(done=False, update=False),
    GroupDecision(done=True),
)
UPDATE = GroupDecision(done=False)


class Rounds:
    """A group with rounds that a test sets in advance."""

    rank, size, warning = 1, 2, ""

    def __init__(self, *rounds: GroupDecision | GroupChanged) -> None:
        self._rounds = iter(rounds)
        self.ready: list[bool] = []
        self.requests: list[dict[str, bool]] = []
        self.values: list[Sequence[float]] = []

    def form(self, stopping: Any) -> None:
        """Does nothing: the group exists."""

    def begin(
        self,
        done: bool,
        *,
        update: bool = True,
        hold: bool = False,
        checkpoint: bool = False,
        total_steps: int | None = None,
        values: Sequence[float],
    ) -> GroupDecision:
        self.ready.append(update)
        self.requests.append({"done": done, "hold": hold, "checkpoint": checkpoint})
        self.values.append(values)
        round_ = next(self._rounds)
        if isinstance(round_, GroupChanged):
            raise round_
        return round_ if round_.largest else round_._replace(largest=values)

    def sum(self, gradient: Any, count: float) -> float:
        return count

    def barrier(self) -> None:
        """Does nothing: all members have arrived."""

    def close(self) -> None:
        """Does nothing: nothing is open."""


class Algorithm:
    """An algorithm with three parameters, to which an update adds 1."""

    def __init__(self, policy: Any) -> None:
        self.network, self.updates = policy, 0
        self.parameters = torch.zeros(3)
        self.total_steps: int | None = None

    def learning_rate(self, environment_steps: int) -> float:
        return scheduled(0.002, "Linear", environment_steps, self.total_steps)

    def get_state(self) -> dict[str, Any]:
        return {"parameters": self.parameters.clone(), "updates": self.updates}

    def set_state(self, state: dict[str, Any]) -> None:
        self.parameters.copy_(state["parameters"])
        self.updates = state["updates"]


class RecordedPath(DataPath):
    """Records the run's calls."""

    def __init__(self, *, slices: bool, leads: bool) -> None:
        self.shares_state, self.leads = not slices, leads
        self.done: list[str] = []
        self.applied = 0
        self.delays = False
        self.lose = False
        """Whether a learner is lost while the next state is gathered."""

    def waits_for_data(self, batch: Any) -> bool:
        return self.delays

    def gather_state(self, reduce: Any) -> None:
        if self.lose:
            self.lose = False
            raise GroupChanged("one died")
        self.done.append("gather")

    def leave_group(self) -> None:
        self.done.append("leave")

    def on_group_formed(self, rank: int, size: int) -> None:
        self.done.append("form")

    def get_state(self) -> dict[str, Any]:
        return {"applied": self.applied}

    def set_state(self, state: dict[str, Any]) -> None:
        self.applied = state["applied"]


class Learner:
    """A real run with a small algorithm and data path, and a group with given rounds."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        index: int,
        *,
        slices: bool = False,
        leads: bool = False,
        learners: int = 2,
        **spec: Any,
    ) -> None:
        spec = {"checkpoint": {"everySeconds": 3600}, "learner": {"replicas": learners}} | spec
        folder.mkdir(exist_ok=True)
        urls = ("http://a:1", "http://b:2")[:learners]
        context = make_context(folder, f"pole-learner-{index}", **spec)
        self.context = context = replace(context, learners=urls)
        begin = Begin(context)
        endpoint: Any = SimpleNamespace(incarnation="a life", traffic=Traffic())
        first: Any = SimpleNamespace(start=lambda *message: SimpleNamespace(done=lambda: False))
        self.live = SpecWatcher(context.job_file, context.job.spec)
        self.run = Run(context, self.live, endpoint, first if index > 0 else None, torch.device("cpu"))
        self.path = RecordedPath(slices=slices, leads=leads)
        self.run.add_path("data", self.path)
        self.algorithm = Algorithm(begin.policy())
        self.run.begin(None, {}, begin.spaces, self.algorithm)
        self.record: Any = self.run._record
        self.done = self.path.done
        self.batches: list[Any] = []
        """The batches of all updates."""
        self.checkpoints: list[dict[str, Any]] = []
        """The states of all checkpoints."""
        self._set = monkeypatch.setattr
        if self.record is not None:
            save = self.record.save

            def save_too() -> None:
                self.done.append("save")
                save()

            monkeypatch.setattr(self.record, "save", save_too)
            submit = lambda step, state: self.checkpoints.append(state)  # noqa: E731
            monkeypatch.setattr(self.record._checkpoints, "submit", submit)

    def train(self, *rounds: GroupDecision | GroupChanged, batches: Any = ()) -> list[str]:
        """Returns what the run does. ``group.requests`` are its requests in each round."""
        self.group = Rounds(*rounds)
        self._set(self.run, "group", self.group)
        left, start = iter(batches), len(self.done)
        self.run.done = False
        try:
            self.run.train(lambda timeout: next(left, None), self._update)
        finally:
            assert self.done.pop(start) == "form"
        return self.done

    def loop(self, *rounds: GroupDecision | GroupChanged) -> None:
        """Calls `active` once in each of these rounds. ``group.values`` are the counts that this learner sends."""
        self.group = Rounds(*rounds)
        self._set(self.run, "group", self.group)
        for _ in rounds:
            self.run.active()

    def receive(self, steps: int) -> None:
        """Counts steps that samplers send before the next poll."""
        self.run.paths.reports._news.append(StatsDelta(steps, torch.zeros(0), 0, 0))

    @property
    def steps(self) -> int:
        return self.run.report().progress.environment_steps  # type: ignore[union-attr]

    def _update(self, batch: Any, reduce: Any) -> dict[str, float]:
        self.batches.append(batch)
        self.done.append("update")
        self.algorithm.parameters.add_(1.0)
        self.algorithm.updates += 1
        return {}
