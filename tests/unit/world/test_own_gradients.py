"""`world.gradients` in a loop of `run.active()`: samplers send gradients to a single learner."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from data_members import LEARNER, FakeEndpoint, Job
from own_runs import Begin
from rltraining_api.algorithms import Aggregate
from rltraining_trainer.dataflow.gradients import GradientReader
from rltraining_trainer.world import Gradient, Run, session
from rltraining_trainer.world.gradients import LearnerGradients, SamplerGradients
from rltraining_trainer.world.session import Connections

SAMPLER = "pole-sampler-0"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    job = Job(tmp_path)
    monkeypatch.setattr(session, "discover", job.discover)
    yield job
    job.context.stopping.set()


def start_learner(job: Job, aggregate: Aggregate) -> tuple[Run, LearnerGradients[Any]]:
    begin, endpoint = Begin(job.context), FakeEndpoint(job, LEARNER)
    run = begin.make(endpoint)
    path: LearnerGradients[Any] = LearnerGradients(
        aggregate,
        GradientReader(3),
        name="gradients",
        models=run.models,
        index=0,
        learners=1,
        samplers=lambda: [SAMPLER],
        exchanges=lambda: 1,
        remaining=lambda: 1.0,
        incarnation=endpoint.incarnation,
        gather_state=lambda reduce: None,
        large=False,
        stopping=job.context.stopping,
    )
    run.add_path("gradients", path)
    run.begin(None, {}, begin.spaces)
    endpoint.serve(path.services)
    endpoint.start()
    return run, path


def start_sampler(job: Job, aggregate: Aggregate, pushes: int) -> tuple[threading.Thread, list[float]]:
    """Starts a sampler, whose own parameters are -1. Returns the first parameter in each of its gradients."""
    endpoint: Any = FakeEndpoint(job, SAMPLER)
    endpoint.start()
    connections = Connections(replace(job.context, pod=SAMPLER), endpoint)
    path, parameters, seen = (
        SamplerGradients(connections, aggregate, updates_at_learner=False),
        -torch.ones(3),
        [],
    )

    def act() -> None:
        path.attach(parameters)
        for _ in range(pushes):
            seen.append(float(parameters[0]))
            path.push(Gradient(torch.ones(3), 1.0, {}))

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread, seen


@pytest.mark.parametrize("mode", ["Async", "Sync"])
def test_a_loop_of_a_single_learner_answers_its_samplers(job: Job, mode: Any) -> None:
    """Samplers waited forever, since only `run.train` told the path that its group exists."""
    aggregate = Aggregate(mode=mode, count=1 if mode == "Async" else None)
    run, path = start_learner(job, aggregate)
    parameters = torch.zeros(3)
    run.publish(parameters)
    sampler, seen = start_sampler(job, aggregate, 3)
    for _ in range(200):
        assert run.active()
        for push in path.take(0.05):
            parameters += push.gradient
        run.publish(parameters)
        if not sampler.is_alive():
            break
    assert seen == [0.0, 1.0, 2.0]
    run.close()
