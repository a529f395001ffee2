"""IMPALA's learner: its loss term by term, its gradient by finite differences, its state, its end, and that it learns."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from bandit import OUTCOMES, bandit_collector
from gymnasium import spaces
from rltraining_api.algorithms import Adam, Impala, Optimizer, RmsProp
from rltraining_api.network import Lstm, Mlp, Network
from rltraining_trainer.algorithms.impala import ImpalaLearner
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.checkpoint import snapshot
from rltraining_trainer.errors import Diverged
from rltraining_trainer.networks import build_actor_critic
from through_a_file import restore
from torch import Tensor

T, B = 7, 4
DISCRETE = spaces.Discrete(3)
CONTINUOUS = spaces.Box(-1, 1, (2,), np.float32)


def make(
    settings: Impala, action: spaces.Space = DISCRETE, *, lstm: bool = False, total_steps: int | None = None
) -> ImpalaLearner:
    torch.manual_seed(3)
    spec = Network(mlp=Mlp(hidden_sizes=(5,)), lstm=Lstm(hidden_size=4) if lstm else None)
    network, distribution = build_actor_critic(spec, spaces.Box(-1, 1, (3,), np.float32), action)
    for parameter in network.parameters():  # away from the nearly uniform policy
        torch.nn.init.normal_(parameter, std=0.5)
    return ImpalaLearner(network, distribution, settings, total_steps)


def unroll(learner: ImpalaLearner, seed: int = 0) -> Unroll:
    """Off-policy steps in which everything happens: ends, resets, beginnings, and a recurrent state."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    def some(share: float, rows: int) -> Tensor:
        return torch.rand(rows, B, generator=random) < share

    distribution = learner.distribution
    behaviour = normal(T, B, distribution.parameter_size)
    action = distribution.sample(behaviour, normal(T, B, distribution.noise(1)[0].numel()))
    return Unroll(
        observation=normal(T + 1, B, 3),
        action=action,
        log_prob=distribution.log_prob(behaviour, action),
        reward=3 * normal(T, B),
        ended=some(0.2, T),
        valid=~some(0.2, T),
        first=some(0.2, T + 1),
        state=tuple(normal(*part.shape) for part in learner.network.initial_state(B)),
        episode_return=torch.zeros(0),
        episode_length=torch.zeros(0, dtype=torch.int64),
    )


FROZEN = {"learning_rate_schedule": "Linear", "gradient_clip": None}
"""At its end a linear schedule's step is 0: an update leaves the parameters as they are, to look at its gradient."""


def look(learner: ImpalaLearner, batch: Unroll) -> tuple[dict[str, float], Tensor]:
    """Terms of the loss and gradient, with parameters unchanged."""
    before = learner.parameters.detach().clone()
    terms = learner.step([batch])
    assert torch.equal(learner.parameters, before)
    return {name: term.item() for name, term in terms.items()}, learner.parameters.grad.clone()


def constants(learner: ImpalaLearner, batch: Unroll) -> tuple[Tensor, Tensor, Tensor]:
    """(targets, advantages, weights), each ``[T, B]`` in float64, one number after the other, from the formulas."""
    settings = learner.settings
    with torch.no_grad():
        policies, values = learner.network.unroll(batch["observation"], batch["state"], batch["first"])
        log_prob = learner.distribution.log_prob(policies[:-1], batch["action"])
    ratio = (log_prob - batch["log_prob"]).double().exp().tolist()
    v, reward = values.double().tolist(), batch["reward"].tolist()
    targets, advantages = [row[:] for row in v], [[0.0] * B for _ in range(T)]
    for b in range(B):
        for t in reversed(range(T)):
            if not batch["valid"][t, b]:
                continue
            discount = 0.0 if batch["ended"][t, b] else settings.discount
            delta = reward[t][b] + discount * v[t + 1][b] - v[t][b]
            trace = settings.lambda_ * min(settings.c_clip, ratio[t][b])
            correction = discount * trace * (targets[t + 1][b] - v[t + 1][b])
            targets[t][b] = v[t][b] + min(settings.rho_clip, ratio[t][b]) * delta + correction
            ahead = reward[t][b] + discount * targets[t + 1][b] - v[t][b]
            advantages[t][b] = min(settings.pg_rho_clip, ratio[t][b]) * ahead
    valid = batch["valid"]
    advantage, weight = torch.tensor(advantages).double(), valid.double()
    if settings.advantage_normalization:
        known = advantage[valid]
        advantage = (advantage - known.mean()) / known.std(correction=0)
    if settings.loss_reduction == "Mean":
        weight = weight / valid.sum()
    return torch.tensor(targets[:T]).double(), advantage, weight


def loss(learner: ImpalaLearner, network: Any, batch: Unroll, fixed: tuple[Tensor, Tensor, Tensor]) -> dict:
    """The loss's terms as functions of the network, in its own precision."""
    targets, advantages, weight = fixed
    dtype = next(network.parameters()).dtype
    state = tuple(part.to(dtype) for part in batch["state"])
    policies, values = network.unroll(batch["observation"].to(dtype), state, batch["first"])
    log_prob, entropy = learner.distribution.log_prob_and_entropy(policies[:-1], batch["action"])
    terms = {
        "policy_loss": -(weight * advantages * log_prob).sum(),
        "baseline_loss": 0.5 * (weight * (targets - values[:-1]) ** 2).sum(),
        "entropy": (weight * entropy).sum(),
    }
    settings = learner.settings
    terms["loss"] = (
        terms["policy_loss"]
        + settings.baseline_cost * terms["baseline_loss"]
        - settings.entropy_cost * terms["entropy"]
    )
    return terms


SETTINGS = {
    "published": Impala(**FROZEN),
    "mean, normalised": Impala(loss_reduction="Mean", advantage_normalization=True, **FROZEN),
    "clips": Impala(rho_clip=2.0, c_clip=0.5, pg_rho_clip=1.5, lambda_=0.7, discount=0.8, **FROZEN),
    "costs": Impala(entropy_cost=0.3, baseline_cost=2.0, **FROZEN),
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
every_network = pytest.mark.parametrize(
    ("action", "lstm"),
    [(DISCRETE, False), (DISCRETE, True), (CONTINUOUS, True)],
    ids=["mlp", "lstm", "gaussian"],
)


@every_setting
@every_network
def test_the_terms_of_the_loss_are_those_of_the_paper(
    settings: Impala, action: spaces.Space, lstm: bool
) -> None:
    learner = make(settings, action, lstm=lstm, total_steps=1)
    batch = unroll(learner)

    found, _ = look(learner, batch)

    with torch.no_grad():
        expected = loss(learner, learner.network, batch, constants(learner, batch))
    for name, term in expected.items():
        assert found[name] == pytest.approx(term.item(), rel=1e-4, abs=1e-4), name


@every_setting
@every_network
def test_the_gradient_is_that_of_the_loss_with_its_targets_held(
    settings: Impala, action: spaces.Space, lstm: bool
) -> None:
    learner = make(settings, action, lstm=lstm, total_steps=1)
    batch = unroll(learner)
    fixed = constants(learner, batch)

    terms, gradient = look(learner, batch)

    network, step, differences = copy.deepcopy(learner.network).double(), 1e-6, []
    with torch.no_grad():
        for parameter in network.parameters():
            numbers = parameter.view(-1)
            for i in range(0, numbers.numel(), 3):
                ends = []
                for shift in (step, -2 * step):
                    numbers[i] += shift
                    ends.append(loss(learner, network, batch, fixed)["loss"].item())
                numbers[i] += step
                differences.append((ends[0] - ends[1]) / (2 * step))
    ours = torch.cat([part.reshape(-1)[::3] for part in gradient_parts(learner, gradient)])
    scale = gradient.abs().max().item()
    assert torch.allclose(ours.double(), torch.tensor(differences).double(), atol=1e-4 * scale)
    assert terms["gradient_norm"] == pytest.approx(gradient.norm().item(), rel=1e-5)


def gradient_parts(learner: ImpalaLearner, gradient: Tensor) -> list[Tensor]:
    """The flat gradient, parameter by parameter."""
    return list(gradient.split([parameter.numel() for parameter in learner.network.parameters()]))


@every_network
def test_what_stands_in_rows_that_are_no_steps_is_not_learnt(action: spaces.Space, lstm: bool) -> None:
    learner = make(Impala(**FROZEN), action, lstm=lstm, total_steps=1)
    batch = unroll(learner)
    other = copy.deepcopy(batch)
    other["reward"][~batch["valid"]] = 1e6
    other["log_prob"][~batch["valid"]] = -1e6
    other["action"] = torch.where(
        batch["valid"].view(T, B, *[1] * (batch["action"].dim() - 2)),
        batch["action"],
        torch.zeros_like(batch["action"]),
    )

    assert torch.equal(look(learner, batch)[1], look(learner, other)[1])


def test_a_batch_without_a_step_teaches_nothing() -> None:
    for settings in (Impala(), Impala(loss_reduction="Mean", advantage_normalization=True)):
        learner = make(settings)
        batch = unroll(learner)
        batch["valid"][:] = False
        before = learner.parameters.detach().clone()

        terms = learner.step([batch])

        assert all(term.item() == 0.0 for term in terms.values()), terms
        assert torch.equal(learner.parameters, before)


def test_unrolls_of_several_samplers_are_one_batch() -> None:
    learner = make(Impala(**FROZEN), lstm=True, total_steps=1)
    first, second = unroll(learner, 1), unroll(learner, 2)

    separate = look(learner, first)[1] + look(learner, second)[1]
    learner.step([first, second])

    assert torch.allclose(learner.parameters.grad, separate, rtol=1e-4, atol=1e-4)


def test_a_gradient_is_clipped_before_it_is_used() -> None:
    optimizer = Optimizer(rmsprop=RmsProp(alpha=0.0, epsilon=1e6))  # a step is gradient / 1e6
    learner = make(Impala(gradient_clip=0.5, learning_rate=1.0, optimizer=optimizer))
    before = learner.parameters.detach().clone()

    terms = learner.step([unroll(learner)])

    assert terms["gradient_norm"] > 10, "the norm is told as it was"
    assert (learner.parameters - before).norm().item() * 1e6 == pytest.approx(0.5, rel=0.2)


def test_several_updates_on_a_batch_are_as_many_steps_with_one() -> None:
    once, thrice = make(Impala()), make(Impala(updates_per_batch=3))
    batch = unroll(once)
    for _ in range(3):
        once.step([batch])
    thrice.step([batch])

    assert once.updates == thrice.updates == 3
    assert torch.equal(once.parameters, thrice.parameters)


@pytest.mark.parametrize(
    ("schedule", "total", "steps", "expected"),
    [
        ("Constant", 100, 90, 1.0),
        ("Linear", 100, 0, 1.0),
        ("Linear", 100, 25, 0.75),
        ("Linear", 100, 100, 0.0),
        ("Linear", 100, 130, 0.0),
        ("Linear", None, 130, 1.0),
    ],
)
def test_the_learning_rates_schedule(schedule: Any, total: int | None, steps: int, expected: float) -> None:
    learner = make(Impala(learning_rate=0.002, learning_rate_schedule=schedule), total_steps=total)

    assert learner.learning_rate(steps) == pytest.approx(0.002 * expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(("field", "name"), [("observation", "an observation"), ("reward", "a reward")])
def test_nan_from_the_environment_ends_the_run_and_leaves_the_parameters(
    field: str, name: str, bad: float
) -> None:
    learner = make(Impala())
    learner.step([unroll(learner)])
    before = snapshot(learner.get_state())
    batch = unroll(learner)
    batch[field][2, 1] = bad  # type: ignore[literal-required]
    batch["valid"][:] = True

    with pytest.raises(Diverged) as caught:
        learner.step([batch])

    assert str(caught.value) == (
        f"NaN in the loss at update 1: the environment gave {name} that is NaN or infinite"
    )
    assert torch.equal(learner.parameters, before["parameters"])
    assert torch.equal(learner.get_state()["optimizer"]["square"], before["optimizer"]["square"])


def test_a_loss_that_explodes_by_itself_ends_the_run_with_a_remedy() -> None:
    learner = make(Impala())
    batch = unroll(learner)
    batch["reward"] *= 1e30
    before = learner.parameters.detach().clone()

    with pytest.raises(
        Diverged, match=r"NaN in the loss at update 0 \(loss inf, .*\): lower spec\..*learningRate"
    ):
        learner.step([batch])

    assert torch.equal(learner.parameters, before)


@pytest.mark.parametrize(
    "optimizer",
    [
        Optimizer(rmsprop=RmsProp(momentum=0.5, centered=True)),
        Optimizer(rmsprop=RmsProp()),
        Optimizer(adam=Adam()),
    ],
    ids=["rmsprop, all of it", "rmsprop", "adam"],
)
def test_a_checkpoint_goes_on_bit_for_bit(optimizer: Optimizer) -> None:
    settings = Impala(optimizer=optimizer)
    straight, resumed = make(settings, lstm=True), make(settings, lstm=True)
    batches = [unroll(straight, seed) for seed in range(6)]
    for batch in batches[:3]:
        straight.step([batch])
    restore(resumed, straight)
    for batch in batches[3:]:
        straight.step([batch])
        resumed.step([batch])

    assert torch.equal(straight.parameters, resumed.parameters)
    assert straight.updates == resumed.updates == 6
    views = torch.cat([parameter.detach().reshape(-1) for parameter in resumed.network.parameters()])
    assert torch.equal(views, resumed.parameters), "the network still looks at the flat tensor"


def test_the_state_of_another_network_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the network has \d+ parameters"):
        make(Impala(), lstm=True).set_state(snapshot(make(Impala()).get_state()))


@pytest.mark.parametrize(("continuous", "random", "good"), OUTCOMES)
def test_a_bandit_is_learnt(continuous: bool, random: float, good: float) -> None:
    settings = Impala(learning_rate=0.02, optimizer=Optimizer(adam=Adam()), entropy_cost=0.0)
    collector = bandit_collector(continuous, length=10, discount=settings.discount)
    learner = ImpalaLearner(collector.network, collector.distribution, settings, None)
    returns = []
    for _ in range(150):
        batch = collector.collect()
        returns.append(batch["episode_return"].mean().item())
        learner.step([batch])

    assert np.mean(returns[:10]) == pytest.approx(random, abs=0.3)
    assert np.mean(returns[-20:]) > good
