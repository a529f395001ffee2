"""Several learners that average their gradients stay equal, and learn as one learner with all rollouts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from reduce_together import Group, run_together
from rltraining_api.algorithms import A2c, Optimizer, Ppo, Sgd
from rltraining_api.environment import Normalize
from rltraining_api.network import Mlp, Network
from rltraining_trainer.algorithms.rollout_learner import RolloutLearner, average
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.dataflow.gradients import reduce_gradients
from rltraining_trainer.dataflow.moments import moments_of
from rltraining_trainer.dataflow.reduce import Reduce
from rltraining_trainer.networks import build_actor_critic
from rollouts import DISCRETE, Made, make_network, make_unroll, rollout_learner
from torch import Tensor

SGD = Optimizer(sgd=Sgd())
ROUNDS = 3
SAMPLERS = 4
MINIBATCHES = 2

REDUCTIONS = [(loss, how) for loss in ("Mean", "Sum") for how in ("Mean", "Sum")]
A2C: dict[str, Callable[..., A2c]] = {
    "sgd": lambda **settings: A2c(optimizer=SGD, learning_rate=1e-3, gradient_clip=None, **settings),
    "rmsprop, clipped, normalised": lambda **settings: A2c(
        advantage_normalization=True, learning_rate=0.02, **settings
    ),
}
every_a2c = pytest.mark.parametrize("a2c", A2C.values(), ids=A2C.keys())


def ppo(**settings: Any) -> Ppo:
    return Ppo(**{"epochs": 2, "minibatches": MINIBATCHES, "learning_rate": 0.01} | settings)


def rollouts_of_a_round(round_: int, *, complete: bool = False) -> list[Unroll]:
    """Returns the rollout of each sampler. ``complete``: each row is a step."""
    unrolls = [make_unroll(*make_network(), seed=10 * round_ + sampler) for sampler in range(SAMPLERS)]
    for unroll in unrolls if complete else ():
        unroll["valid"][:] = True
    return unrolls


def normalizing() -> Made:
    """Returns a network that normalises observations, equal in each call."""
    torch.manual_seed(3)
    spec, box = Network(mlp=Mlp(hidden_sizes=(5,))), spaces.Box(-1, 1, (3,), np.float32)
    return build_actor_critic(spec, box, DISCRETE, normalize=Normalize(observations=True))


class Learners:
    """Two learners with equal parameters, in one group."""

    def __init__(
        self,
        settings: A2c | Ppo,
        make: Callable[[], Made] = make_network,
        exchanges: Callable[[int], int] | None = None,
    ) -> None:
        updates = settings.epochs * MINIBATCHES if isinstance(settings, Ppo) else 1
        each = exchanges or (lambda samplers: updates)
        self.each = [rollout_learner(settings, make(), each) for _ in range(2)]
        self.group = Group(2)

    def step(
        self, parts: Sequence[Sequence[Unroll]], leaving: Sequence[Callable[[], bool]] | None = None
    ) -> list[dict[str, float]]:
        """Each learner learns from its part of the rollouts. Returns their terms of the loss."""

        def learn(learner: RolloutLearner, unrolls: Sequence[Unroll], leaves: Callable[[], bool]) -> Any:
            return lambda reduce: learner.step(unrolls, reduce, leaving=leaves)

        leaving = leaving or [lambda: False] * 2
        terms = self.group.run([learn(*each) for each in zip(self.each, parts, leaving, strict=True)])
        self.check_equal()
        return terms

    def check_equal(self) -> None:
        """Raises AssertionError if learners differ in a bit, or have made different collective calls."""
        first, second = self.each
        assert torch.equal(first.parameters, second.parameters)
        assert (first.updates, first.environment_steps) == (second.updates, second.environment_steps)
        for name, part in first.get_state()["optimizer"].items():
            assert torch.equal(torch.as_tensor(part), torch.as_tensor(second.get_state()["optimizer"][name]))
        assert self.group.calls[0] == self.group.calls[1], "each collective call is made by both"


def changed(learner: RolloutLearner) -> float:
    """Returns the largest difference to the initial parameters."""
    return (learner.parameters - rollout_learner(A2c()).parameters).abs().max().item()


@every_a2c
@pytest.mark.parametrize(("loss", "reduction"), REDUCTIONS)
@pytest.mark.parametrize("first", [1, 2, 4], ids=["1 and 3", "2 and 2", "4 and 0"])
def test_two_a2c_learners_are_one_with_all_rollouts(
    a2c: Callable[..., A2c], loss: str, reduction: str, first: int
) -> None:
    settings = a2c(loss_reduction=loss, aggregate={"reduction": reduction})
    one, two = rollout_learner(settings), Learners(settings)
    # With Mean and Sum, a learner assumes that all samplers have the same number of steps.
    complete = loss == "Mean" and reduction == "Sum"
    for round_ in range(ROUNDS):
        unrolls = rollouts_of_a_round(round_, complete=complete)
        one.step(copy.deepcopy(unrolls))
        two.step([unrolls[:first], unrolls[first:]])

    assert two.each[0].updates == ROUNDS
    assert two.each[0].environment_steps == one.environment_steps
    torch.testing.assert_close(two.each[0].parameters, one.parameters, rtol=1e-6, atol=1e-6)
    assert changed(one) > 1e-4, "a hundred times the tolerance"


@pytest.mark.parametrize("reduction", ["Mean", "Sum"])
@pytest.mark.parametrize("per", ["Rollout", "Minibatch"])
@pytest.mark.parametrize("first", [2, 4], ids=["2 and 2", "4 and 0"])
def test_two_ppo_learners_stay_equal(reduction: str, per: Any, first: int) -> None:
    settings = ppo(aggregate={"reduction": reduction}, advantage_normalization_per=per)
    two = Learners(settings)
    for round_ in range(ROUNDS):
        unrolls = rollouts_of_a_round(round_)
        terms = two.step([unrolls[:first], unrolls[first:]])
        assert terms[0]["kl"] > 0.0

    assert two.each[0].updates == ROUNDS * settings.epochs * MINIBATCHES
    assert changed(two.each[0]) > 1e-2


@pytest.mark.parametrize("first", [1, 2])
def test_two_ppo_learners_with_one_minibatch_are_one_with_all_rollouts(first: int) -> None:
    """With one minibatch, the order of the steps does not matter. Advantages are normalised over both."""
    settings = ppo(minibatches=1, epochs=1, optimizer=SGD)
    one, two = rollout_learner(settings), [rollout_learner(settings, exchanges=lambda _: 1) for _ in range(2)]
    for round_ in range(ROUNDS):
        unrolls = rollouts_of_a_round(round_)
        one.step(copy.deepcopy(unrolls))
        parts = (unrolls[:first], unrolls[first:])
        run_together([lambda reduce, i=i: two[i].step(parts[i], reduce) for i in range(2)])  # noqa: B023

    assert torch.equal(two[0].parameters, two[1].parameters)
    torch.testing.assert_close(two[0].parameters, one.parameters, rtol=1e-6, atol=1e-6)
    assert changed(one) > 1e-3


@pytest.mark.parametrize(
    "settings", [A2c(), A2c(advantage_normalization=True), ppo()], ids=["a2c", "a2c, normalised", "ppo"]
)
def test_a_learner_without_rollouts_makes_the_updates_of_the_other(settings: A2c | Ppo) -> None:
    one, two = rollout_learner(settings), Learners(settings)
    for round_, empty in enumerate((0, 1, 0)):
        unrolls = rollouts_of_a_round(round_)
        torch.manual_seed(round_)
        one.step(copy.deepcopy(unrolls))
        torch.manual_seed(round_)  # only the learner with rollouts draws random numbers
        terms = two.step([unrolls if index != empty else [] for index in range(2)])
        assert terms[empty] == {}

    torch.testing.assert_close(two.each[0].parameters, one.parameters, rtol=1e-6, atol=1e-6)


def test_the_number_of_updates_follows_the_number_of_samplers() -> None:
    """Learners that started before and after a change of sampler.replicas make equally many updates."""
    two = Learners(ppo(epochs=1), exchanges=lambda samplers: samplers)
    unrolls = rollouts_of_a_round(0)
    made = []
    for parts in ([unrolls[:2], unrolls[2:]], [unrolls[:2], unrolls[2:3]], [[], unrolls[:1]], [[], []]):
        before = two.each[0].updates
        two.step(parts)
        made.append(two.each[0].updates - before)
    assert made == [4, 3, 1, 0]


@pytest.mark.parametrize("who", [0, 1])
def test_updates_from_a_rollout_end_in_all_learners_at_target_kl(who: int) -> None:
    """Only the learner with rollouts measures the divergence."""
    two = Learners(ppo(target_kl=1e-9))
    two.step([rollouts_of_a_round(0) if index == who else [] for index in range(2)])
    assert [learner.updates for learner in two.each] == [1, 1]


def test_updates_end_where_one_of_two_policies_has_moved_too_far() -> None:
    unrolls = rollouts_of_a_round(0)
    near = [make_unroll(*make_network(), seed=7, drift=0.0)]
    two = Learners(ppo(target_kl=1e-3, learning_rate=1e-9))
    two.step([near, near])
    assert two.each[0].updates == 2 * MINIBATCHES
    two.step([near, unrolls])
    assert two.each[0].updates == 2 * MINIBATCHES + 1


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("first", [0, 2], ids=["one has none", "both have rollouts"])
def test_a_learner_that_has_to_end_ends_the_updates_of_both(who: int, first: int) -> None:
    unrolls = rollouts_of_a_round(0)
    two = Learners(ppo())
    leaving: list[Callable[[], bool]] = [lambda: False, lambda: False]
    leaving[who] = lambda: two.each[who].updates == 3
    two.step([unrolls[:first], unrolls[first:]], leaving)
    assert [learner.updates for learner in two.each] == [3, 3]


@pytest.mark.parametrize(
    "settings", [A2c(), A2c(advantage_normalization=True), ppo()], ids=["a2c", "a2c, normalised", "ppo"]
)
@pytest.mark.parametrize("first", [0, 2])
def test_rollouts_without_a_step_change_nothing(settings: A2c | Ppo, first: int) -> None:
    """Momentum and the learning-rate schedule stay as they are, too."""
    unrolls = rollouts_of_a_round(0)
    two = Learners(settings)
    two.step([unrolls[:2], unrolls[2:]])
    before = copy.deepcopy(two.each[0].get_state())
    for unroll in unrolls:
        unroll["valid"][:] = False

    assert two.step([unrolls[:first], unrolls[first:]]) == [{}, {}]

    after = two.each[0].get_state()
    assert torch.equal(after["parameters"], before["parameters"])
    assert (after["updates"], after["environment_steps"]) == (before["updates"], before["environment_steps"])


@pytest.mark.parametrize("first", [0, 1])
def test_statistics_of_observations_are_those_of_all_learners(first: int) -> None:
    two = Learners(ppo(), normalizing)
    network, distribution = normalizing()
    unrolls = [make_unroll(network, distribution, seed) for seed in range(2)]
    for unroll in unrolls:
        unroll["moments"] = moments_of(unroll["observation"][:-1].flatten(0, 1)).unsqueeze(0)
    two.step([unrolls[:first], unrolls[first:]])

    seen = torch.cat([unroll["observation"][:-1].flatten(0, 1) for unroll in unrolls])
    for learner in two.each:
        assert learner.network.normalizer is not None
        torch.testing.assert_close(learner.network.normalizer.mean.detach(), seen.mean(0))


@pytest.mark.parametrize("reduction", ["Mean", "Sum"])
@pytest.mark.parametrize(
    "weights",
    [[[20.0, 7.0], [3.0]], [[5.0], [5.0]], [[4.0, 2.0, 1.0], []], [[0.0], [8.0]], [[0.0], [0.0]]],
    ids=str,
)
def test_an_average_over_learners_is_the_reduction_over_all_samplers(
    reduction: Any, weights: list[list[float]]
) -> None:
    random = torch.Generator().manual_seed(0)
    gradients = [[torch.randn(6, generator=random) for _ in part] for part in weights]
    every = [gradient for part in gradients for gradient in part]
    expected = reduce_gradients(every, [weight for part in weights for weight in part], reduction)
    expected = expected if any(map(any, weights)) or reduction == "Sum" else torch.zeros(6)

    def learner(index: int) -> Callable[[Reduce], tuple[Tensor, int]]:
        def act(reduce: Reduce) -> tuple[Tensor, int]:
            made, own = [gradient.clone() for gradient in gradients[index]], weights[index]
            gradient = reduce_gradients(made, own, reduction) if made else torch.zeros(6)
            return gradient, average(gradient, sum(own), 10 * len(own), reduce, reduction)

        return act

    (first, steps), (second, other_steps) = run_together([learner(0), learner(1)])

    assert torch.equal(first, second)
    torch.testing.assert_close(first, expected, rtol=1e-6, atol=1e-6)
    assert steps == other_steps == 10 * len(every)
