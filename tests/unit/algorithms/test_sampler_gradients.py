"""Samplers and a parameter server learn as one sampler with all environments, and as a learner with all rollouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from gymnasium import spaces
from rltraining_api.algorithms import A2c, A3c, Adam, Optimizer, Ppo, Sgd
from rltraining_trainer.algorithms.parameter_server import ParameterServer
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.dataflow.flat import flatten_parameters, load_flat
from rollouts import (
    CONTINUOUS,
    DISCRETE,
    Made,
    environments_of,
    gradients_of,
    make_network,
    make_unroll,
    rollout_learner,
)
from torch import Tensor

ADAM, SGD = Optimizer(adam=Adam()), Optimizer(sgd=Sgd())


def train(
    settings: A3c | A2c | Ppo, rounds: Sequence[Sequence[Unroll]], make: Callable[[], Made]
) -> tuple[Tensor, list[float]]:
    """Returns (parameters, the losses) after rounds with a rollout of each sampler.

    A server applies the mean of the samplers' gradients.
    """
    server = ParameterServer(make()[0], settings, None)
    samplers = [gradients_of(settings, make()) for _ in rounds[0]]
    losses = []
    for unrolls in rounds:
        for _, parameters in samplers:
            load_flat(parameters, server.parameters)
        totals = [rollouts.begin(unroll) for (rollouts, _), unroll in zip(samplers, unrolls, strict=True)]
        if totals[0] is not None:
            shared = torch.stack([total for total in totals if total is not None]).sum(0)
            for rollouts, _ in samplers:
                rollouts.share(shared)
        for position in range(samplers[0][0].exchanges):
            made = [rollouts.gradient(position) for rollouts, _ in samplers]
            weight = sum(gradient.weight for gradient in made)
            mean = torch.stack([gradient.values * gradient.weight for gradient in made]).sum(0) / weight
            server.apply(mean, int(weight))
            losses.append(sum(gradient.terms["loss"] * gradient.weight for gradient in made) / weight)
            for _, parameters in samplers:
                load_flat(parameters, server.parameters)
    return server.parameters, losses


@pytest.mark.parametrize(
    "settings",
    [
        A2c(learning_rate=0.1, advantage_normalization=True, n_step=3),
        A2c(optimizer=ADAM, learning_rate=0.01, gae_lambda=0.9),
        Ppo(minibatches=1, optimizer=SGD, learning_rate=0.01),
    ],
    ids=["a2c, normalised, n-step", "a2c, adam, gae", "ppo, sgd"],
)
@pytest.mark.parametrize(
    ("action", "lstm"), [(DISCRETE, False), (CONTINUOUS, True)], ids=["categorical", "gaussian lstm"]
)
def test_samplers_learn_together_as_one_with_all_their_environments(
    settings: A2c | Ppo, action: spaces.Space, lstm: bool
) -> None:
    def make() -> Made:
        return make_network(action, lstm=lstm)

    unrolls = [make_unroll(*make(), seed=seed, batch=6) for seed in range(5)]
    for unroll in unrolls:
        unroll["valid"][2:, 1] = False  # so that the samplers have different numbers of steps
    shares = (slice(0, 2), slice(2, 3), slice(3, 6))

    one, losses = train(settings, [[unroll] for unroll in unrolls], make)
    rounds = [[environments_of(unroll, share) for share in shares] for unroll in unrolls]
    several, their_losses = train(settings, rounds, make)
    learner = rollout_learner(settings, make())
    mean_losses = [learner.step(rollouts)["loss"] for rollouts in rounds]

    for parameters in (several, learner.parameters):
        assert torch.allclose(parameters, one, rtol=1e-5, atol=1e-5)
    assert their_losses == pytest.approx(losses, rel=1e-4, abs=1e-4)
    assert mean_losses == pytest.approx(
        torch.tensor(losses).view(len(rounds), -1).mean(1).tolist(), rel=1e-4, abs=1e-4
    )
    assert not torch.allclose(one, flatten_parameters(make()[0]), atol=1e-2), "and they do learn"
