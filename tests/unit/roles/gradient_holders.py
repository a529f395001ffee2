"""Parameter holders and samplers without processes: their rounds are threads, their messages calls."""

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
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.roles.context import Context, read_job
from rltraining_trainer.roles.gradient_flow import GradientFlow
from rltraining_trainer.roles.rollout_flow import RolloutFlow
from rltraining_trainer.transport import DeferredReply

SPACES = (spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2))
DEADLINE = 0.01
"""Seconds: the few that wait for it do so really."""
A2C: dict[str, Any] = {
    "aggregate": {"deadlineSeconds": DEADLINE},
    "optimizer": {"sgd": {}},
    "gradientClip": 1.0,
}
A3C: dict[str, Any] = {"aggregate": {"mode": "Async", "count": 1}, "optimizer": {"sgd": {}}}
PPO: dict[str, Any] = {
    "aggregate": {"deadlineSeconds": DEADLINE},
    "epochs": 2,
    "minibatches": 2,
    "targetKl": 0.1,
}


class Sampler:
    """Sends gradients to all holders; ``answers``: what each of them has answered."""

    def __init__(self, holders: Holders, index: int) -> None:
        self.holders, self.name = holders, f"pole-sampler-{index}"
        self.incarnation = "a"
        self.answers: list[list[dict[str, Any]]] = [[] for _ in holders.flows]
        self._sequence = 0

    def pull(self) -> None:
        for number in range(len(self.holders.flows)):
            self._call(number, "pull", {"version": 0})

    def push(
        self, gradient: torch.Tensor, *, to: tuple[int, ...] = (0, 1), kl: float = 0.0, place: Any = None
    ) -> None:
        """A gradient ``[N]`` of the place that was last answered, to these holders."""
        self._sequence += 1
        flows = self.holders.flows
        size, count = gradient.numel(), len(flows)
        for number in range(count):
            if number in to:
                content = {
                    "gradient": gradient[number * size // count : (number + 1) * size // count].clone(),
                    "weight": 1.0,
                    "steps": 5,
                    "episodes": 2,
                    "returns": torch.ones(2) if number == 0 else torch.zeros(0),
                    "terms": {"loss": 1.0, "kl": kl},
                }
                self._push(number, content, place)

    def push_rollout(self, unroll: Any) -> None:
        """A rollout of the place that was last answered, to the only holder."""
        self._sequence += 1
        self._push(0, {"unroll": dict(unroll)}, None)

    @property
    def last(self) -> list[dict[str, Any]]:
        return [answers[-1] for answers in self.answers]

    def _push(self, number: int, content: dict[str, Any], place: Any) -> None:
        last = self.answers[number][-1]
        about = {"incarnation": self.incarnation, "sequence": self._sequence, "version": last["version"]}
        self._call(number, "push", about | {"place": place or last["place"]} | content)

    def _call(self, number: int, service: str, message: dict[str, Any]) -> None:
        deferred = self.holders.flows[number].services[service](self.name, message)
        assert isinstance(deferred, DeferredReply)
        deferred.attach(lambda answer: self.answers[number].append(answer[1]))


class Sum:
    """Reduces over threads."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count, timeout=5)
        self._parts: dict[int, torch.Tensor] = {}

    def __call__(self, number: int) -> Callable[[torch.Tensor, float], float]:
        def reduce(values: torch.Tensor, count: float) -> float:
            self._parts[number] = values.clone()
            self._barrier.wait()
            total = torch.stack([self._parts[key] for key in sorted(self._parts)]).sum(0)
            self._barrier.wait()
            values.copy_(total)
            return count

        return reduce


class Holders:
    """All learners of a job, and the rounds that they go through as their loops do."""

    def __init__(self, folder: Path, algorithm: dict[str, Any], count: int = 2, samplers: int = 2) -> None:
        job = {
            "apiVersion": "rltraining.dev/v1alpha1",
            "kind": "RLTrainingJob",
            "metadata": {"name": "pole"},
            "spec": {
                "algorithm": algorithm,
                "environment": {"id": "CartPole-v1"},
                "learner": {"replicas": count},
                "stop": {"environmentSteps": 1000},
            },
        }
        (folder / "job.json").write_text(json.dumps(job))
        self.models = [ModelServer() for _ in range(count)]
        self.flows = [self._make(folder, index, count, samplers) for index in range(count)]
        for flow, models in zip(self.flows, self.models, strict=True):
            models.publish(flow.algorithm.parameters)

    def _make(self, folder: Path, index: int, count: int, samplers: int) -> GradientFlow:
        context = Context(
            job=read_job(folder / "job.json"),
            job_file=folder / "job.json",
            token="secret",
            pod=f"pole-learner-{index}",
            index=index,
            http_port=0,
            learners=tuple(f"http://{number}:1" for number in range(count)),
            replays=(),
            output=folder,
        )
        torch.manual_seed(0)
        live: Any = SimpleNamespace(samplers=samplers, look=lambda now: None)
        endpoint: Any = SimpleNamespace(incarnation=f"life of {index}")
        settings: Any = context.job.spec.algorithm.parameters
        device = torch.device("cpu")
        flow = RolloutFlow if settings.gradients == "Learner" else GradientFlow
        return flow(context, settings, SPACES, self.models[index], device, live, lambda: endpoint)

    def form(self) -> None:
        state = self.flows[0].get_common_state()
        for flow, models in zip(self.flows[1:], self.models[1:], strict=True):
            flow.set_common_state(state)
            models.publish(flow.algorithm.parameters)
        for rank, flow in enumerate(self.flows):
            flow.share(rank, len(self.flows))

    def part(self) -> None:
        for flow in self.flows:
            flow.part()

    def round(self, timeout: float = 0.0, before_learning: Callable[[], None] = lambda: None) -> bool:
        """Whether there was an update of all."""
        batches = [flow.next_batch(timeout) for flow in self.flows]
        pairs = list(zip(self.flows, batches, strict=True))
        update = any(flow.allows_update(batch) for flow, batch in pairs)
        held = any(flow.holds(batch) for flow, batch in pairs)
        normalizer = max(0.0 if batch is None else flow.normalizer(batch) for flow, batch in pairs)
        if update and not held:
            before_learning()
            self.together(lambda number, reduce: self._learn(number, batches[number], normalizer, reduce))
        for flow in self.flows:
            flow.tend(0.0)
        return update and not held

    def _learn(self, number: int, batch: Any, normalizer: float, reduce: Any) -> None:
        flow = self.flows[number]
        updates = flow.algorithm.updates
        flow.learn(batch, normalizer, reduce)
        if flow.algorithm.updates != updates:
            self.models[number].publish(flow.algorithm.parameters)

    def together(self, act: Callable[[int, Any], None]) -> None:
        """All do it, each in a thread."""
        reduce, failures = Sum(len(self.flows)), []

        def run(number: int) -> None:
            try:
                act(number, reduce(number))
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=run, args=[number]) for number in range(len(self.flows))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert not failures

    @property
    def parameters(self) -> torch.Tensor:
        return torch.cat([flow.algorithm.parameters for flow in self.flows]).clone()

    def counts(self, name: str) -> list[float | None]:
        return [flow.metrics()[f"gradients/{name}"] for flow in self.flows]


def make(folder: Path, algorithm: dict[str, Any], **options: Any) -> tuple[Holders, list[Sampler]]:
    """Holders in a group, and samplers that have their parameters."""
    holders = Holders(folder, algorithm, **options)
    samplers = [Sampler(holders, index) for index in range(options.get("samplers", 2))]
    holders.form()
    for sampler in samplers:
        sampler.pull()
    return holders, samplers


def gradient_like(parameters: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.randn(parameters.numel(), generator=torch.Generator().manual_seed(seed))
