"""What samplers report, what learners beyond the first tell, and what a transition is made of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.algorithms.replay import Replay
from rltraining_trainer.algorithms.transitions import Block
from rltraining_trainer.dataflow import NO_MOMENTS
from rltraining_trainer.dataflow.replay import Column, ReplayStats
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.roles.followers import Drawers
from rltraining_trainer.roles.link import REPORT_SECONDS
from rltraining_trainer.roles.replay_sampler import News
from rltraining_trainer.roles.shards import KeptShard, make_buffer, transition_columns
from rltraining_trainer.transport import DeferredReply
from torch import Tensor

IMAGE = spaces.Box(0, 255, (4, 8, 8), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,), np.float64)
HUGE = spaces.Box(0, 1, (10**6,))
NUMBER = Column((), torch.float32)


def block(steps: int, *returns: float, episodes: int) -> Block:
    nothing: Any = {}
    return Block(
        transitions=nothing,
        priorities=torch.zeros(0),
        steps=steps,
        pending=0,
        episodes=episodes,
        episode_return=torch.tensor(returns),
        moments=NO_MOMENTS,
        episode_length=torch.zeros(len(returns)),
    )


def test_a_report_has_counts_of_a_life_and_returns_since_the_last() -> None:
    news = News(refresh_steps=16, now=0.0)
    news.add(block(30, 1.0, episodes=2), 16)
    first = news.take(0.1)
    news.add(block(32, episodes=0), 16)
    news.add(block(31, 5.0, 6.0, episodes=3), 16)
    second = news.take(0.2)

    assert (first["steps"], first["episodes"], first["returns"].tolist()) == (30, 2, [1.0])
    assert (second["steps"], second["episodes"], second["returns"].tolist()) == (93, 5, [5.0, 6.0])


def test_a_report_is_due_when_parameters_are_or_when_time_passes() -> None:
    news = News(refresh_steps=32, now=0.0)
    news.add(block(16, episodes=0), 16)
    assert not news.due(0.1)
    assert news.due(REPORT_SECONDS), "whoever is silent is taken for lost"
    news.add(block(16, episodes=0), 16)
    assert news.due(0.1)
    news.take(0.1)
    assert not news.due(0.2)


@pytest.mark.parametrize(
    ("observation", "action", "seen", "taken"),
    [
        (IMAGE, spaces.Discrete(3), Column((4, 8, 8), torch.uint8), Column((), torch.int64)),
        (VECTOR, spaces.Box(-1, 1, (2, 2)), Column((3,), torch.float32), Column((4,), torch.float32)),
        (spaces.Discrete(5), spaces.Discrete(2), Column((), torch.int64), Column((), torch.int64)),
    ],
    ids=["images", "vectors", "numbers"],
)
def test_a_transition_keeps_observations_in_their_type(
    observation: spaces.Space, action: spaces.Space, seen: Column, taken: Column
) -> None:
    assert transition_columns(observation, action) == {
        "observation": seen,
        "action": taken,
        "reward": NUMBER,
        "discount": NUMBER,
        "next_observation": seen,
    }


def test_observations_that_are_not_one_array_are_refused() -> None:
    with pytest.raises(BadConfiguration, match="FlattenObservation"):
        transition_columns(spaces.Dict({"a": VECTOR}), spaces.Discrete(2))


def test_actions_that_are_not_one_array_are_refused_by_their_name() -> None:
    with pytest.raises(BadConfiguration, match=r"actions of Dict.*use ppo, a2c, a3c or impala"):
        transition_columns(VECTOR, spaces.Dict({"a": VECTOR}))


@pytest.mark.parametrize(
    ("settings", "observation", "sentence"),
    [
        ({"frameStack": 4}, spaces.Box(0, 255, (84, 84, 4), np.uint8), r"frameStack is 4.*\[84, 84, 4\]"),
        ({"frameStack": 2}, spaces.Discrete(3), r"frameStack is 2.*\[\]"),
        ({"capacity": 2**31 - 1, "kind": "Uniform"}, HUGE, r"replay.capacity.*no memory; lower it"),
    ],
    ids=["frames last", "no frames", "too many"],
)
def test_a_memory_that_cannot_be_is_refused_in_a_sentence(
    settings: dict[str, Any], observation: spaces.Space, sentence: str
) -> None:
    columns = transition_columns(observation, spaces.Discrete(2))
    with pytest.raises(BadConfiguration, match=sentence):
        make_buffer(Replay(**settings), columns, shards=2, seed=0)


OF = VECTOR, spaces.Discrete(2)


def kept_shard(path: Path, **settings: Any) -> KeptShard:
    spec = SimpleNamespace(seed=0, checkpoint=SimpleNamespace(every_seconds=0.0))
    context: Any = SimpleNamespace(
        job=SimpleNamespace(spec=spec), index=0, storage=str(path), pod="pole-sampler-0"
    )
    return KeptShard(context, Replay(minimum=1, **settings), OF, 1)


def transitions(count: int) -> dict[str, Tensor]:
    columns = transition_columns(*OF).items()
    return {name: torch.zeros((count, *column.shape), dtype=column.dtype) for name, column in columns}


def keep(path: Path, inserted: int, capacity: int) -> int:
    """A life of a shard that is saved after `inserted` more transitions; how many it has then."""
    kept = kept_shard(path, capacity=capacity, checkpoint=True)
    kept.shard.add(transitions(inserted), torch.ones(inserted))
    kept.tend(float("inf"))
    kept.close()
    return kept.shard.counts.inserted


def test_samplers_that_find_a_shard_before_the_learner_does_wait_for_what_it_allows(tmp_path: Path) -> None:
    kept = kept_shard(tmp_path)
    answer = kept.shard.insert(
        "pole-sampler-1",
        {"incarnation": "a", "sequence": 1, "items": transitions(2), "priorities": torch.ones(2)},
    )
    assert isinstance(answer, DeferredReply)
    answered: list[Any] = []
    answer.attach(answered.append)
    assert not answered
    kept.shard.set_limit(3)
    assert len(answered) == 1


def test_a_shard_that_is_saved_goes_on_also_after_its_size_changed(tmp_path: Path) -> None:
    assert keep(tmp_path, 30, capacity=20) == 30
    assert keep(tmp_path, 5, capacity=20) == 35
    assert keep(tmp_path, 5, capacity=10) == 5, "it does not fit, and begins empty"
    assert keep(tmp_path, 3, capacity=10) == 8, "what was saved last, though of fewer insertions"
    assert keep(tmp_path, 3, capacity=10) == 11


def stats(**counts: int) -> ReplayStats:
    nothing = {name: 0 for name in ReplayStats._fields}
    return ReplayStats(**(nothing | {"sizes": {}} | counts))  # type: ignore[arg-type]


def tell(drawers: Drawers, incarnation: str, **counts: int) -> None:
    names = ("drawn", "applied", "stale", "priorities_lost", "outstanding")
    drawers.services["shards"]("learner-1", {"incarnation": incarnation, **dict.fromkeys(names, 0), **counts})


def test_draws_of_all_learners_are_added_up() -> None:
    drawers = Drawers(list)
    tell(drawers, "a", drawn=10, applied=7, outstanding=3)
    tell(drawers, "a", drawn=20, applied=15, outstanding=5)

    total = drawers.total(stats(drawn=100, applied=90, outstanding=10, size=5))

    assert (total.drawn, total.applied, total.outstanding, total.size) == (120, 105, 15, 5)


def test_what_a_learner_had_on_its_way_when_it_died_is_lost() -> None:
    drawers = Drawers(list)
    tell(drawers, "a", drawn=20, applied=15, outstanding=5)
    tell(drawers, "b", drawn=4, applied=4)

    total = drawers.total(stats())

    assert (total.drawn, total.applied, total.priorities_lost, total.outstanding) == (24, 19, 5, 0)


def test_the_answer_is_the_map_of_shards() -> None:
    drawers = Drawers(lambda: [{"name": "sampler-0"}])
    counts = dict.fromkeys(("drawn", "applied", "stale", "priorities_lost", "outstanding"), 0)

    answer = drawers.services["shards"]("learner-1", {"incarnation": "a", **counts})

    assert answer == [{"name": "sampler-0"}]


def test_draws_of_the_others_outlive_the_first_learner() -> None:
    lost, drawers = Drawers(list), Drawers(list)
    tell(lost, "a", drawn=20, applied=15, outstanding=5)
    tell(lost, "b", drawn=4, applied=4)
    drawers.set_state(lost.get_state())
    tell(drawers, "b", drawn=6, applied=6)

    assert (drawers.total(stats()).drawn, drawers.total(stats()).priorities_lost) == (26, 5)
