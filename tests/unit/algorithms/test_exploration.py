"""The schedules over environments, and the deviation and memory of the noise."""

from __future__ import annotations

import pytest
import torch
from rltraining_trainer.algorithms.exploration import (
    OU_THETA,
    GaussianNoise,
    OrnsteinUhlenbeckNoise,
    apex_epsilon,
    noise_scale,
)

PAPER = [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536]
"""The values of 8 actors, as in Acme, SEED RL and RLlib."""


def test_epsilon_falls_as_in_the_paper() -> None:
    assert apex_epsilon(0.4, 7.0, range(8), 8).tolist() == pytest.approx(PAPER, rel=1e-6)


def test_one_environment_has_the_base() -> None:
    assert apex_epsilon(0.4, 7.0, range(1), 1).tolist() == pytest.approx([0.4])
    assert noise_scale(0.3, 1.0, range(1), 1).tolist() == pytest.approx([0.3])


def test_environments_of_a_sampler_too_many_are_as_the_last() -> None:
    """After a scale-down, the indices of the samplers that are about to end exceed the number of samplers."""
    assert apex_epsilon(0.4, 7.0, range(7, 10), 8).tolist() == pytest.approx([PAPER[-1]] * 3, rel=1e-6)


@pytest.mark.parametrize(
    ("spread", "expected"),
    [(0.0, [0.3, 0.3, 0.3]), (1.0, [0.3, 0.3 * 10**-0.5, 0.03]), (2.0, [0.3, 0.03, 0.003])],
)
def test_noise_falls_by_powers_of_ten(spread: float, expected: list[float]) -> None:
    assert noise_scale(0.3, spread, range(3), 3).tolist() == pytest.approx(expected, rel=1e-6)


N = 20_000
NEVER, ALWAYS = torch.zeros(N, dtype=torch.bool), torch.ones(N, dtype=torch.bool)


@pytest.mark.parametrize(
    ("noise", "keep"), [(GaussianNoise(), 0.0), (OrnsteinUhlenbeckNoise(), 1 - OU_THETA)]
)
def test_noise_has_the_deviation_1_and_forgets_at_its_rate(
    noise: GaussianNoise | OrnsteinUhlenbeckNoise, keep: float
) -> None:
    torch.manual_seed(0)
    draws = [noise.draw((N, 2), ALWAYS)] + [noise.draw((N, 2), NEVER) for _ in range(5)]

    for step, draw in enumerate(draws):
        assert draw.std().item() == pytest.approx(1.0, abs=0.02), f"step {step}"
        assert draw.mean().item() == pytest.approx(0.0, abs=0.02), f"step {step}"
        assert (draw * draws[0]).mean().item() == pytest.approx(keep**step, abs=0.03), f"step {step}"


def test_drifting_noise_begins_anew_where_an_episode_begins() -> None:
    torch.manual_seed(0)
    noise = OrnsteinUhlenbeckNoise()
    before = noise.draw((N, 1), ALWAYS)
    first = torch.arange(N) % 2 == 0

    after = noise.draw((N, 1), first)

    assert (before * after)[first].mean().item() == pytest.approx(0.0, abs=0.03)
    assert (before * after)[~first].mean().item() == pytest.approx(1 - OU_THETA, abs=0.03)
