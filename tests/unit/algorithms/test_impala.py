"""IMPALA's learner: its loss and gradient against a second calculation, its state, and its learning."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from bandit import Bandit
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from rltraining_api.algorithms import Adam, Impala, Optimizer, RmsProp
from rltraining_api.environment import Normalize
from rltraining_api.network import Mlp, Network
from rltraining_trainer.algorithms.impala import ImpalaLearner
from rltraining_trainer.algorithms.unrolls import Unroll, UnrollCollector, concatenate
from rltraining_trainer.algorithms.vtrace import vtrace
from rltraining_trainer.checkpoint import snapshot
from rltraining_trainer.dataflow.moments import moments_of
from rltraining_trainer.environments import Stepper
from rltraining_trainer.errors import Diverged
from rltraining_trainer.networks import build_actor_critic
from rollouts import (
    DISCRETE,
    environments_of,
    every_network,
    flat_gradient,
    in_double,
    make_network,
    make_unroll,
    standardized,
    with_other_invalid_rows,
)
from through_a_file import restore
from torch import Tensor


def make(
    settings: Impala, action: spaces.Space = DISCRETE, *, lstm: bool = False, total_steps: int | None = None
) -> ImpalaLearner:
    return ImpalaLearner(*make_network(action, lstm=lstm), settings, total_steps)


def normalizing(settings: Impala) -> ImpalaLearner:
    """Returns a learner with a network that normalises observations."""
    torch.manual_seed(3)
    spec, box = Network(mlp=Mlp(hidden_sizes=(5,))), spaces.Box(-1, 1, (3,), np.float32)
    made = build_actor_critic(spec, box, DISCRETE, normalize=Normalize(observations=True))
    return ImpalaLearner(*made, settings, None)


def unroll(learner: ImpalaLearner, seed: int = 0) -> Unroll:
    """Returns steps of a policy that differs from the learner's."""
    return make_unroll(learner.network, learner.distribution, seed, drift=1.0)


FROZEN = {"learning_rate": 1e-30, "gradient_clip": None}
"""Settings with which an update leaves the parameters unchanged, so that tests can inspect its gradient."""


def look(learner: ImpalaLearner, batch: Unroll) -> tuple[dict[str, float], Tensor]:
    """Returns the terms of the loss and the gradient. The parameters stay unchanged."""
    before = learner.parameters.detach().clone()
    terms = learner.step([batch])
    assert torch.equal(learner.parameters, before)
    return {name: term.item() for name, term in terms.items()}, learner.parameters.grad.clone()


def loss_of(learner: ImpalaLearner, batch: Unroll) -> tuple[dict[str, Tensor], Tensor]:
    """Returns the loss's terms as in the paper, and its gradient, both in float64.

    Targets and advantages are detached.
    """
    settings, valid = learner.settings, batch["valid"]
    network, batch = in_double(copy.deepcopy(learner.network), batch)
    policies, values = network.unroll(batch["observation"], batch["state"], batch["first"])
    log_prob, entropy = learner.distribution.log_prob_and_entropy(policies[:-1], batch["action"])
    known, clips = values.detach(), ("rho_clip", "c_clip", "lambda_")
    targets, advantages = vtrace(
        log_prob.detach() - batch["log_prob"],
        settings.discount * ~batch["ended"],
        batch["reward"],
        known[:-1],
        known[-1],
        valid=valid,
        pg_rho_clip=settings.pg_rho_clip if settings.clip_range is None else None,
        **{name: getattr(settings, name) for name in clips},
    )
    if settings.advantage_normalization:
        advantages = standardized(advantages, valid)
    objective = log_prob * advantages
    if settings.clip_range is not None:
        objective = clipped(log_prob - batch["log_prob"], advantages, settings.clip_range)
    weight = 1 / valid.sum().item() if settings.loss_reduction == "Mean" else 1.0
    terms = {
        "policy_loss": -weight * objective[valid].sum(),
        "baseline_loss": weight * ((targets - values[:-1]) ** 2)[valid].sum(),
        "entropy": weight * entropy[valid].sum(),
    }
    costs = {"policy_loss": 1.0, "baseline_loss": settings.baseline_cost, "entropy": -settings.entropy_cost}
    terms["loss"] = sum((cost * terms[name] for name, cost in costs.items()), torch.tensor(0.0))
    return terms, flat_gradient(network, terms["loss"])


def clipped(log_ratio: Tensor, advantages: Tensor, limit: float) -> Tensor:
    """Returns PPO's objective, case by case: A, multiplied by a ratio that counts at most up to its bound."""
    ratio = log_ratio.exp()
    beyond = torch.where(advantages > 0, ratio > 1 + limit, ratio < 1 - limit)
    bound = torch.where(advantages > 0, 1 + limit, 1 - limit)
    return advantages * torch.where(beyond, bound, ratio)


SETTINGS = {
    "published": Impala(**FROZEN),
    "mean, normalised": Impala(loss_reduction="Mean", advantage_normalization=True, **FROZEN),
    "clips": Impala(rho_clip=2.0, c_clip=0.5, pg_rho_clip=1.5, lambda_=0.7, discount=0.8, **FROZEN),
    "clipped objective": Impala(clip_range=0.2, pg_rho_clip=1.5, **FROZEN),
    "clipped objective, normalised": Impala(clip_range=0.1, advantage_normalization=True, **FROZEN),
    "costs": Impala(entropy_cost=0.3, baseline_cost=2.0, **FROZEN),
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())


@every_setting
@every_network
def test_terms_and_gradient_are_those_of_the_loss(settings: Impala, action: spaces.Space, lstm: bool) -> None:
    learner = make(settings, action, lstm=lstm)
    batch = unroll(learner)

    found, gradient = look(learner, batch)

    terms, expected = loss_of(learner, batch)
    scale = expected.abs().max().item()
    assert torch.allclose(gradient.double(), expected, rtol=1e-4, atol=1e-5 * scale)
    assert found.pop("gradient_norm") == pytest.approx(expected.norm().item(), rel=1e-5)
    assert found == pytest.approx({name: term.item() for name, term in terms.items()}, rel=1e-4, abs=1e-4)


def test_rows_that_are_no_steps_do_not_change_the_gradient() -> None:
    learner = make(Impala(**FROZEN), lstm=True)
    batch = unroll(learner)

    assert torch.equal(look(learner, batch)[1], look(learner, with_other_invalid_rows(batch))[1])


def test_a_batch_without_a_step_changes_nothing() -> None:
    for settings in (Impala(), Impala(loss_reduction="Mean", advantage_normalization=True)):
        learner = make(settings)
        batch = unroll(learner)
        batch["valid"][:] = False
        before = learner.parameters.detach().clone()

        terms = learner.step([batch])

        assert all(term.item() == 0.0 for term in terms.values()), terms
        assert torch.equal(learner.parameters, before)


def test_unrolls_of_several_samplers_are_one_batch() -> None:
    learner = make(Impala(**FROZEN), lstm=True)
    first, second = unroll(learner, 1), unroll(learner, 2)

    separate = look(learner, first)[1] + look(learner, second)[1]
    learner.step([first, second])

    assert torch.allclose(learner.parameters.grad, separate, rtol=1e-4, atol=1e-4)


def test_unrolls_side_by_side_keep_every_episode_and_all_moments() -> None:
    learner = make(Impala(), lstm=True)
    parts = [unroll(learner, seed) for seed in range(3)]
    for part in parts:
        part["moments"] = moments_of(part["observation"][:-1].flatten(0, 1)).unsqueeze(0)

    whole = concatenate(parts)

    for b, part in enumerate(parts):
        own = environments_of(whole, slice(4 * b, 4 * b + 4))
        for name in ("observation", "action", "log_prob", "reward", "ended", "valid", "first"):
            assert torch.equal(own[name], part[name]), name  # type: ignore[literal-required]
        assert all(map(torch.equal, own["state"], part["state"]))
    for name in ("episodes", "episode_return", "episode_length", "moments"):
        assert torch.equal(whole[name], torch.cat([part[name] for part in parts])), name  # type: ignore[literal-required]


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_mean_terms_are_sums_over_the_number_of_steps(steps: int) -> None:
    batch = unroll(make(Impala()))
    batch["valid"] = (torch.arange(batch["valid"].numel()) < steps).view_as(batch["valid"])

    (mean, gradient), (total, whole) = (
        look(make(Impala(loss_reduction=reduction, **FROZEN)), batch) for reduction in ("Mean", "Sum")
    )

    assert {name: steps * term for name, term in mean.items()} == pytest.approx(total, rel=1e-5)
    assert torch.allclose(steps * gradient, whole, rtol=1e-5, atol=1e-6)


def test_a_gradient_is_clipped_before_it_is_used() -> None:
    optimizer = Optimizer(rmsprop=RmsProp(alpha=0.0, epsilon=1e6))  # a step is gradient / 1e3
    learner = make(Impala(gradient_clip=0.5, learning_rate=1.0, optimizer=optimizer))
    before = learner.parameters.detach().clone()

    terms = learner.step([unroll(learner)])

    assert terms["gradient_norm"] > 10, "the norm is reported as it was before"
    for run in (learner.parameters.detach() - before).split(learner.network.clip_sizes):
        assert run.norm().item() * 1e3 == pytest.approx(0.5, rel=0.2), "policy and value are clipped apart"


def test_a_schedule_begins_with_the_whole_rate_and_its_last_update_has_some() -> None:
    """All updates from a batch use the learning rate for the steps before the batch."""
    batch, found = unroll(make(Impala())), []
    steps = int(batch["valid"].sum())
    for rate, schedule, total in (
        (1e-3, "Linear", 2 * steps),
        (1e-3, "Constant", None),
        (5e-4, "Constant", None),
    ):
        settings = Impala(learning_rate=rate, learning_rate_schedule=schedule, updates_per_batch=2)
        learners = [make(settings, total_steps=total) for _ in range(2)]
        for begun, learner in enumerate(learners):
            learner.environment_steps = begun * steps
            learner.step([batch])
        found.append([learner.parameters for learner in learners])
    linear, whole, half = found
    assert torch.equal(linear[0], whole[0])
    assert torch.equal(linear[1], half[0])


def test_several_updates_on_a_batch_are_as_many_steps_with_one() -> None:
    once, thrice = make(Impala()), make(Impala(updates_per_batch=3))
    batch = unroll(once)
    for _ in range(3):
        once.step([batch])
    thrice.step([batch])

    assert once.updates == thrice.updates == 3
    assert torch.equal(once.parameters, thrice.parameters)


def test_statistics_of_observations_change_after_the_updates_and_in_all_learners() -> None:
    """The updates use the statistics of the policy that acted. A learner without data follows."""
    plain, leader, follower = (normalizing(Impala(updates_per_batch=2)) for _ in range(3))
    batch = unroll(leader)
    seen = batch["observation"][:-1].flatten(0, 1)
    sums: list[tuple[Tensor, float]] = []

    def record(tensor: Tensor, count: float) -> float:
        sums.append((tensor.clone(), count))
        return count

    def replay(tensor: Tensor, count: float) -> float:
        other, others = sums.pop(0)
        tensor.add_(other)
        return count + others

    plain.step([batch])
    leader.step([Unroll(**{**batch, "moments": moments_of(seen).unsqueeze(0)})], record)
    follower.step([], replay)

    assert torch.equal(follower.parameters, leader.parameters), "statistics are parameters, too"
    normalizer = leader.network.normalizer
    assert normalizer is not None
    assert normalizer.count.item() == len(seen), "merged once, not once per update"
    assert torch.allclose(normalizer.mean, seen.mean(0), atol=1e-6)
    assert torch.allclose(normalizer.variance, seen.var(0, correction=0), atol=1e-6)
    with torch.no_grad():
        normalizer.load_state_dict(plain.network.normalizer.state_dict())
    assert torch.equal(leader.parameters, plain.parameters)


def test_a_loss_that_explodes_leaves_parameters_and_optimizer_as_they_were() -> None:
    learner = make(Impala())
    learner.step([unroll(learner)])
    before = snapshot(learner.get_state())
    batch = unroll(learner)
    batch["reward"] *= 1e30

    with pytest.raises(Diverged, match="NaN in the loss at update 1 "):
        learner.step([batch])

    assert torch.equal(learner.parameters, before["parameters"])
    assert torch.equal(learner.get_state()["optimizer"]["square"], before["optimizer"]["square"])


def test_a_checkpoint_resumes_bit_for_bit() -> None:
    settings = Impala()
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
    assert torch.equal(views, resumed.parameters), (
        "the network's parameters are still views of the flat tensor"
    )


def test_the_state_of_another_network_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the network has \d+ parameters"):
        make(Impala(), lstm=True).set_state(snapshot(make(Impala()).get_state()))


def test_a_bandit_is_learnt() -> None:
    settings = Impala(learning_rate=0.02, optimizer=Optimizer(adam=Adam()), entropy_cost=0.0)
    environments = SyncVectorEnv([lambda: Bandit(continuous=True)] * 8)
    spaces_of = environments.single_observation_space, environments.single_action_space
    made = build_actor_critic(Network(mlp=Mlp(hidden_sizes=(8,))), *spaces_of)
    collector = UnrollCollector(*made, Stepper(environments, "Bandit"), 10, 0.99, None, 1.0, seed=0)
    learner = ImpalaLearner(*made, settings, None)
    returns = []
    for _ in range(150):
        batch = collector.collect()
        returns.append(batch["episode_return"].mean().item())
        learner.step([batch])

    assert np.mean(returns[:10]) == pytest.approx(-1.4, abs=0.3), "random actions"
    assert np.mean(returns[-20:]) > -0.3
