"""The learner's side of the replay, with a local shard."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from own_runs import make_context
from rltraining_api.algorithms.replay import Replay
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.dataflow.replay import Column
from rltraining_trainer.dataflow.reports import SamplerReports
from rltraining_trainer.roles.spec_watcher import SpecWatcher
from rltraining_trainer.transport import DeferredReply
from rltraining_trainer.world.replay import LearnerReplay
from rltraining_trainer.world.shards import LocalShard

BATCH, MINIMUM = 8, 16
COLUMNS = {"reward": Column((), torch.float32)}


@pytest.fixture
def replay(tmp_path: Path) -> Iterator[LearnerReplay]:
    settings = Replay(placement="Learner", capacity=1000, minimum=MINIMUM, samples_per_insert=1)
    handlers: dict[str, Any] = {}
    endpoint: Any = SimpleNamespace(url="uv://here", serve=handlers.update)
    context = make_context(tmp_path)
    live = SpecWatcher(context.job_file, context.job.spec)
    replay = LearnerReplay(
        settings,
        BATCH,
        name="pole-learner-0",
        seed=0,
        item_bytes=4,
        endpoint=endpoint,
        reports=SamplerReports(ModelServer()),
        stopping=threading.Event(),
        local=LocalShard(context, live, settings, COLUMNS, 1, endpoint),
    )
    replay.handlers = handlers  # type: ignore[attr-defined]
    yield replay
    replay.close()


def insert(replay: Any, sequence: int, count: int) -> Any:
    payload = {
        "incarnation": "a",
        "sequence": sequence,
        "items": {"reward": torch.zeros(count)},
        "priorities": torch.ones(count),
    }
    return replay.handlers["insert"]("pole-sampler-0", payload)


def test_samplers_may_insert_what_the_learner_samples_while_it_waits_for_a_batch(
    replay: LearnerReplay,
) -> None:
    """Both sides wait with the period of the data, not of the learner's loop."""
    assert replay.sample(0.0) is None
    deferred = insert(replay, 1, MINIMUM + 2 * BATCH)
    assert isinstance(deferred, DeferredReply), "samplers may not be further ahead"
    answers: list[Any] = []
    deferred.attach(answers.append)

    for _ in range(4):
        batch = replay.sample(10.0)
        assert batch is not None
        replay.discard(batch)

    assert answers, "the sampler may continue"


def test_the_end_of_the_run_releases_samplers_that_wait_for_room(replay: LearnerReplay) -> None:
    replay.tick()
    deferred = insert(replay, 1, 1000)
    answers: list[Any] = []
    deferred.attach(answers.append)
    assert not answers
    replay.finish()
    assert answers
