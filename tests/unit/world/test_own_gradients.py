"""`world.gradients` in a loop of `run.active()`: samplers send gradients to a single learner."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_members import LEARNER, FakeEndpoint, Job, Learner
from own_runs import Begin
from rltraining_api.algorithms import Aggregate
from rltraining_trainer.dataflow.gradients import GradientReader
from rltraining_trainer.dataflow.gradients.accounts import Push
from rltraining_trainer.dataflow.trajectory_queue import Source
from rltraining_trainer.world import Gradient, RolloutStats, Run, session
from rltraining_trainer.world.gradient import fields_of
from rltraining_trainer.world.gradients import LearnerGradients, SamplerGradients
from rltraining_trainer.world.session import Connections
from rltraining_trainer.world.trajectories import SamplerTrajectories

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
    """Starts a sampler with initial parameters of -1. Returns the first parameter with which each gradient is computed."""
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
    """Before, only `run.train` announced the group to the path, so that samplers waited forever."""
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


def test_samplers_compute_no_gradient_before_the_first_publication(job: Job) -> None:
    """Their own parameters are of another network than the learner's, which would apply these gradients."""
    aggregate = Aggregate(mode="Async", count=1)
    run, path = start_learner(job, aggregate)
    sampler, seen = start_sampler(job, aggregate, 1)
    assert run.active()
    while not run.models.unpublished:
        run.active()
    with pytest.raises(RuntimeError, match=r"^call run\.publish\(parameters\) before gradients\.take\(\)"):
        path.take(0.05)
    assert not seen
    run.publish(torch.zeros(3))
    while sampler.is_alive():
        path.take(0.05)
        run.active()
    assert seen == [0.0]
    run.close()


def test_samplers_put_no_item_before_the_first_publication(job: Job) -> None:
    learner, stopping = Learner(job), threading.Event()
    endpoint: Any = FakeEndpoint(job, SAMPLER)
    path = SamplerTrajectories(Connections(replace(job.context, pod=SAMPLER, stopping=stopping), endpoint))
    parameters = torch.zeros(3)
    starting = threading.Thread(target=lambda: path.attach(parameters))
    starting.start()
    while not learner.run.models.unpublished:
        assert starting.is_alive(), "it did not wait"
    with pytest.raises(RuntimeError, match=r"^call run\.publish\(parameters\) before trajectories\.get\(\)"):
        learner.queue.get(timeout=0.0)
    learner.run.publish(torch.ones(3))
    starting.join(60.0)
    assert parameters.tolist() == [1.0] * 3
    learner.run.close()


def test_numbers_of_a_gradient_may_be_of_any_type() -> None:
    """A push with the weight 1, or with a count of numpy, was refused."""
    terms: Any = {"loss": torch.tensor(0.5), "steps": 4}
    gradient, returns = Gradient(torch.ones(3), 1, terms), torch.tensor([2.0], dtype=torch.float64)
    fields = fields_of(gradient, RolloutStats(np.int64(4), 1, returns), 3)  # type: ignore[arg-type]
    place: Any = ("", 0, 0)
    read = GradientReader(3)(Push(Source(SAMPLER, "a life", 1), place, 1), fields)
    assert (read.weight, read.steps, read.episodes, read.returns.tolist()) == (1.0, 4, 1, [2.0])
    assert read.terms == {"loss": 0.5, "steps": 4.0}


@pytest.mark.parametrize("shape", [(6,), (2,), (3, 1)])
def test_a_gradient_of_another_shape_is_refused_where_it_is_pushed(shape: tuple[int, ...]) -> None:
    """The first numbers of a longer gradient were applied."""
    with pytest.raises(
        ValueError, match=r"^a gradient must have the shape of the parameters of world\.start\(\), \[3\]"
    ):
        fields_of(Gradient(torch.ones(shape), 1.0, {}), RolloutStats(), 3)
