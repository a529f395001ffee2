"""PPO's gradients of a rollout: against a second calculation, and how rollouts are split into minibatches."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from gymnasium import spaces
from rltraining_api.algorithms import Ppo
from rltraining_api.job import JobSpec
from rltraining_trainer.algorithms.ppo import ProximalPolicyOptimization
from rltraining_trainer.algorithms.rollout_learner import RolloutGradients
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.dataflow.flat import flatten_parameters
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.networks import ActorCritic, Distribution
from rltraining_trainer.world import Gradient
from rollouts import (
    advantages_step_by_step,
    begun,
    every_network,
    flat_gradient,
    gradients_of,
    in_double,
    make_network,
    make_unroll,
    standardized,
    with_other_invalid_rows,
)
from torch import Tensor


def whole(**settings: Any) -> Ppo:
    """Returns settings with one minibatch per rollout."""
    return Ppo(**{"epochs": 1, "minibatches": 1} | settings)


def of(rollouts: RolloutGradients, position: int) -> Gradient:
    """Returns a gradient that does not share its memory."""
    found = rollouts.gradient(position)
    return found._replace(values=found.values.clone())


def terms_of(
    settings: Ppo, network: ActorCritic, distribution: Distribution, unroll: Unroll
) -> dict[str, Tensor]:
    """Returns the terms of the complete rollout as textbooks define them, with their graph."""
    valid, epsilon = unroll["valid"], settings.clip_range
    policies, values = network.unroll(unroll["observation"], unroll["state"], unroll["first"])
    log_prob, entropy = distribution.log_prob_and_entropy(policies[:-1], unroll["action"])
    known = values.detach()
    advantages = advantages_step_by_step(unroll, known, settings.discount, settings.gae_lambda)
    returns = (advantages + known[:-1])[valid]
    if settings.advantage_normalization:
        advantages = standardized(advantages, valid)
    advantages = advantages[valid]
    ratio = torch.exp(log_prob - unroll["log_prob"])[valid]
    surrogate = torch.where(
        advantages > 0,
        advantages * ratio.clamp(max=1 + epsilon),
        advantages * ratio.clamp(min=1 - epsilon),
    )
    before, after = known[:-1][valid], values[:-1][valid]
    squares = (returns - after) ** 2
    if settings.value_clip is not None:
        near = after.clamp(before - settings.value_clip, before + settings.value_clip)
        squares = torch.maximum(squares, (returns - near) ** 2)
    terms = {
        "policy_loss": -surrogate.mean(),
        "baseline_loss": squares.mean(),
        "entropy": entropy[valid].mean(),
        "kl": (ratio - 1 - ratio.log()).mean(),
        "clip_fraction": ((ratio < 1 - epsilon) | (ratio > 1 + epsilon)).double().mean(),
        "explained_variance": 1 - (returns - before).var(correction=0) / returns.var(correction=0),
    }
    costs = {"policy_loss": 1.0, "baseline_loss": settings.baseline_cost, "entropy": -settings.entropy_cost}
    terms["loss"] = sum((cost * terms[name] for name, cost in costs.items()), torch.tensor(0.0))
    return terms


@pytest.mark.parametrize(
    "settings",
    [
        whole(),
        whole(advantage_normalization=False),
        whole(clip_range=0.4, entropy_cost=0.3, baseline_cost=0.5, gae_lambda=0.6, discount=0.8),
        whole(advantage_normalization_per="Minibatch"),
    ],
    ids=["published", "not normalised", "other settings", "normalised in the minibatch"],
)
@every_network
def test_terms_and_gradient_are_those_of_the_loss(settings: Ppo, action: spaces.Space, lstm: bool) -> None:
    made = make_network(action, lstm=lstm)
    unroll = make_unroll(*made)

    found = begun(settings, made, unroll).gradient(0)

    network, exact = in_double(made[0], unroll)
    terms = terms_of(settings, network, made[1], exact)
    gradient = flat_gradient(network, terms["loss"])
    assert found.weight == unroll["valid"].sum()
    assert torch.allclose(found.values.double(), gradient, rtol=1e-4, atol=1e-5 * gradient.abs().max().item())
    assert found.terms.pop("gradient_norm") == pytest.approx(gradient.norm().item(), rel=1e-5)
    assert found.terms == pytest.approx(
        {name: term.item() for name, term in terms.items()}, rel=1e-4, abs=1e-6
    )
    assert 0 < found.terms["clip_fraction"] < 1


def test_advantages_and_returns_are_those_of_the_first_parameters() -> None:
    made = make_network()
    unroll = make_unroll(*made)
    rollouts = begun(whole(epochs=3), made, unroll)
    bias, terms = rollouts._network.value_head.bias, []
    for position, shift in enumerate((0.0, 2.0, -4.0)):  # of values: by 0, 2 and -2
        with torch.no_grad():
            bias += shift
        terms.append(rollouts.gradient(position).terms)

    for name in ("policy_loss", "kl"):
        assert [term[name] for term in terms] == pytest.approx([terms[0][name]] * 3, rel=1e-5), name
    losses = [term["baseline_loss"] for term in terms]
    assert losses[1] + losses[2] == pytest.approx(2 * (losses[0] + 2.0**2), rel=1e-5), "a parabola"


def test_values_are_clipped_around_what_they_were() -> None:
    made, limit = make_network(), 1.0
    unroll, losses = make_unroll(*made), []
    for settings in (whole(), whole(value_clip=limit)):
        rollouts = begun(settings, made, unroll)
        with torch.no_grad():
            rollouts._network.value_head.bias += 3.0
        losses.append(rollouts.gradient(0).terms["baseline_loss"])

    _, returns, values = rollouts._minibatches.figures[1:, unroll["valid"]]
    free, clipped = (returns - values - shift for shift in (3.0, limit))
    assert losses[0] == pytest.approx(free.square().mean().item(), rel=1e-5)
    larger = torch.maximum(free.square(), clipped.square()).mean()
    assert losses[1] == pytest.approx(larger.item(), rel=1e-5)
    assert losses[0] < losses[1]


def test_schedules_lower_the_clip_range_and_the_entropy_cost() -> None:
    made = make_network()
    unroll = make_unroll(*made)
    linear = whole(clip_range=0.4, clip_range_schedule="Linear", entropy_cost=0.2, entropy_schedule="Linear")
    found = []
    for settings in (linear, whole(clip_range=0.1, entropy_cost=0.05)):
        rollouts, _ = gradients_of(settings, (copy.deepcopy(made[0]), made[1]))
        totals = rollouts.begin(unroll, remaining=0.25)
        assert totals is not None
        rollouts.share(totals)
        torch.manual_seed(0)
        found.append(of(rollouts, 0))
    assert torch.allclose(found[0].values, found[1].values)
    assert found[0].terms == pytest.approx(found[1].terms)


def test_the_learner_sets_the_number_of_gradients_of_a_rollout() -> None:
    made = make_network()
    rollouts, _ = gradients_of(Ppo(epochs=2, minibatch_size=4), made)
    rollouts.begin(make_unroll(*made), exchanges=6)
    assert rollouts.exchanges == 6


@pytest.mark.parametrize("lstm", [False, True], ids=["mlp", "lstm"])
def test_rows_that_are_no_steps_do_not_change_the_gradient(lstm: bool) -> None:
    made = make_network(lstm=lstm)
    unroll = make_unroll(*made)
    found = []
    for rollout in (unroll, with_other_invalid_rows(unroll)):
        torch.manual_seed(0)
        found.append(begun(Ppo(epochs=1, minibatches=2), made, rollout).gradient(1))

    assert torch.equal(found[0].values, found[1].values)
    assert found[0].terms == found[1].terms


@pytest.mark.parametrize("lstm", [False, True], ids=["mlp", "lstm"])
def test_the_minibatches_of_an_epoch_are_the_rollout(lstm: bool) -> None:
    made = make_network(lstm=lstm)
    unroll = make_unroll(*made, batch=5)
    torch.manual_seed(1)
    parts = begun(Ppo(epochs=2, minibatches=3), made, unroll)
    assert parts.exchanges == 6
    once = begun(whole(), made, unroll).gradient(0)

    epochs = [[of(parts, 3 * epoch + part) for part in range(3)] for epoch in range(2)]

    for epoch in epochs:
        weights = torch.tensor([part.weight for part in epoch])
        assert weights.sum() == once.weight
        if not lstm:
            assert weights.max() - weights.min() <= 1
        mean = torch.stack([part.values * part.weight for part in epoch]).sum(0) / weights.sum()
        assert torch.allclose(mean, once.values, rtol=1e-4, atol=1e-5)
        for name in once.terms.keys() - {"gradient_norm"}:
            term = sum(part.weight * part.terms[name] for part in epoch) / once.weight
            assert term == pytest.approx(once.terms[name], rel=1e-4, abs=1e-6), name
    assert not torch.equal(epochs[0][0].values, epochs[1][0].values), "each epoch has another order"


@pytest.mark.parametrize("lstm", [False, True], ids=["mlp", "lstm"])
def test_positions_may_be_left_out(lstm: bool) -> None:
    made = make_network(lstm=lstm)
    settings, unroll = Ppo(epochs=4, minibatches=2), make_unroll(*made)
    straight, skipping = begun(settings, made, unroll), begun(settings, made, unroll)
    torch.manual_seed(1)
    every = [of(straight, position) for position in range(8)]
    torch.manual_seed(1)
    some = {position: of(skipping, position) for position in (1, 2, 3, 5, 6)}

    for position, gradient in some.items():
        assert torch.equal(gradient.values, every[position].values), position


@pytest.mark.parametrize("lstm", [False, True], ids=["mlp", "lstm"])
def test_minibatches_without_a_step_have_no_gradient(lstm: bool) -> None:
    """Two steps make four minibatches of steps, or, with an LSTM, of one environment each."""
    made = make_network(lstm=lstm)
    unroll = make_unroll(*made)
    unroll["valid"][:] = False
    unroll["valid"][2, 1] = unroll["valid"][3, 0] = True
    rollouts = begun(Ppo(epochs=1, minibatches=4), made, unroll)

    found = [of(rollouts, position) for position in range(4)]

    assert sorted(part.weight for part in found) == [0.0, 0.0, 1.0, 1.0]
    for part in found:
        assert bool(part.values.any()) == (part.weight > 0)
        assert part.terms.keys() == found[0].terms.keys()
        assert any(part.terms.values()) == (part.weight > 0)


def test_one_rollout_leaves_nothing_to_the_next() -> None:
    made = make_network()
    rollouts = ProximalPolicyOptimization(*made, Ppo(minibatches=4), flatten_parameters(made[0]))
    unrolls = [make_unroll(*made, seed=seed) for seed in (1, 2)]
    found = []
    for unroll in unrolls:
        totals = rollouts.begin(unroll)
        assert totals is not None
        rollouts.share(totals)
        torch.manual_seed(5)
        found.append(of(rollouts, 0))
    torch.manual_seed(5)
    fresh = begun(Ppo(minibatches=4), made, unrolls[1]).gradient(0)

    assert torch.equal(found[1].values, fresh.values)


def test_an_lstm_needs_as_many_sequences_as_minibatches() -> None:
    made = make_network(lstm=True)
    with pytest.raises(
        BadConfiguration,
        match=r"spec\.algorithm\.ppo\.minibatches: .* 4 minibatches .* 3 sequences of 16 steps",
    ):
        begun(Ppo(minibatches=4), made, make_unroll(*made, batch=3))
    begun(Ppo(minibatches=4), made, make_unroll(*made, batch=4))
    begun(Ppo(minibatches=4, sequence_length=4), made, make_unroll(*made, batch=3))


@pytest.mark.parametrize("length", [1, 2, 4, 5])
def test_sequences_have_the_outputs_of_the_whole_rollout(length: int) -> None:
    """At the start of each epoch a sequence begins with the state that the network has there, also where it does not
    divide the rollout, so that the loss is the same however the rollout is cut."""
    made = make_network(lstm=True)
    unroll = make_unroll(*made)
    assert len(unroll["valid"]) > length

    def both_epochs(settings: Ppo) -> list[Gradient]:
        """Returns the gradients of two epochs. Between them all parameters change."""
        rollouts = begun(settings, made, unroll)
        first = of(rollouts, 0)
        with torch.no_grad():
            for parameter in rollouts._network.parameters():
                parameter.mul_(1.5)
        return [first, of(rollouts, 1)]

    expected = both_epochs(whole(epochs=2))
    found = both_epochs(whole(epochs=2, sequence_length=length))

    for one, other in zip(found, expected, strict=True):
        assert one.weight == other.weight
        for name in other.terms.keys() - {"gradient_norm"}:
            assert one.terms[name] == pytest.approx(other.terms[name], rel=1e-5, abs=1e-6), name


def test_a_gradient_goes_back_to_the_first_step_of_its_sequence() -> None:
    """A second calculation cuts the graph there by hand."""
    network, distribution = made = make_network(lstm=True)
    unroll = make_unroll(*made)
    length, end = 2, len(unroll["valid"])
    state, pieces = unroll["state"], []
    # Compute the outputs of each sequence, and detach the state after it.
    for start in range(0, end, length):
        rows = slice(start, min(start + length, end))
        observation, first = unroll["observation"][rows], unroll["first"][rows]
        pieces.append(network.unroll(observation, state, first))
        for step in range(len(first)):
            _, state = network.policy(observation[step], state, first[step])
        state = tuple(part.detach() for part in state)
    policies, values = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    # Compute the loss without clipping and normalisation.
    valid = unroll["valid"]
    settings = whole(sequence_length=length, advantage_normalization=False, clip_range=1e9)
    rollouts = begun(settings, made, unroll)
    log_prob, entropy = distribution.log_prob_and_entropy(policies, unroll["action"])
    _, advantages, returns, _ = rollouts._minibatches.figures
    losses = (
        -(log_prob - unroll["log_prob"]).exp() * advantages
        + settings.baseline_cost * (returns - values) ** 2
        - settings.entropy_cost * entropy
    )
    found = of(rollouts, 0)

    assert torch.allclose(found.values, flat_gradient(network, losses[valid].mean()), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(found.values, begun(whole(), made, unroll).gradient(0).values, rtol=1e-3)


@pytest.mark.parametrize(("lstm", "size", "count"), [(False, 4, 5), (False, 100, 1), (True, 1, 3)])
def test_minibatches_of_a_size_are_counted_in_each_rollout(lstm: bool, size: int, count: int) -> None:
    made = make_network(lstm=lstm)
    unroll = make_unroll(*made, batch=3)
    unroll["valid"][:] = False
    unroll["valid"].view(-1)[:12] = True
    unroll["valid"].view(-1)[-7:] = True  # 19 steps
    rollouts = begun(Ppo(epochs=2, minibatch_size=size), made, unroll)
    assert rollouts.exchanges == 2 * count


@pytest.mark.parametrize(
    ("settings", "samplers", "count"),
    [({"minibatch_size": 64}, 1, 8), ({"minibatch_size": 64}, 2, 16), ({"minibatches": 3}, 2, 3)],
)
@pytest.mark.parametrize("network", [{"mlp": {}}, {"mlp": {}, "lstm": {}}], ids=["mlp", "lstm"])
def test_a_size_does_not_change_with_the_number_of_samplers(
    settings: dict[str, int], samplers: int, count: int, network: dict[str, Any]
) -> None:
    ppo = Ppo.model_validate({"rollout_length": 128, **settings})
    environment = {"id": "A-v0", "numEnvs": 4}
    spec = JobSpec.model_validate(
        {"algorithm": {"ppo": {}}, "environment": environment, "network": network, "stop": {"seconds": 1}}
    )
    assert ProximalPolicyOptimization.exchanges_per_rollout(spec, ppo, samplers) == ppo.epochs * count
