"""The learner's side of the replay, with a memory of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.roles.context import Context, read_job
from rltraining_trainer.roles.replay_flow import ReplayFlow
from rltraining_trainer.transport import DeferredReply

SPACES = (spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2))
BATCH, MINIMUM = 8, 16
REPLAY = {"placement": "Learner", "capacity": 1000, "minimum": MINIMUM, "samplesPerInsert": 1}
JOB = {
    "apiVersion": "rltraining.dev/v1alpha1",
    "kind": "RLTrainingJob",
    "metadata": {"name": "pole"},
    "spec": {
        "algorithm": {"dqnApex": {"batchSize": BATCH, "replay": REPLAY}},
        "environment": {"id": "CartPole-v1"},
        "stop": {"environmentSteps": 100},
    },
}


@pytest.fixture
def flow(tmp_path: Path) -> Iterator[ReplayFlow]:
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    context = Context(
        job=read_job(tmp_path / "job.json"),
        job_file=tmp_path / "job.json",
        token="secret",
        pod="pole-learner-0",
        index=0,
        http_port=0,
        learners=("http://a:1",),
        replays=(),
        output=tmp_path,
    )
    settings: Any = context.job.spec.algorithm.parameters
    live: Any = SimpleNamespace(samplers=1)
    endpoint: Any = SimpleNamespace(url="uv://here")
    device = torch.device("cpu")
    flow = ReplayFlow(context, settings, SPACES, ModelServer(), device, live, lambda: endpoint)
    yield flow
    flow.close()


def insert(flow: ReplayFlow, sequence: int, count: int) -> Any:
    items = {
        "observation": torch.zeros(count, 3),
        "action": torch.zeros(count, dtype=torch.int64),
        "reward": torch.zeros(count),
        "discount": torch.ones(count),
        "next_observation": torch.zeros(count, 3),
    }
    payload = {
        "incarnation": "a",
        "sequence": sequence,
        "items": items,
        "priorities": torch.ones(count),
    }
    return flow.services["insert"]("pole-sampler-0", payload)


def test_while_the_learner_waits_for_a_batch_samplers_may_insert_what_it_takes(flow: ReplayFlow) -> None:
    """They wait for each other at the pace of the data, not of the learner's housekeeping."""
    assert flow.next_batch(0.0) is None
    deferred = insert(flow, 1, MINIMUM + 2 * BATCH)
    assert isinstance(deferred, DeferredReply), "that is as far as samplers may run ahead"
    answers: list[Any] = []
    deferred.attach(answers.append)

    for _ in range(4):
        assert flow.next_batch(10.0) is not None

    assert answers, "the sampler may go on"
