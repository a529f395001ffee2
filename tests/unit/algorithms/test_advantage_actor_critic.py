"""A3C's and A2C's gradient of a rollout: against a second calculation, its weight, its clipping and its end."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from gymnasium import spaces
from rltraining_api.algorithms import A2c, A3c, Aggregate
from rltraining_api.algorithms.gradients import A3cAggregate
from rltraining_trainer.algorithms.actor_critic import AdvantageActorCritic
from rltraining_trainer.algorithms.returns import n_step_returns
from rltraining_trainer.algorithms.rollout_gradients import Gradient
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.dataflow.flat import flatten_parameters
from rltraining_trainer.errors import Diverged
from rltraining_trainer.networks import ActorCritic, Distribution
from rollouts import (
    CONTINUOUS,
    DISCRETE,
    T,
    advantages_step_by_step,
    flat_gradient,
    in_double,
    make_network,
    make_unroll,
    part_of,
    standardized,
)
from torch import Tensor

UNCLIPPED = {"gradient_clip": None}
SETTINGS: dict[str, A3c | A2c] = {
    "a3c": A3c(**UNCLIPPED),
    "a2c": A2c(),
    "normalised": A2c(advantage_normalization=True),
    "gae, other costs": A3c(gae_lambda=0.7, discount=0.8, entropy_cost=0.3, baseline_cost=2.0, **UNCLIPPED),
    "n-step": A3c(n_step=3, loss_reduction="Mean", **UNCLIPPED),
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
every_network = pytest.mark.parametrize(
    ("action", "lstm"),
    [(DISCRETE, False), (DISCRETE, True), (CONTINUOUS, False), (CONTINUOUS, True)],
    ids=["mlp", "lstm", "gaussian", "gaussian lstm"],
)


def gradient_of(settings: A3c | A2c, made: tuple[ActorCritic, Distribution], unroll: Unroll) -> Gradient:
    """By a sampler that has nobody to share totals with."""
    network = copy.deepcopy(made[0])
    rollouts = AdvantageActorCritic(network, made[1], settings, flatten_parameters(network))
    totals = rollouts.begin(unroll)
    if totals is not None:
        rollouts.share(totals)
    return rollouts.gradient(0)


def loss_of(
    settings: A3c | A2c, network: ActorCritic, distribution: Distribution, unroll: Unroll
) -> dict[str, Tensor]:
    """The terms as textbooks write them, with their graph; sums over valid steps."""
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
        "baseline_loss": 0.5 * ((returns - values[:-1]) ** 2)[valid].sum(),
        "entropy": entropy[valid].sum(),
    }
    costs = {"policy_loss": 1.0, "baseline_loss": settings.baseline_cost, "entropy": -settings.entropy_cost}
    terms["loss"] = sum((cost * terms[name] for name, cost in costs.items()), torch.tensor(0.0))
    return terms


@every_setting
@every_network
def test_terms_and_gradient_are_those_of_the_loss(
    settings: A3c | A2c, action: spaces.Space, lstm: bool
) -> None:
    made = make_network(action, lstm=lstm)
    unroll = make_unroll(*made)
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
def test_what_stands_in_rows_that_are_no_steps_is_not_learnt(
    settings: A3c | A2c, action: spaces.Space, lstm: bool
) -> None:
    made = make_network(action, lstm=lstm)
    unroll = make_unroll(*made)
    other = copy.deepcopy(unroll)
    for name in ("reward", "log_prob"):
        other[name][~unroll["valid"]] = math.nan  # type: ignore[literal-required]
    other["action"][~unroll["valid"]] = 0
    other["ended"][~unroll["valid"]] ^= True

    found, expected = gradient_of(settings, made, other), gradient_of(settings, made, unroll)

    assert torch.equal(found.values, expected.values)
    assert found.terms == expected.terms


@pytest.mark.parametrize("settings", [A3c(), A2c(advantage_normalization=True)], ids=["sum", "mean"])
def test_a_rollout_without_a_step_teaches_nothing(settings: A3c | A2c) -> None:
    made = make_network()
    unroll = make_unroll(*made)
    unroll["valid"][:] = False

    found = gradient_of(settings, made, unroll)

    assert found.weight == (1.0 if settings.loss_reduction == "Sum" else 0.0)
    assert not found.values.any()
    assert not any(found.terms.values())


@pytest.mark.parametrize("action", [DISCRETE, CONTINUOUS], ids=["categorical", "gaussian"])
@pytest.mark.parametrize("reset_row", [False, True], ids=["same step", "next step"])
def test_an_episode_that_ends_within_the_rollout_is_learnt_as_two_sequences(
    action: spaces.Space, reset_row: bool
) -> None:
    made, end = make_network(action, lstm=True), 3
    unroll = make_unroll(*made)
    unroll["first"][:] = False
    unroll["valid"][:] = True
    unroll["ended"][:] = False
    unroll["ended"][end - 1] = True
    begin = end
    if reset_row:  # whose observation is the last of the first episode
        unroll["valid"][end] = False
        begin = end + 1
    unroll["first"][begin] = True
    everyone, blank = slice(None), made[0].initial_state(4)
    early = part_of(unroll, slice(0, end), everyone)
    late = part_of(unroll, slice(begin, T), everyone, blank)
    late["first"][0] = False  # it begins with a blank state, and need not forget

    together = gradient_of(A3c(**UNCLIPPED), made, unroll).values
    apart = [gradient_of(A3c(**UNCLIPPED), made, part).values for part in (early, late)]

    assert torch.allclose(together, apart[0] + apart[1], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(together, apart[0], rtol=1e-2), "both are in it"


def test_an_asynchronous_gradient_is_clipped_by_its_own_norm() -> None:
    made = make_network()
    unroll = make_unroll(*made)
    whole = gradient_of(A3c(**UNCLIPPED), made, unroll)
    assert whole.values.norm() > 10

    clipped = gradient_of(A3c(gradient_clip=0.5), made, unroll)
    left = gradient_of(A3c(gradient_clip=0.5, aggregate=A3cAggregate(mode="Sync", count=None)), made, unroll)
    also_clipped = gradient_of(
        A2c(gradient_clip=0.5, loss_reduction="Sum", aggregate=Aggregate(mode="Async", count=1)), made, unroll
    )

    assert torch.allclose(clipped.values, whole.values * 0.5 / whole.values.norm(), rtol=1e-4)
    assert clipped.terms == whole.terms, "the norm is told as it was"
    assert torch.equal(left.values, whole.values)
    assert torch.equal(also_clipped.values, clipped.values)


def test_one_rollout_leaves_nothing_to_the_next() -> None:
    made = make_network(lstm=True)
    first, second = make_unroll(*made, seed=1), make_unroll(*made, seed=2)
    rollouts = AdvantageActorCritic(*made, A3c(), flatten_parameters(made[0]))
    for unroll in (first, second):
        rollouts.begin(unroll)
        found = rollouts.gradient(0)

    assert torch.equal(found.values, gradient_of(A3c(), made, second).values)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(("field", "name"), [("observation", "an observation"), ("reward", "a reward")])
@pytest.mark.parametrize("settings", [A3c(), A2c(advantage_normalization=True)], ids=["a3c", "a2c"])
def test_nan_from_the_environment_ends_the_run(
    settings: A3c | A2c, field: str, name: str, bad: float
) -> None:
    made = make_network()
    unroll = make_unroll(*made)
    unroll["valid"][:] = True
    unroll[field][2, 1] = bad  # type: ignore[literal-required]

    with pytest.raises(Diverged) as caught:
        gradient_of(settings, made, unroll)

    assert str(caught.value) == (
        f"NaN in the loss at rollout 1 of this sampler: the environment gave {name} that is NaN or infinite"
    )


def test_a_loss_that_explodes_by_itself_ends_the_run_with_a_remedy() -> None:
    made = make_network()
    unroll = make_unroll(*made)
    unroll["reward"] *= 1e30

    with pytest.raises(
        Diverged, match=r"rollout 1 of this sampler \(loss .*\): lower spec\.algorithm\.a3c\.learningRate"
    ):
        gradient_of(A3c(), made, unroll)
