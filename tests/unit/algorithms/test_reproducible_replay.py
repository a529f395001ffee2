"""The replay of a reproducible run."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from rltraining_api.algorithms.replay import Replay
from rltraining_trainer.algorithms.reproducible_replay import BlockReplay, read_transitions
from rltraining_trainer.dataflow.replay import Column
from rltraining_trainer.errors import BadConfiguration
from through_a_file import stored

COLUMNS = {"number": Column((), torch.float32)}
BATCH = 10


def replay(**settings: Any) -> BlockReplay:
    fields = {"capacity": 100, "minimum": 50, "samples_per_insert": 4.0} | settings
    return BlockReplay(Replay(**fields), BATCH, COLUMNS, 7)


def add(table: BlockReplay, first: int, count: int) -> None:
    numbers = torch.arange(first, first + count, dtype=torch.float32)
    table.add({"number": numbers}, numbers % 7 + 1.0, count + 2)


def learn(table: BlockReplay) -> list[list[float]]:
    """Samples as often as possible, and sets priorities that depend on the items. Returns numbers and weights."""
    found = []
    while (sample := table.sample()) is not None:
        found.append(sample.items["number"].tolist() + table.weights(sample).tolist())
        table.update(sample, sample.items["number"] % 5 + 0.1)
    return found


def test_each_transition_is_sampled_as_often_as_samples_per_insert_says() -> None:
    table = replay()
    add(table, 0, 49)
    assert learn(table) == []
    add(table, 49, 1)
    ahead = len(learn(table))
    assert ahead == 2  # two batches at most
    for first in range(50, 150, 25):
        add(table, first, 25)
        assert len(learn(table)) == 25 * 4 / BATCH
    stats = table.stats()
    assert (stats.size, stats.inserted, stats.evicted, stats.drawn) == (100, 150, 50, 10 * (ahead + 40))
    assert stats.drawn == stats.applied + stats.stale + stats.priorities_lost + stats.outstanding
    assert table.environment_steps == 49 + 1 + 100 + 2 * 6
    assert stats.metrics()["replay/ratio"] == pytest.approx(420 / 150)


def test_a_restored_replay_continues_identically() -> None:
    one, other = replay(), replay()
    add(one, 0, 120)
    learn(one)
    other.set_state(stored(one.get_state()))
    for first in (120, 150):
        for table in (one, other):
            add(table, first, 30)
        found = learn(one)
        assert found
        assert learn(other) == found
    assert one.environment_steps == other.environment_steps == 120 + 60 + 6


@pytest.mark.parametrize("normalizer", ["Batch", "Buffer"])
def test_importance_weights(normalizer: str) -> None:
    table = replay(importance_normalizer=normalizer, importance_exponent=0.5, priority_exponent=1.0)
    numbers = torch.arange(64, dtype=torch.float32)
    table.add({"number": numbers}, numbers + 1.0, 64)
    sample = table.sample()
    assert sample is not None
    priorities = sample.items["number"] + 1.0
    least = priorities.min() if normalizer == "Batch" else 1.0
    assert torch.allclose(table.weights(sample), (priorities / least).pow(-0.5))


def test_a_fixed_number_of_updates_is_required() -> None:
    with pytest.raises(BadConfiguration, match=r"set replay\.samplesPerInsert"):
        replay(samples_per_insert=None)


def test_a_rollout_that_does_not_fit_the_replay_is_refused() -> None:
    empty: Any = torch.zeros(0)
    rollout: dict[str, Any] = dict.fromkeys(
        ("action", "observation", "first", "episode_return", "moments"), empty
    )
    rollout |= {
        "steps": 1,
        "episodes": 0,
        "priorities": torch.zeros(2),
        "transitions": {"number": torch.zeros(2)},
    }
    read = partial(read_transitions, COLUMNS)
    assert read({"unroll": rollout}) == rollout
    with pytest.raises(ValueError, match="number"):
        read({"unroll": rollout | {"transitions": {"number": torch.zeros(3)}}})
    with pytest.raises(TypeError, match="steps"):
        read({"unroll": rollout | {"steps": 1.5}})
