"""EpisodeTracker against a loop over single steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rltraining_trainer.environments import EpisodeTracker
from rltraining_trainer.environments.episodes import HELD_PER_ENVIRONMENT
from rltraining_trainer.metrics import SmoothedReturn


class Naive:
    """Tracks one step at a time."""

    def __init__(self, num_envs: int) -> None:
        self.total = [0.0] * num_envs
        self.length = [0] * num_envs
        self.began = [(0, b) for b in range(num_envs)]
        self.row = 0
        self.ended: list[tuple[tuple[int, int], float, int]] = []

    def add(self, reward: np.ndarray, ended: np.ndarray, valid: np.ndarray) -> tuple[list[float], list[int]]:
        for t in range(len(reward)):
            self.row += 1
            for b in range(reward.shape[1]):
                if valid[t, b]:
                    self.total[b] += float(reward[t, b])
                    self.length[b] += 1
                if ended[t, b]:
                    self.ended.append((self.began[b], self.total[b], self.length[b]))
                    self.total[b], self.length[b], self.began[b] = 0.0, 0, (self.row, b)
        most = HELD_PER_ENVIRONMENT * len(self.began)
        returns, lengths = [], []
        while self.ended and (min(self.ended)[0] < min(self.began) or len(self.ended) > most):
            _, total, length = min(self.ended)
            self.ended.remove(min(self.ended))
            returns.append(total)
            lengths.append(length)
        return returns, lengths


@given(
    num_envs=st.integers(1, 4),
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    seed=st.integers(0, 2**32 - 1),
    ending=st.floats(0, 1),
)
def test_it_tells_the_same_as_a_loop(num_envs: int, lengths: list[int], seed: int, ending: float) -> None:
    random = np.random.default_rng(seed)
    tracker, naive = EpisodeTracker(num_envs), Naive(num_envs)
    for length in lengths:
        shape = (length, num_envs)
        valid = random.random(shape) < 0.8
        ended = valid & (random.random(shape) < ending)
        reward = np.where(valid, random.integers(-9, 9, shape), np.nan).astype(np.float32)

        returns, episode_lengths = tracker.add(reward, ended, valid)
        expected_returns, expected_lengths = naive.add(reward, ended, valid)

        assert returns.tolist() == pytest.approx(expected_returns)
        assert episode_lengths.tolist() == expected_lengths
        assert (returns.dtype, episode_lengths.dtype) == (np.float32, np.int64)


def test_a_return_stays_exact_over_a_long_run() -> None:
    tracker = EpisodeTracker(1)
    never, always = np.zeros((1000, 1), bool), np.ones((1000, 1), bool)
    for _ in range(100):
        tracker.add(np.full((1000, 1), 0.1, np.float32), never, always)
    returns, lengths = tracker.add(np.full((1, 1), 0.1, np.float32), always[:1], always[:1])

    assert returns[0] == pytest.approx(100_001 * float(np.float32(0.1)), rel=1e-6)
    assert lengths.tolist() == [100_001]


def test_which_episodes_count_does_not_depend_on_their_length() -> None:
    """Of 64 environments that begin together, one in ten ends an episode early, with a better return.

    In the order of their ends, or without each environment's first episode, short episodes cluster, and
    the mean of 10 is up to 9.
    """
    num_envs, random = 64, np.random.default_rng(0)
    tracker, left, good = EpisodeTracker(num_envs), np.zeros(num_envs, int), np.zeros(num_envs, bool)
    told: list[float] = []
    for _ in range(2000):
        begins = left == 0
        good[begins] = random.random(begins.sum()) < 0.1
        left[begins] = np.where(good[begins], random.integers(20, 100, begins.sum()), 100)
        left -= 1
        ended = (left == 0)[None]
        reward = np.where(ended & good, 10.0, 0.0).astype(np.float32)
        told += tracker.add(reward, ended, np.ones_like(ended))[0].tolist()

    means = np.convolve(told, np.ones(10) / 10, "valid")
    assert len(told) > 64 * 20
    assert means.max() < 7
    assert np.mean(told[:64]) == pytest.approx(1.0, abs=0.5), (
        "of the first episodes, the short ones are not the first"
    )


def test_an_untrained_policy_does_not_meet_a_smoothed_return() -> None:
    """Acrobot-v1 with an untrained policy: 256 environments, in which one episode in 150
    ends early and all others last 500 steps. The mean return is about -499."""
    num_envs, random = 256, np.random.default_rng(1)
    tracker, told, by_end = EpisodeTracker(num_envs), SmoothedReturn(-450), SmoothedReturn(-450)
    for _ in range(8):
        length = np.full(num_envs, 500)
        early = random.random(num_envs) < 1 / 150
        length[early] = random.integers(150, 400, early.sum())
        valid = np.arange(500)[:, None] < length
        ended = np.arange(500)[:, None] == length - 1
        by_end.add(-np.sort(length))
        told.add(tracker.add(np.full((500, num_envs), -1.0, np.float32), ended, valid)[0])
    assert by_end.longest >= 5, "in the order of their ends the first episodes are the early ones"
    assert told.longest == 0
    assert told.value is not None
    assert told.value < -450


def test_an_episode_that_never_ends_does_not_hold_back_the_others_for_ever() -> None:
    tracker, valid = EpisodeTracker(2), np.ones((1, 2), bool)
    told = [tracker.add(np.ones((1, 2), np.float32), np.array([[False, True]]), valid)[0] for _ in range(12)]

    assert [len(returns) for returns in told] == [0] * 2 * HELD_PER_ENVIRONMENT + [1] * 4


def test_only_episodes_of_those_that_are_to_be_told_are() -> None:
    """Tracks the episodes of all environments, but returns only the selected ones.

    An environment that is selected later starts with a separate episode.
    """
    tracker, everywhere = EpisodeTracker(3), np.ones((2, 3), bool)
    ended = np.array([[True, False, True], [False, False, True]])
    reward = np.array([[1, 2, 3], [10, 20, 30]], np.float32)

    returns, lengths = tracker.add(reward, ended, everywhere, np.array([False, False, True]))
    assert (returns.tolist(), lengths.tolist()) == ([3, 30], [1, 1])

    returns, lengths = tracker.add(reward, everywhere, everywhere, np.array([True, False, False]))
    assert (returns.tolist(), lengths.tolist()) == ([11, 10], [2, 1])
