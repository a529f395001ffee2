"""Policy.act, evaluate and film."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.envs.registration import EnvSpec
from policies import PROGRESS, trained
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.policy import Episode, Policy, evaluate, film
from rltraining_trainer.policy.description import describe


def make(name: str) -> Policy:
    torch.manual_seed(5)
    network, job, environment_spaces = trained(name)
    policy = Policy(describe(job, *environment_spaces, PROGRESS), network.state_dict(), trust_code=True)
    policy.observation_space.seed(5)
    return policy


def test_one_observation_or_a_batch() -> None:
    policy = make("continuous")
    observations = np.stack([policy.observation_space.sample() for _ in range(4)])
    batch = policy.act(observations)
    assert batch.shape == (4, 1)
    np.testing.assert_allclose(policy.act(observations[2]), batch[2], rtol=1e-5)
    assert policy.act(observations[0].tolist()).shape == (1,)
    assert make("discrete").act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    assert make("discrete-observation").act(3) in range(3, 7)
    with pytest.raises(
        ValueError, match=r"given observations of shape \(2, 4\), .* needs \(3,\), or \[B, 3\] for"
    ):
        policy.act(np.zeros((2, 4)))


@pytest.mark.parametrize(
    ("name", "observation", "message"),
    [
        (
            "image",
            np.zeros((12, 12, 3), np.float32),
            "observations of float32, .* trained with uint8: give the",
        ),
        ("image", np.full((12, 12, 3), 256), "observations with numbers that uint8 does not hold"),
        ("image", np.uint8(0), r"observations of shape \(\), but the policy needs \(12, 12, 3\), or"),
        ("discrete-observation", 2.5, "observations of float64, .* trained with int64"),
        ("discrete", [[0.0], [0.0, 1.0]], "observations of lists of different lengths"),
        ("discrete", "left", "observations of type <U4, but the policy needs numbers"),
    ],
)
def test_an_observation_that_the_policy_was_not_trained_with_is_refused(
    name: str, observation: object, message: str
) -> None:
    with pytest.raises(ValueError, match=f"^act was given {message}"):
        make(name).act(observation)


def test_a_recurrent_policy_remembers_until_an_episode_begins() -> None:
    policy = make("continuous-lstm")
    observations = np.stack([policy.observation_space.sample() for _ in range(2)])
    first = policy.act(observations)
    second = policy.act(observations)
    assert (first != second).all()
    third = policy.act(observations, first=np.array([True, False]))
    np.testing.assert_array_equal(third[0], first[0])
    assert third[1] != first[1]
    policy.reset()
    np.testing.assert_array_equal(policy.act(observations), first)
    policy.reset()
    policy.act(observations[0])
    policy.reset()
    np.testing.assert_allclose(policy.act(observations[0]), first[0], rtol=1e-5)


def test_a_state_of_another_batch_is_reported_with_the_remedy() -> None:
    policy = make("discrete-lstm")
    policy.act(np.zeros(4))
    with pytest.raises(ValueError, match=r"given 3 observations, but .* that of 1: call reset\(\) first"):
        policy.act(np.zeros((3, 4)))
    policy.reset()
    assert policy.act(np.zeros((3, 4))).shape == (3,)
    with pytest.raises(ValueError, match=r"given 2 values of first for 3 observations"):
        policy.act(np.zeros((3, 4)), first=[True, False])


def test_first_may_be_a_list_or_one_bool() -> None:
    policy = make("continuous-lstm")
    observation = policy.observation_space.sample()
    begin, later = policy.act(observation), policy.act(observation)
    assert begin != later
    np.testing.assert_array_equal(policy.act(observation, first=True), begin)
    np.testing.assert_array_equal(policy.act(observation[None], first=[False])[0], later)


def test_drawn_actions_differ_and_the_likeliest_do_not() -> None:
    policy = make("continuous")
    observation = policy.observation_space.sample()
    assert len({float(policy.act(observation, deterministic=False)[0]) for _ in range(10)}) > 1
    assert len({float(policy.act(observation)[0]) for _ in range(10)}) == 1


@pytest.mark.parametrize("name", ["q", "deterministic"])
def test_a_deterministic_policy_leaves_nothing_to_chance(name: str) -> None:
    policy = make(name)
    observations = np.stack([policy.observation_space.sample() for _ in range(4)])
    chosen = policy.act(observations)
    np.testing.assert_array_equal(policy.act(observations, deterministic=False), chosen)
    assert all(policy.action_space.contains(action) for action in chosen)


@pytest.mark.parametrize(
    ("name", "deterministic"), [("discrete", True), ("discrete-lstm", False), ("image", True), ("q", False)]
)
def test_evaluation_is_reproducible_and_counts_whole_episodes(name: str, deterministic: bool) -> None:
    policy, seen = make(name), []
    drawing = torch.random.get_rng_state()
    result = evaluate(policy, 7, seed=3, deterministic=deterministic, num_envs=3, on_episode=seen.append)
    assert torch.equal(torch.random.get_rng_state(), drawing)
    assert result.episodes == tuple(seen)
    assert len(result.episodes) == 7
    assert all(episode.return_ == episode.length > 0 for episode in result.episodes)  # 1 a step in both
    assert result.mean == np.mean([episode.return_ for episode in seen])
    again = evaluate(policy, 7, seed=3, deterministic=deterministic, num_envs=3)
    assert again == result
    if name == "image":
        assert result.episodes == (Episode(8.0, 8),) * 7


def test_short_episodes_do_not_crowd_out_long_ones() -> None:
    """Of 4 environments and 4 episodes, each environment plays one, however long it takes."""
    policy = make("discrete")
    lengths = sorted(episode.length for episode in evaluate(policy, 4, seed=1, num_envs=4).episodes)
    many = evaluate(policy, 4, seed=1, num_envs=100)
    assert sorted(episode.length for episode in many.episodes) == lengths


class Generous(CartPoleVectorEnv):
    """Returns a reward of 1 in each step, also in a step that only resets an environment."""

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        observation, reward, *rest = super().step(action)
        return (observation, np.ones_like(reward), *rest)


def test_the_reward_of_a_reset_is_not_part_of_the_next_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = EnvSpec("Generous-v0", vector_entry_point=Generous, max_episode_steps=500)
    monkeypatch.setitem(gym.registry, "Generous-v0", spec)
    policy = make("discrete")
    generous = policy.description.environment.model_copy(update={"id": "Generous-v0"})
    policy.description = policy.description.model_copy(update={"environment": generous})
    episodes = evaluate(policy, 6, num_envs=2).episodes
    assert all(episode.return_ == episode.length for episode in episodes)


def test_an_environment_of_other_spaces_is_refused() -> None:
    policy = make("discrete")
    other = policy.description.environment.model_copy(update={"id": "Acrobot-v1"})
    policy.description = policy.description.model_copy(update={"environment": other})
    with pytest.raises(
        BadConfiguration, match=r"'Acrobot-v1' has observations of Box.* was trained with Box"
    ):
        evaluate(policy, 1)


def test_a_film_shows_the_episode_that_the_seed_gives() -> None:
    policy = make("discrete")
    with film(policy, seed=3) as taken:
        frames = list(taken.frames)
        assert taken.frames_per_second == 50
    (episode,) = evaluate(policy, 1, seed=3).episodes
    assert len(frames) == episode.length + 1
    assert frames[0].dtype == np.uint8
    assert frames[0].ndim == 3
    assert (frames[0] != frames[-1]).any()


def test_an_environment_that_gives_no_picture_is_told() -> None:
    with film(make("image")) as taken, pytest.raises(BadConfiguration, match="returns no image"):
        next(taken.frames)


def test_an_environment_that_offers_no_pictures_is_told() -> None:
    """The error message is raised before gymnasium warns. A warning would be an error here."""
    policy = make("blind")
    offered = (
        r"'.*Blind-v0' cannot be filmed: it does not offer render_mode \"rgb_array\"; "
        r"add \"rgb_array\" to its metadata\[\"render_modes\"\] and return an image from its render\(\)$"
    )
    with pytest.raises(BadConfiguration, match=offered), film(policy):
        pass
