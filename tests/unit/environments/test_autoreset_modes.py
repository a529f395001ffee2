"""The learner gets the same targets, returns and steps in every autoreset mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from counting import HandWritten, length, reward, synchronous, terminates
from gymnasium.vector import AutoresetMode, VectorEnv
from rltraining_api.environment import Normalize
from rltraining_api.network import Lstm, Mlp, Network
from rltraining_trainer.algorithms.unrolls import Unroll, UnrollCollector
from rltraining_trainer.algorithms.vtrace import vtrace
from rltraining_trainer.dataflow.moments import moments_of
from rltraining_trainer.environments import Stepper
from rltraining_trainer.networks import ActorCritic, build_actor_critic

MODES = list(AutoresetMode)
DISCOUNT = 0.9
B, T, UNROLLS = 4, 9, 5
REWARD_CLIP, REWARD_SCALE = 1.3, 0.5


def collect(
    environments: VectorEnv, *, lstm: bool, length: int = T, unrolls: int = UNROLLS
) -> tuple[list[Unroll], ActorCritic]:
    torch.manual_seed(1)
    spec = Network(mlp=Mlp(hidden_sizes=(8,)), lstm=Lstm(hidden_size=5) if lstm else None)
    spaces = environments.single_observation_space, environments.single_action_space
    network, distribution = build_actor_critic(spec, *spaces)
    collector = UnrollCollector(
        network,
        distribution,
        Stepper(environments, "Counting"),
        length=length,
        discount=DISCOUNT,
        reward_clip=REWARD_CLIP,
        reward_scale=REWARD_SCALE,
        seed=0,
    )
    return [collector.collect() for _ in range(unrolls)], network


def test_the_first_rewards_are_divided_by_the_deviation_of_their_discounted_returns() -> None:
    """Statistics include the new data, and the moments of new data are sent."""
    torch.manual_seed(1)
    environments = synchronous(B, AutoresetMode.NEXT_STEP)
    network, distribution = build_actor_critic(
        Network(mlp=Mlp(hidden_sizes=(8,))),
        environments.single_observation_space,
        environments.single_action_space,
        normalize=Normalize(observations=True, rewards=True),
    )
    assert network.normalizer is not None
    collector = UnrollCollector(
        network, distribution, Stepper(environments, "Counting"), 2 * T, DISCOUNT, None, 1.0, seed=0
    )
    unroll = collector.collect()

    # Sum up rewards by hand, environment by environment. Each episode starts at zero.
    seen, rewards = [], torch.zeros(2 * T, B)
    for b in range(B):
        episode, step, running = b, 0, 0.0
        for t in range(2 * T):
            if unroll["valid"][t, b]:
                running = DISCOUNT * running + reward(episode, step)
                rewards[t, b] = reward(episode, step)
                step += 1
            seen.append((*unroll["observation"][t, b].tolist(), running))
            if step == length(episode):
                episode, step, running = episode + 1, 0, 0.0
    columns = torch.tensor(seen)
    assert torch.allclose(unroll["moments"][0], moments_of(columns), atol=1e-4)
    valid = unroll["valid"]
    deviation = columns[:, -1].std(correction=0)
    assert torch.allclose(unroll["reward"][valid], rewards[valid] / deviation)


def targets(unroll: Unroll, network: ActorCritic) -> torch.Tensor:
    """Computes targets as the learner does, with the parameters that acted."""
    with torch.no_grad():
        _, values = network.unroll(unroll["observation"], unroll["state"], unroll["first"])
    discounts = DISCOUNT * ~unroll["ended"]
    on_policy = torch.zeros_like(unroll["reward"])
    return vtrace(
        on_policy, discounts, unroll["reward"], values[:-1], values[-1], valid=unroll["valid"]
    ).targets


class Oracle:
    """Computes targets from CountingEnv's definition, and values of observations as part of their episode."""

    def __init__(self, network: ActorCritic) -> None:
        self._network = network
        self.values = cache(self._values)

    def _values(self, episode: int) -> list[float]:
        observations = torch.tensor([[[episode, step]] for step in range(length(episode) + 1)]).float()
        first = torch.zeros(len(observations), 1, dtype=torch.bool)
        with torch.no_grad():
            _, values = self._network.unroll(observations, self._network.initial_state(1), first)
        return values[:, 0].tolist()

    def target(self, episode: int, step: int, rows_left: int) -> float:
        """Returns the return from observation (episode, step), bootstrapped at a truncation or the unroll's end."""
        total, weight = 0.0, 1.0
        for _ in range(rows_left):
            earned = max(-REWARD_CLIP, min(REWARD_CLIP, reward(episode, step)))
            total += weight * REWARD_SCALE * earned
            weight *= DISCOUNT
            step += 1
            if step == length(episode):
                return total if terminates(episode) else total + weight * self.values(episode)[step]
        return total + weight * self.values(episode)[step]


@pytest.mark.parametrize("lstm", [False, True], ids=["mlp", "lstm"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [synchronous, HandWritten])
def test_targets_are_the_true_returns(
    make: Callable[[int, AutoresetMode], VectorEnv], mode: AutoresetMode, lstm: bool
) -> None:
    unrolls, network = collect(make(B, mode), lstm=lstm)
    oracle = Oracle(network)

    for number, unroll in enumerate(unrolls):
        found = targets(unroll, network)
        for t, b in np.argwhere(unroll["valid"].numpy()).tolist():
            episode, step = (int(x) for x in unroll["observation"][t, b])
            expected = oracle.target(episode, step, T - t)
            assert found[t, b].item() == pytest.approx(expected, abs=1e-5), (
                f"unroll {number}, step {t}, environment {b}: observation ({episode}, {step})"
            )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [synchronous, HandWritten])
def test_returns_and_lengths_are_those_of_whole_episodes(
    make: Callable[[int, AutoresetMode], VectorEnv], mode: AutoresetMode
) -> None:
    unrolls, _ = collect(make(1, mode), lstm=False)

    returns = torch.cat([unroll["episode_return"] for unroll in unrolls]).tolist()
    lengths = torch.cat([unroll["episode_length"] for unroll in unrolls]).tolist()
    assert len(returns) > 10
    expected = [sum(reward(e, s) for s in range(length(e))) for e in range(len(returns))]
    assert returns == pytest.approx(expected), "unclipped and unscaled, over borders of unrolls"
    assert lengths == [length(e) for e in range(len(lengths))]


@pytest.mark.parametrize("mode", MODES)
def test_unrolls_join_without_a_seam(mode: AutoresetMode) -> None:
    unrolls, network = collect(synchronous(B, mode), lstm=True)

    for before, after in pairwise(unrolls):
        assert torch.equal(before["observation"][-1], after["observation"][0])
        assert torch.equal(before["first"][-1], after["first"][0])
    long, _ = collect(synchronous(B, mode), lstm=True, length=T * UNROLLS, unrolls=1)
    joined = torch.cat([values_of(unroll, network) for unroll in unrolls])
    assert torch.allclose(joined, values_of(long[0], network), atol=1e-6), "the recurrent state continues"


def values_of(unroll: Unroll, network: ActorCritic) -> torch.Tensor:
    """Returns the values ``[T, B]`` of x_0 .. x_{T-1}."""
    with torch.no_grad():
        return network.unroll(unroll["observation"], unroll["state"], unroll["first"])[1][:-1]


def test_log_probabilities_are_those_of_the_policy_that_acted() -> None:
    unrolls, network = collect(synchronous(B, AutoresetMode.NEXT_STEP), lstm=True)
    for unroll in unrolls:
        with torch.no_grad():
            logits, _ = network.unroll(unroll["observation"], unroll["state"], unroll["first"])
        expected = logits[:-1].log_softmax(-1).gather(-1, unroll["action"].unsqueeze(-1)).squeeze(-1)
        assert torch.allclose(unroll["log_prob"], expected, atol=1e-5), "so that on-policy ratios are 1"


def test_an_unroll_is_nobody_elses_memory() -> None:
    torch.manual_seed(0)
    environments = HandWritten(B, AutoresetMode.SAME_STEP)  # reuses the arrays that it returned before
    unrolls, _ = collect(environments, lstm=True, unrolls=1)
    copies = {name: value.clone() for name, value in unrolls[0].items() if isinstance(value, torch.Tensor)}
    for _ in range(10):
        environments.step(np.zeros(B, np.int64))

    for name, copy in copies.items():
        assert torch.equal(unrolls[0][name], copy), name
