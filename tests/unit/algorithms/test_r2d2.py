"""R2D2: errors match a reference that follows each step, and sequences match the played episodes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from apex_learners import NETWORK, OBSERVATION, shake
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from rltraining_api.algorithms import R2d2
from rltraining_api.network import Lstm
from rltraining_trainer.algorithms.epsilon_greedy import EpsilonGreedy
from rltraining_trainer.algorithms.q_learning import rescale, unscale
from rltraining_trainer.algorithms.r2d2 import (
    R2d2Learner,
    build_network,
    priorities_of,
    td_errors,
)
from rltraining_trainer.algorithms.sequences import SequenceBuilder, Sequences
from rltraining_trainer.algorithms.unrolls import UnrollCollector
from rltraining_trainer.environments import Stepper
from rltraining_trainer.networks import GreedyActions
from rltraining_trainer.networks.recurrent_q_network import RecurrentQNetwork
from rltraining_trainer.networks.unpack import MASKED
from through_a_file import restore
from torch import Tensor

ACTIONS, HIDDEN, K, BURN_IN, LENGTH = 3, 5, 6, 4, 8
S = BURN_IN + LENGTH
RECURRENT = NETWORK.model_copy(update={"lstm": Lstm(hidden_size=HIDDEN)})


def settings(**changes: Any) -> R2d2:
    return R2d2(**{"burn_in": BURN_IN - 1, "sequence_length": LENGTH, "n_step": 3, "discount": 0.9} | changes)


def network(seed: int) -> RecurrentQNetwork:
    torch.manual_seed(seed)
    found, _ = build_network(RECURRENT, OBSERVATION, spaces.Discrete(ACTIONS))
    shake(found)
    return found


def learner(**changes: Any) -> R2d2Learner:
    return R2d2Learner(network(3), settings(**changes))


def batch(seed: int = 0) -> Sequences:
    """Returns random sequences in which episodes end; the last of the n steps differs from row to row."""
    random = torch.Generator().manual_seed(seed)
    length = torch.randint(1, 4, (K, S), generator=random)
    return Sequences(
        observation=torch.randn(K, S + 1, 3, generator=random),
        first=torch.rand(K, S + 1, generator=random) < 0.2,
        action=torch.randint(ACTIONS, (K, S), generator=random),
        reward=3 * torch.randn(K, S, generator=random),
        discount=0.9 * (torch.rand(K, S, generator=random) < 0.8),
        length=torch.minimum(length, S - torch.arange(S)),
        valid=torch.rand(K, S, generator=random) < 0.9,
        hidden=torch.randn(K, HIDDEN, generator=random),
        cell=torch.randn(K, HIDDEN, generator=random),
    )


def h(x: float, epsilon: float) -> float:
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + epsilon * x


def values_of(net: RecurrentQNetwork, batch: Sequences, k: int) -> list[Tensor]:
    """Returns Q(x_t, ·) of one sequence, one step at a time. The gradient ends at the burn-in."""
    state = (batch["hidden"][k : k + 1], batch["cell"][k : k + 1])
    found = []
    for t in range(S + 1):
        if t == BURN_IN:
            state = (state[0].detach(), state[1].detach())
        values, state = net.policy(batch["observation"][k, t : t + 1], state, batch["first"][k, t : t + 1])
        found.append(values[0])
    return found


def naive_errors(
    net: RecurrentQNetwork, target: RecurrentQNetwork, batch: Sequences, epsilon: float | None
) -> tuple[Tensor, Tensor]:
    """Returns Q(s, a) and δ ``[K, LENGTH]``, one step at a time. Only Q(s, a) has a gradient."""
    values, errors = [], []
    for k in range(K):
        online, other = values_of(net, batch, k), values_of(target, batch, k)
        for t in range(BURN_IN, S):
            after = t + int(batch["length"][k, t])
            bootstrap = other[after][online[after].argmax()].item()
            if epsilon is not None:
                bootstrap = unscale(torch.tensor(bootstrap, dtype=torch.float64), epsilon).item()
            goal = (batch["reward"][k, t] + batch["discount"][k, t] * bootstrap).item()
            if epsilon is not None:
                goal = h(goal, epsilon)
            values.append(online[t][batch["action"][k, t]])
            errors.append(goal - values[-1].item())
    return torch.stack(values).view(K, LENGTH), torch.tensor(errors).view(K, LENGTH)


@pytest.mark.parametrize("epsilon", [None, 1e-3, 0.1])
def test_errors_are_those_of_a_reference(epsilon: float | None) -> None:
    net, target, sequences = network(1), network(2), batch()

    value, errors = td_errors(net, target, sequences, settings(value_rescaling=epsilon))

    expected_value, expected_errors = naive_errors(net, target, sequences, epsilon)
    torch.testing.assert_close(value, expected_value.T, rtol=0, atol=1e-5)
    torch.testing.assert_close(errors, expected_errors.T, rtol=1e-4, atol=1e-4)


def test_the_gradient_is_that_of_the_mean_loss_after_the_burn_in() -> None:
    mine, sequences = learner(gradient_clip=None), batch()
    weights = torch.linspace(0.2, 1.0, K, dtype=torch.float64)
    mine.step(batch(1))  # so that network and target network differ
    valid = sequences["valid"][:, BURN_IN:]
    value, errors = naive_errors(mine.network, mine._target, sequences, 1e-3)
    losses = 0.5 * (errors + value.detach() - value) ** 2 * valid
    loss = (weights * losses.sum(1) / valid.sum(1)).mean()
    wanted = torch.autograd.grad(loss, list(mine.network.parameters()))

    priorities, terms = mine.step(sequences, weights, 1.0)  # type: ignore[arg-type]

    assert mine.parameters.grad is not None
    gradient = torch.cat([part.reshape(-1) for part in wanted]).float()
    torch.testing.assert_close(mine.parameters.grad, gradient, rtol=1e-4, atol=1e-6)
    assert terms["loss"].item() == pytest.approx(loss.item(), rel=1e-4)
    sizes = errors.abs() * valid
    mixed = 0.9 * sizes.amax(1) + 0.1 * sizes.sum(1) / valid.sum(1)
    torch.testing.assert_close(priorities, mixed + 1e-6, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(priorities_of(errors.T, sequences["valid"], settings()), priorities)


def test_two_learners_with_half_a_batch_each_are_one_with_all_of_it() -> None:
    whole, half, other = learner(), learner(), learner()
    sequences = batch()
    parts = [
        {name: column[rows] for name, column in sequences.items()}  # type: ignore[index]
        for rows in (slice(2), slice(2, None))
    ]
    gradients: list[Tensor] = []

    def record(gradient: Tensor, count: float) -> float:
        gradients.append(gradient.clone())
        return 0.0

    def add(gradient: Tensor, count: float) -> float:
        gradient.add_(gradients[0])
        return K

    other.step(parts[1], reduce=record)  # type: ignore[arg-type]
    half.step(parts[0], reduce=add)  # type: ignore[arg-type]
    whole.step(sequences)  # type: ignore[arg-type]

    torch.testing.assert_close(whole.parameters, half.parameters)


def test_a_checkpoint_resumes_bit_for_bit() -> None:
    straight, resumed = learner(target_update_period=2), learner(target_update_period=2)
    for seed in range(3):
        straight.step(batch(seed))  # type: ignore[arg-type]
    restore(resumed, straight)
    for seed in range(3, 6):
        ours, theirs = (each.step(batch(seed))[0] for each in (straight, resumed))  # type: ignore[arg-type]
        assert torch.equal(ours, theirs)
    assert torch.equal(straight.parameters, resumed.parameters)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1])
def test_rescaling_is_the_published_function_and_has_an_inverse(epsilon: float) -> None:
    values = torch.tensor([-1e4, -30.0, -1.0, -1e-3, 0.0, 0.5, 2.0, 700.0], dtype=torch.float64)

    scaled = rescale(values, epsilon)

    torch.testing.assert_close(scaled, torch.tensor([h(x, epsilon) for x in values.tolist()]).double())
    torch.testing.assert_close(unscale(scaled, epsilon), values)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-5, 1e-3])
def test_the_inverse_of_a_slight_rescaling_is_exact_in_single_precision(epsilon: float) -> None:
    values = torch.tensor([-700.0, -1.0, -1e-2, 0.0, 0.1, 2.0, 30.0])

    scaled = rescale(values.double(), epsilon).float()

    torch.testing.assert_close(unscale(scaled, epsilon), values, rtol=1e-5, atol=1e-6)


class Counter(gym.Env):
    """Counts steps: observation n follows n steps, the reward is n, and odd episodes are truncated."""

    observation_space = spaces.Box(0, 1e3, (3,), np.float32)
    action_space = spaces.Discrete(ACTIONS)
    episode = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self.episode, self.count = self.episode + 1, 0
        return self.seen(), {}

    def seen(self) -> np.ndarray:
        return np.array([self.episode, self.count, 1], np.float32)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.count += 1
        over, odd = self.count == 5, self.episode % 2 == 1
        return self.seen(), float(self.count), over and not odd, over and odd, {}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_sequences_hold_what_happened_and_overlap_by_half(mode: AutoresetMode) -> None:
    """The network's value is the count in each observation, which shows where the n steps end."""
    chosen = settings(n_step=2)
    net, actions = build_network(RECURRENT, Counter.observation_space, Counter.action_space)
    exploration = EpsilonGreedy(actions, 1.0, 1.0)
    exploration.place(range(2), 2)
    environments = gym.vector.SyncVectorEnv([Counter] * 2, autoreset_mode=mode)
    collector = UnrollCollector.of(chosen, LENGTH // 2, net, exploration, Stepper(environments, "Any"), 0)
    net.value = lambda observation, state: observation[:, 1]  # type: ignore[method-assign]
    builder = SequenceBuilder(chosen)
    unrolls, found = [], []
    for _ in range(8):
        unrolls.append(collector.collect())
        if (items := builder.add(unrolls[-1])) is not None:
            found.append(items)

    assert len(found) == 8 - S // (LENGTH // 2) + 1
    for before, after in pairwise(found):
        assert torch.equal(
            before["observation"][:, LENGTH // 2 :], after["observation"][:, : S + 1 - LENGTH // 2]
        )
    for number, items in enumerate(found):
        assert torch.equal(items["hidden"], unrolls[number]["state"][0])
        assert torch.equal(items["cell"], unrolls[number]["state"][1])
        for t in range(S - 2):  # the last rows have fewer steps
            (episode, count, _), valid = items["observation"][0, t].tolist(), bool(items["valid"][0, t])
            assert bool(items["first"][0, t]) == (count == 0)
            if not valid:
                assert (mode, count) == (AutoresetMode.NEXT_STEP, 5)
                continue
            steps = min(2, 5 - int(count))
            rewards = sum(0.9**i * (count + 1 + i) for i in range(steps))
            ends = count + steps == 5
            terminated, truncated = ends and episode % 2 == 0, ends and episode % 2 == 1
            follows = items["observation"][0, t + int(items["length"][0, t]), 1].item()
            target = items["reward"][0, t].item() + items["discount"][0, t].item() * follows
            goes_on = 0.0 if terminated else 0.9**steps * (5 if truncated else count + steps)
            assert target == pytest.approx(rewards + goes_on, rel=1e-5), (episode, count)


def test_exploration_is_uniform_over_valid_actions() -> None:
    torch.manual_seed(0)
    exploration = EpsilonGreedy(GreedyActions(spaces.Discrete(4)), 0.4, 7.0)
    greedier = exploration.place(range(2), 2)
    values = torch.tensor([1.0, MASKED, 3.0, 2.0]).expand(5_000, 2, 4)

    actions = torch.stack(
        [
            exploration.sample(row, noise)
            for row, noise in zip(values, exploration.noise(5_000, 2), strict=True)
        ]
    )

    assert greedier.tolist() == [False, True]
    shares = torch.stack([torch.bincount(column, minlength=4) / 5_000 for column in actions.unbind(1)])
    epsilon = torch.tensor([0.4, 0.4**8])
    wanted = (epsilon / 3).unsqueeze(1) * torch.tensor([1.0, 0.0, 1.0, 1.0])
    wanted[:, 2] += 1 - epsilon
    torch.testing.assert_close(shares, wanted, rtol=0.0, atol=0.025)
    log_prob = exploration.log_prob(
        values[:4, 0].unsqueeze(1).expand(4, 2, 4), torch.tensor([[0, 0], [2, 2], [3, 3], [0, 0]])
    )
    torch.testing.assert_close(log_prob.exp()[1], wanted[:, 2])
    torch.testing.assert_close(log_prob.exp()[2], wanted[:, 3])
