"""Learners that receive gradients or rollouts, without processes: they update in threads, and messages are calls.

The functions of the algorithms and their data paths are real. Runs, networks and endpoints are not.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from rltraining_api.network import Network
from rltraining_trainer.algorithms.a3c import AdvantageActorCritic
from rltraining_trainer.algorithms.ppo import ProximalPolicyOptimization
from rltraining_trainer.algorithms.rollouts import learn
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.networks import build_actor_critic
from rltraining_trainer.roles.context import read_job
from rltraining_trainer.transport import DeferredReply
from rltraining_trainer.world.data_paths import DataPaths
from rltraining_trainer.world.members import Members

SPACES = (spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2))
DEADLINE = 0.01
"""Deadline in seconds. The few tests that wait for the deadline wait in real time."""
A2C: dict[str, Any] = {
    "gradients": "Samplers",
    "aggregate": {"deadlineSeconds": DEADLINE},
    "optimizer": {"sgd": {}},
    "gradientClip": 1.0,
}
A3C: dict[str, Any] = {
    "gradients": "Samplers",
    "aggregate": {"mode": "Async", "count": 1},
    "optimizer": {"sgd": {}},
}
PPO: dict[str, Any] = {
    "gradients": "Samplers",
    "aggregate": {"deadlineSeconds": DEADLINE},
    "epochs": 2,
    "minibatches": 2,
    "targetKl": 0.1,
}


class Sampler:
    """Sends gradients to its learner, or slices to all learners in mode Async. ``answers``: by learner."""

    def __init__(self, learners: Learners, index: int) -> None:
        self.learners, self.name = learners, f"pole-sampler-{index}"
        self.incarnation = "a"
        count = len(learners.worlds)
        self.own = range(count) if learners.sliced else range(index % count, index % count + 1)
        self.answers: dict[int, list[dict[str, Any]]] = {number: [] for number in self.own}
        self._sequence = 0

    def pull(self) -> None:
        for number in self.own:
            self._call(number, "pull", {"version": 0})

    def push(self, gradient: torch.Tensor, *, to: tuple[int, ...] = (0, 1), kl: float = 0.0) -> None:
        """Pushes a gradient ``[N]`` with the place of the last answer, to these learners."""
        self._sequence += 1
        size, count = gradient.numel(), len(self.own)
        for part, number in enumerate(self.own):
            if number in to:
                content = {
                    "gradient": gradient[part * size // count : (part + 1) * size // count].clone(),
                    "weight": 1.0,
                    "steps": 5,
                    "episodes": 2,
                    "returns": torch.ones(2) if part == 0 else torch.zeros(0),
                    "terms": {"loss": 1.0, "kl": kl},
                }
                self._push(number, content)

    def push_rollout(self, unroll: Any) -> None:
        """Pushes a rollout with the place of the last answer, to the only learner."""
        self._sequence += 1
        self._push(self.own[0], {"unroll": dict(unroll)})

    @property
    def last(self) -> list[dict[str, Any]]:
        return [answers[-1] for answers in self.answers.values()]

    def _push(self, number: int, content: dict[str, Any]) -> None:
        last = self.answers[number][-1]
        origin = {"incarnation": self.incarnation, "sequence": self._sequence, "version": last["version"]}
        self._call(number, "push", origin | {"place": last["place"]} | content)

    def _call(self, number: int, service: str, message: dict[str, Any]) -> None:
        services = self.learners.worlds[number].path.services
        deferred = services[f"gradients/{service}"](self.name, message)
        assert isinstance(deferred, DeferredReply)
        deferred.attach(lambda answer: self.answers[number].append(answer[1]))


class Sum:
    """Sums over threads."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count, timeout=5)
        self._parts: dict[int, tuple[torch.Tensor, float]] = {}

    def __call__(self, number: int) -> Callable[[torch.Tensor, float], float]:
        def reduce(values: torch.Tensor, count: float) -> float:
            self._parts[number] = values.clone(), count
            self._barrier.wait()
            parts = [self._parts[key] for key in sorted(self._parts)]
            self._barrier.wait()
            values.copy_(torch.stack([part for part, _ in parts]).sum(0))
            return sum(count for _, count in parts)

        return reduce


class FakeRun:
    """Keeps what the algorithm's function passes to its run."""

    def __init__(self) -> None:
        self.models = ModelServer()
        self.paths: dict[str, Any] = {}
        self.counted: list[tuple[int, int, int | None]] = []
        """(steps, episodes, lag) of each push."""
        self.algorithm: Any = None
        self.update: Callable[[Any, Any], Any] = lambda batch, reduce: {}
        self._published = 0

    def add_path(self, name: str, path: Any) -> None:
        self.paths[name] = path

    def count(self, steps: int, returns: Any, *, episodes: int, lag: int | None) -> None:
        self.counted.append((steps, episodes, lag))

    def publish(self, parameters: torch.Tensor) -> None:
        if self.algorithm.updates != self._published:
            self.models.publish(parameters)
            self._published = self.algorithm.updates

    def train(self, take: Callable[[float], Any], update: Callable[[Any, Any], Any]) -> None:
        self.take, self.update = take, update


class FakeWorld(DataPaths):
    """The world of one learner."""

    spaces = SPACES  # type: ignore[assignment]

    def __init__(self, job: Any, index: int, samplers: int) -> None:
        self.name, self.index, self.spec = f"pole-learner-{index}", index, job.spec
        self.learners, self.settings = job.spec.learner.replicas, job.spec.algorithm.parameters
        self.stopping, self.device = threading.Event(), torch.device("cpu")
        self.total_steps = job.spec.stop.environment_steps
        self._endpoint: Any = SimpleNamespace(incarnation=f"life of {index}")
        self._run: Any = FakeRun()
        self._samplers = samplers

    def members(self, role: Any) -> Members:
        def member(index: int) -> Any:
            return SimpleNamespace(name=f"pole-sampler-{index}")

        return Members(lambda: self._samplers, member)

    def actor_critic(self) -> Any:
        torch.manual_seed(0)
        return build_actor_critic(Network.default(), *SPACES)

    def run(self, *, algorithm: Any) -> Any:
        self._run.algorithm = algorithm
        self._run.models.publish(algorithm.parameters)
        return self._run

    @property
    def path(self) -> Any:
        (path,) = self._run.paths.values()
        return path


class Learners:
    """All learners of a job, and the rounds of their loops."""

    def __init__(self, folder: Path, algorithm: dict[str, Any], count: int = 2, samplers: int = 2) -> None:
        job = {
            "apiVersion": "rltraining.dev/v1alpha1",
            "kind": "RLTrainingJob",
            "metadata": {"name": "pole"},
            "spec": {
                "algorithm": algorithm,
                "environment": {"id": "CartPole-v1"},
                "learner": {"replicas": count},
                "sampler": {"replicas": samplers},
                "stop": {"environmentSteps": 1000},
            },
        }
        (folder / "job.json").write_text(json.dumps(job))
        found = read_job(folder / "job.json")
        self.worlds: Any = [FakeWorld(found, index, samplers) for index in range(count)]
        self.sliced = count > 1 and self.worlds[0].settings.aggregate.mode == "Async"
        kind = ProximalPolicyOptimization if "ppo" in algorithm else AdvantageActorCritic
        for world in self.worlds:
            learn(world, kind)
        self.runs = [world._run for world in self.worlds]
        self.paths = [world.path for world in self.worlds]
        self.servers = [run.algorithm for run in self.runs]
        self.batches: list[Any] = [None] * count

    def form(self) -> None:
        """Forms the group, with the state of the first learner."""
        state, common = self.servers[0].get_state(), self.paths[0].get_common_state()
        for run, path in zip(self.runs[1:], self.paths[1:], strict=True):
            run.algorithm.set_state(state)
            path.set_common_state(common)
            run.models.publish(run.algorithm.parameters)
        for rank, path in enumerate(self.paths):
            path.on_group_formed(rank, len(self.paths))

    def leave(self) -> None:
        for path in self.paths:
            path.leave_group()

    def round(self, timeout: float = 0.0, before_update: Callable[[], None] = lambda: None) -> bool:
        """Returns whether all learners have made an update."""
        self.batches = [
            batch or run.take(timeout) for batch, run in zip(self.batches, self.runs, strict=True)
        ]
        pairs = list(zip(self.paths, self.batches, strict=True))
        update = any(batch for _, batch in pairs) and not any(
            path.waits_for_data(batch) for path, batch in pairs
        )
        if update:
            before_update()
            self.together(lambda number, reduce: self._update(number, reduce))
            self.batches = [None] * len(self.runs)
        for path in self.paths:
            path.tick()
        return update

    def _update(self, number: int, reduce: Any) -> None:
        run = self.runs[number]
        run.update(self.batches[number] or None, reduce)
        run.publish(run.algorithm.parameters)

    def together(self, act: Callable[[int, Any], None]) -> None:
        """Runs ``act`` for each learner in a thread."""
        reduce, failures = Sum(len(self.runs)), []

        def run(number: int) -> None:
            try:
                act(number, reduce(number))
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=run, args=[number]) for number in range(len(self.runs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert not failures

    @property
    def parameters(self) -> torch.Tensor:
        """``[N]``, of the slices or of the first replica."""
        servers = self.servers if self.sliced else self.servers[:1]
        return torch.cat([server.parameters.detach() for server in servers]).clone()

    def counts(self, name: str) -> list[float | None]:
        return [path.metrics()[f"gradients/{name}"] for path in self.paths]


def make(folder: Path, algorithm: dict[str, Any], **options: Any) -> tuple[Learners, list[Sampler]]:
    """Returns learners in a group, and samplers that have their parameters."""
    learners = Learners(folder, algorithm, **options)
    samplers = [Sampler(learners, index) for index in range(options.get("samplers", 2))]
    learners.form()
    for sampler in samplers:
        sampler.pull()
    return learners, samplers


def gradient_like(parameters: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.randn(parameters.numel(), generator=torch.Generator().manual_seed(seed))
