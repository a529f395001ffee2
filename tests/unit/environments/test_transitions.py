"""TransitionCollector: the transitions match the episodes, each exactly once, in every autoreset mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import pytest
import torch
from batches import in_turn
from counting import CountingEnv, HandWritten, length, reward, synchronous, terminates
from gymnasium.vector import AutoresetMode, VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from rltraining_trainer.algorithms.transition_collector import Block, TransitionCollector
from rltraining_trainer.algorithms.transitions import PRIORITY_EPSILON, Acted, Transitions
from rltraining_trainer.environments import Faults, Stepper
from rltraining_trainer.environments.faults import REMEDY
from rltraining_trainer.errors import Diverged
from soak import SOAK
from torch import Tensor

MODES = list(AutoresetMode)
B, DISCOUNT = 4, 0.9
REWARD_CLIP, REWARD_SCALE = 1.3, 0.5


class Thinker:
    """Takes action 1 + step % 2 at observation (episode, step), and values every action and observation."""

    normalizer = None

    def __init__(self) -> None:
        self.asked = 0
        """Number of observations that were valued separately."""
        self.environments, self.total = range(0), 0
        self.differ = True
        """Whether environments explore to different degrees."""

    def place(self, environments: range, total: int) -> bool:
        self.environments, self.total = environments, total
        return self.differ

    def act(self, observation: Tensor, first: Tensor) -> Acted:
        assert torch.equal(first, observation[:, 1] == 0), "an episode begins at its step 0"
        action = 1 + observation[:, 1].long() % 2
        return Acted(action, value_of_action(observation), value_of_state(observation))

    def value(self, observation: Tensor) -> Tensor:
        self.asked += len(observation)
        return value_of_state(observation)

    def to_environment(self, action: Tensor) -> np.ndarray:
        return action.numpy()


def value_of_action(observation: Tensor) -> Tensor:
    return observation[:, 0] - 2 * observation[:, 1]


def value_of_state(observation: Tensor) -> Tensor:
    return 3 + observation[:, 0] + observation[:, 1] / 2


def collector(
    environments: VectorEnv, *, rows: int, n: int, total: int = B, first: int = 0
) -> TransitionCollector:
    return TransitionCollector(
        Thinker(),
        Stepper(environments, "Counting"),
        length=rows,
        n_step=n,
        discount=DISCOUNT,
        reward_clip=REWARD_CLIP,
        reward_scale=REWARD_SCALE,
        seed=0,
        environments=range(first, first + environments.num_envs),
        total=total,
    )


Row = tuple[tuple[float, float], int, float, float, tuple[float, float]]
"""Observation, action, return, discount, next observation."""


def expected(first_episode: int, n: int) -> Iterator[Row]:
    """Yields the transitions of CountingEnv, in order, computed from its definition."""
    for episode in count(first_episode):
        for step in range(length(episode)):
            k = min(n, length(episode) - step)
            rewards = [reward(episode, step + i) for i in range(k)]
            learnt = [REWARD_SCALE * max(-REWARD_CLIP, min(REWARD_CLIP, r)) for r in rewards]
            over = step + k == length(episode) and terminates(episode)
            yield (
                (episode, step),
                1 + step % 2,
                sum(DISCOUNT**i * r for i, r in enumerate(learnt)),
                0.0 if over else DISCOUNT**k,
                (episode, step + k),
            )


def rows_of(transitions: Transitions) -> list[Row]:
    columns = (column.tolist() for column in transitions.values())
    return [
        (tuple(s), action, total, discount, tuple(after))
        for s, action, total, discount, after in zip(*columns, strict=True)
    ]


def by_environment(blocks: list[Block]) -> dict[int, list[Row]]:
    """Returns the rows by environment.

    CountingEnv b begins with episode b, and only the rows of the same environment are in order.
    """
    found: dict[int, list[Row]] = {b: [] for b in range(B)}
    ahead = {b: (b, 0) for b in range(B)}
    for block in blocks:
        for row in rows_of(block.transitions):
            b = next(b for b in range(B) if ahead[b] == row[0])
            found[b].append(row)
            episode, step = ahead[b]
            ahead[b] = (episode, step + 1) if step + 1 < length(episode) else (episode + 1, 0)
    return found


@settings(max_examples=25 * SOAK)
@given(
    make=st.sampled_from([synchronous, HandWritten]),
    mode=st.sampled_from(MODES),
    rows=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    n=st.integers(1, 7),
)
def test_each_step_is_one_transition_whatever_the_mode_and_the_blocks(
    make: Callable[[int, AutoresetMode], VectorEnv], mode: AutoresetMode, rows: list[int], n: int
) -> None:
    """The blocks have the steps of each environment in order, across all block boundaries.

    The transitions have the true returns, discounts and last observations. All others are pending.
    """
    subject = collector(make(B, mode), rows=1, n=n)
    blocks, steps, found = [], 0, 0
    for subject.length in rows:
        blocks.append(block := subject.collect())
        steps, found = steps + block.steps, found + len(block.priorities)
        assert steps == found + block.pending
        assert block.pending <= n * B

    for b, transitions in by_environment(blocks).items():
        for row, wanted in zip(transitions, expected(b, n), strict=False):
            assert row[:2] + row[4:] == wanted[:2] + wanted[4:]
            assert row[2:4] == pytest.approx(wanted[2:4], abs=1e-6), row


@pytest.mark.parametrize("mode", MODES)
def test_priorities_are_by_the_values_that_acting_came_by(mode: AutoresetMode) -> None:
    subject = collector(synchronous(B, mode), rows=9, n=3)

    truncated = 0
    for _ in range(6):
        block = subject.collect()
        s, after = block.transitions["observation"], block.transitions["next_observation"]
        target = block.transitions["reward"] + block.transitions["discount"] * value_of_state(after)
        error = (target - value_of_action(s)).abs()
        assert torch.allclose(block.priorities, error + PRIORITY_EPSILON, atol=1e-5)
        assert block.priorities.dtype == torch.float32
        truncated += sum(
            step + 1 == length(int(episode)) and not terminates(int(episode)) for episode, step in s.tolist()
        )
    actor = subject.actor
    assert isinstance(actor, Thinker)
    if mode is AutoresetMode.NEXT_STEP:
        assert actor.asked == 0, "the last observation of every episode is acted on"
    else:
        assert truncated <= actor.asked <= truncated + B, "only last observations of truncated episodes are"


@pytest.mark.parametrize("mode", MODES)
def test_episodes_of_the_greedier_half_are_reported(mode: AutoresetMode) -> None:
    """Of 10 environments this sampler has 3 to 6, and 5 and 6 count. Of 16 environments, none here counts."""
    subject = collector(synchronous(B, mode), rows=30, n=3, first=3, total=10)

    block = subject.collect()

    # Environments 2 and 3 of this sampler begin with episodes 2 and 3 and go through them in turn.
    told = list(zip(block.episode_return.tolist(), block.episode_length.tolist(), strict=True))
    for b in (2, 3):
        whole = [(sum(reward(e, s) for s in range(length(e))), length(e)) for e in range(b, b + 5)]
        assert all(any(one == pytest.approx(other) for other in told) for one in whole)
    assert len(told) < block.episodes
    alone = collector(synchronous(2, mode), rows=30, n=3, first=0, total=2)
    again = alone.collect()
    assert 0 < len(again.episode_return) < again.episodes

    subject.place(range(3, 7), 16)
    assert len(subject.collect().episode_return) == 0
    assert isinstance(subject.actor, Thinker)
    assert (subject.actor.environments, subject.actor.total) == (range(3, 7), 16)


def test_all_episodes_are_reported_if_all_environments_explore_alike() -> None:
    subject = collector(synchronous(B, AutoresetMode.SAME_STEP), rows=30, n=3, first=3, total=10)
    assert isinstance(subject.actor, Thinker)
    subject.actor.differ = False
    subject.place(range(3, 7), 16)

    block = subject.collect()

    assert len(block.episode_return) == block.episodes > 0


def test_a_block_is_nobody_elses_memory() -> None:
    environments = HandWritten(B, AutoresetMode.SAME_STEP)  # reuses the arrays that it returned before
    subject = collector(environments, rows=20, n=3)
    block = subject.collect()
    copies = {name: column.clone() for name, column in block.transitions.items()}  # type: ignore[attr-defined]
    subject.collect()

    for name, copy in copies.items():
        assert torch.equal(block.transitions[name], copy), name  # type: ignore[literal-required]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("what", ["an observation", "a reward"])
def test_nan_from_the_environment_ends_the_run(what: str, bad: float) -> None:
    class Broken(HandWritten):
        def step(self, action: np.ndarray) -> tuple:
            observation, earned, *rest = super().step(action)
            if what == "an observation":
                observation[1, 1] = bad
            else:
                earned[1] = bad
            return observation, earned, *rest

    subject = collector(Broken(B, AutoresetMode.NEXT_STEP), rows=8, n=3)
    subject.actor.act = lambda observation, first: Acted(  # type: ignore[method-assign]
        torch.ones(B, dtype=torch.long), value_of_action(observation), value_of_state(observation)
    )
    subject.reward_clip = None
    with pytest.raises(Diverged) as caught:
        subject.collect()
    assert str(caught.value) == f"environment 'Counting' returned {what} that is NaN or infinite; {REMEDY}"


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [1, 3])
def test_steps_before_a_failure_bootstrap_from_the_last_observation(rows: int, n: int) -> None:
    """Holds for any block boundaries. No transition mixes steps of two episodes."""

    class Failing(CountingEnv):
        """Raises once in the sixth step of the first episode."""

        def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
            if (self.episode, self.count) == (0, 5):
                raise OSError("no power")
            self.count += 1
            return self._observation(), float(self.count), False, False, {}

    environments = in_turn([lambda: Failing(0)])
    stepper = Stepper(environments, "Mine", Faults(resets=True, max_per_hour=1))
    collect = TransitionCollector(
        Thinker(), stepper, rows, n, DISCOUNT, None, 1.0, 0, environments=range(1), total=1
    )
    blocks = [collect.collect() for _ in range(24 // rows)]

    begun = [tuple(part) for block in blocks for part in block.transitions["observation"].tolist()]
    assert begun == [(0, step) for step in range(5)] + [(1, step) for step in range(len(begun) - 5)]
    assert sum(block.steps for block in blocks) == len(begun) + blocks[-1].pending == stepper.stats.steps
    followed = torch.cat([block.transitions["next_observation"] for block in blocks]).tolist()
    discounts = torch.cat([block.transitions["discount"] for block in blocks]).tolist()
    returns = torch.cat([block.transitions["reward"] for block in blocks]).tolist()
    for step in range(5):
        k = min(n, 5 - step)
        assert followed[step] == [0, step + k], "at most the last observation before the failure"
        assert discounts[step] == pytest.approx(DISCOUNT**k), "as of an episode that was truncated"
        assert returns[step] == pytest.approx(sum(DISCOUNT**i * (step + i + 1) for i in range(k)))
    assert not any(block.episode_return.numel() for block in blocks)
