"""A3C's and A2C's gradient of a rollout: against a second calculation, its weight and its clipping."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from rltraining_api.algorithms import A2c, A3c, Aggregate
from rltraining_api.algorithms.gradients import A3cAggregate
from rltraining_trainer.algorithms.a3c import AdvantageActorCritic
from rltraining_trainer.algorithms.returns import n_step_returns
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.dataflow.flat import flatten_parameters
from rltraining_trainer.networks import ActorCritic, Distribution
from rltraining_trainer.world import Gradient
from rollouts import (
    Made,
    advantages_step_by_step,
    begun,
    every_network,
    flat_gradient,
    in_double,
    make_network,
    make_unroll,
    standardized,
    with_other_invalid_rows,
)
from torch import Tensor

UNCLIPPED = {"gradient_clip": None}
SETTINGS: dict[str, A3c | A2c] = {
    "a3c": A3c(**UNCLIPPED),
    "normalised": A2c(advantage_normalization=True),
    "gae, other costs": A3c(gae_lambda=0.7, discount=0.8, entropy_cost=0.3, baseline_cost=2.0, **UNCLIPPED),
    "n-step": A3c(n_step=3, loss_reduction="Mean", **UNCLIPPED),
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())


def gradient_of(settings: A3c | A2c, made: Made, unroll: Unroll) -> Gradient:
    return begun(settings, made, unroll).gradient(0)


def loss_of(
    settings: A3c | A2c, network: ActorCritic, distribution: Distribution, unroll: Unroll
) -> dict[str, Tensor]:
    """Returns the terms as textbooks define them, with their graph; sums over valid steps."""
    policies, values = network.unroll(unroll["observation"], unroll["state"], unroll["first"])
    log_prob, entropy = distribution.log_prob_and_entropy(policies[:-1], unroll["action"])
    known, valid = values.detach(), unroll["valid"]
    advantages = advantages_step_by_step(unroll, known, settings.discount, settings.gae_lambda)
    if settings.n_step is not None:
        returns = n_step_returns(
            unroll["reward"], settings.discount * ~unroll["ended"], known, settings.n_step, valid
        )
        advantages = returns - known[:-1]
    returns = advantages + known[:-1]
    if settings.advantage_normalization:
        advantages = standardized(advantages, valid)
    terms = {
        "policy_loss": -(log_prob * advantages)[valid].sum(),
        "baseline_loss": ((returns - values[:-1]) ** 2)[valid].sum(),
        "entropy": entropy[valid].sum(),
    }
    costs = {"policy_loss": 1.0, "baseline_loss": settings.baseline_cost, "entropy": -settings.entropy_cost}
    terms["loss"] = sum((cost * terms[name] for name, cost in costs.items()), torch.tensor(0.0))
    return terms


def assert_gradient_is_of_the_loss(settings: A3c | A2c, made: Made, unroll: Unroll) -> None:
    steps = unroll["valid"].sum().item()

    found = gradient_of(settings, made, unroll)

    network, exact = in_double(made[0], unroll)
    terms = loss_of(settings, network, made[1], exact)
    mean = settings.loss_reduction == "Mean"
    gradient = flat_gradient(network, terms["loss"] / (steps if mean else 1))
    assert found.weight == (steps if mean else 1.0)
    assert torch.allclose(found.values.double(), gradient, rtol=1e-4, atol=1e-5 * gradient.abs().max().item())
    assert found.terms.pop("gradient_norm") == pytest.approx(gradient.norm().item(), rel=1e-5)
    assert found.terms == pytest.approx({name: term.item() / steps for name, term in terms.items()}, rel=1e-4)


@every_setting
@every_network
def test_terms_and_gradient_are_those_of_the_loss(
    settings: A3c | A2c, action: spaces.Space, lstm: bool
) -> None:
    made = make_network(action, lstm=lstm)
    assert_gradient_is_of_the_loss(settings, made, make_unroll(*made))


def test_one_valid_step_has_its_whole_gradient() -> None:
    made = make_network()
    unroll = make_unroll(*made)
    unroll["valid"][:] = False
    unroll["valid"][2, 1] = True
    assert_gradient_is_of_the_loss(SETTINGS["n-step"], made, unroll)


@every_setting
def test_rows_that_are_no_steps_do_not_change_the_gradient(settings: A3c | A2c) -> None:
    made = make_network(lstm=True)
    unroll = make_unroll(*made)

    expected = gradient_of(settings, made, unroll)
    found = gradient_of(settings, made, with_other_invalid_rows(unroll))

    assert torch.equal(found.values, expected.values)
    assert found.terms == expected.terms


@pytest.mark.parametrize("settings", [A3c(), A2c(advantage_normalization=True)], ids=["sum", "mean"])
def test_a_rollout_without_a_step_has_no_gradient(settings: A3c | A2c) -> None:
    made = make_network()
    unroll = make_unroll(*made)
    unroll["valid"][:] = False

    found = gradient_of(settings, made, unroll)

    assert found.weight == (1.0 if settings.loss_reduction == "Sum" else 0.0)
    assert not found.values.any()
    assert not any(found.terms.values())


def test_an_asynchronous_gradient_is_clipped_by_its_own_norm() -> None:
    made = make_network()
    unroll = make_unroll(*made)
    whole = gradient_of(A3c(**UNCLIPPED), made, unroll)
    assert whole.values.norm() > 10

    clipped = gradient_of(A3c(gradient_clip=0.5), made, unroll)
    left = gradient_of(A3c(gradient_clip=0.5, aggregate=A3cAggregate(mode="Sync", count=None)), made, unroll)
    asynchronous = Aggregate(mode="Async", count=1)
    also_clipped = gradient_of(
        A2c(gradient_clip=0.5, baseline_cost=0.25, loss_reduction="Sum", aggregate=asynchronous), made, unroll
    )

    for run, whole_run in zip(
        *(made_.values.split(made[0].clip_sizes) for made_ in (clipped, whole)), strict=True
    ):
        assert torch.allclose(run, whole_run * min(1.0, 0.5 / whole_run.norm()), rtol=1e-4)
    assert clipped.terms == whole.terms, "the norm is reported as it was before"
    assert torch.equal(left.values, whole.values)
    assert torch.equal(also_clipped.values, clipped.values)


def test_a_rollout_does_not_change_the_next_one() -> None:
    made = make_network(lstm=True)
    first, second = make_unroll(*made, seed=1), make_unroll(*made, seed=2)
    rollouts = AdvantageActorCritic(*made, A3c(), flatten_parameters(made[0]))
    for unroll in (first, second):
        rollouts.begin(unroll)
        found = rollouts.gradient(0)

    assert torch.equal(found.values, gradient_of(A3c(), made, second).values)
