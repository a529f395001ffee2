"""A shard of the replay in one process, and the reports of its sampler."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.algorithms.replay import Replay
from rltraining_trainer.algorithms.transitions import transition_columns
from rltraining_trainer.dataflow.reports import StepCounters
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.transport import DeferredReply
from rltraining_trainer.world.shards import LocalShard, make_buffer
from torch import Tensor

VECTOR = spaces.Box(-1, 1, (3,), np.float64)
HUGE = spaces.Box(0, 1, (10**6,))


def test_a_report_has_totals_of_steps_and_episodes_and_the_returns_since_the_last_report() -> None:
    counters = StepCounters()
    assert not counters.news
    counters.add(30, 2, torch.tensor([1.0]))
    assert counters.news
    first = counters.take()
    assert not counters.news
    counters.add(32, 0, torch.zeros(0))
    counters.add(31, 3, torch.tensor([5.0, 6.0]))
    second = counters.take()

    assert (first["steps"], first["episodes"], first["returns"].tolist()) == (30, 2, [1.0])
    assert (second["steps"], second["episodes"], second["returns"].tolist()) == (93, 5, [5.0, 6.0])


@pytest.mark.parametrize(
    ("settings", "observation", "sentence"),
    [
        ({"frameStack": 4}, spaces.Box(0, 255, (84, 84, 4), np.uint8), r"frameStack is 4.*\[84, 84, 4\]"),
        ({"frameStack": 2}, spaces.Discrete(3), r"frameStack is 2.*\[\]"),
        ({"capacity": 2**31 - 1, "kind": "Uniform"}, HUGE, r"replay.capacity.*no memory; lower it"),
    ],
    ids=["frames last", "no frames", "too many"],
)
def test_an_impossible_buffer_is_refused_with_the_field_to_change(
    settings: dict[str, Any], observation: spaces.Space, sentence: str
) -> None:
    columns = transition_columns(observation, spaces.Discrete(2))
    with pytest.raises(BadConfiguration, match=sentence):
        make_buffer(Replay(**settings), columns, shards=2, seed=0)


SPACES = VECTOR, spaces.Discrete(2)


def make_shard(path: Path, every_seconds: float = 0.0, **settings: Any) -> LocalShard:
    spec = SimpleNamespace(seed=0, checkpoint=SimpleNamespace(every_seconds=every_seconds))
    live: Any = SimpleNamespace(look=lambda now: None, checkpoint=spec.checkpoint)
    context: Any = SimpleNamespace(
        job=SimpleNamespace(spec=spec), index=0, storage=str(path), pod="pole-sampler-0"
    )
    endpoint: Any = SimpleNamespace(url="here", serve=lambda services: None)
    return LocalShard(context, live, Replay(minimum=1, **settings), transition_columns(*SPACES), 1, endpoint)


def transitions(count: int) -> dict[str, Tensor]:
    columns = transition_columns(*SPACES).items()
    return {name: torch.zeros((count, *column.shape), dtype=column.dtype) for name, column in columns}


def keep(path: Path, inserted: int, capacity: int) -> int:
    """Runs a shard that is saved after N more transitions. Returns the number of insertions."""
    local = make_shard(path, capacity=capacity, checkpoint=True)
    local.shard.add(transitions(inserted), torch.ones(inserted))
    local.tick(float("inf"))
    local.close()
    return local.shard.counts.inserted


def test_insertions_into_a_new_shard_wait_for_the_limit_of_the_learner(tmp_path: Path) -> None:
    local = make_shard(tmp_path)
    answer = local.shard.insert(
        "pole-sampler-1",
        {"incarnation": "a", "sequence": 1, "items": transitions(2), "priorities": torch.ones(2)},
    )
    assert isinstance(answer, DeferredReply)
    answered: list[Any] = []
    answer.attach(answered.append)
    assert not answered
    local.shard.set_limit(3)
    assert len(answered) == 1


def test_a_saved_shard_continues_and_starts_empty_after_its_capacity_has_changed(tmp_path: Path) -> None:
    assert keep(tmp_path, 30, capacity=20) == 30
    assert keep(tmp_path, 5, capacity=20) == 35
    assert keep(tmp_path, 5, capacity=10) == 5, "the checkpoint does not fit: the shard starts empty"
    assert keep(tmp_path, 3, capacity=10) == 8, "the newest checkpoint, although it has fewer insertions"
    assert keep(tmp_path, 3, capacity=10) == 11


def test_a_shard_is_saved_at_an_interval_that_changes_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltraining_trainer.world.shards.time.monotonic", lambda: 100.0)
    local: Any = make_shard(tmp_path, every_seconds=3600.0, checkpoint=True)
    saved: list[int] = []
    monkeypatch.setattr(local._checkpoints, "submit", lambda step, state: saved.append(step))
    local.tick(199.0)
    assert not saved
    local._live.checkpoint = SimpleNamespace(every_seconds=50.0)
    local.tick(149.0)
    assert not saved
    local.tick(150.0)
    assert len(saved) == 1, "the interval counts from the last checkpoint, not from its change"
    local.tick(199.0)
    local._live.checkpoint = SimpleNamespace(every_seconds=200.0)
    local.tick(349.0)
    assert len(saved) == 1
    local.tick(350.0)
    assert len(saved) == 2
    local.close()
