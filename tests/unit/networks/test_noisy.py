"""Layers with noise on their parameters follow the equations of NoisyNet, and only while they train."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.network import Mlp, Network
from rltraining_trainer.networks import build_q_network
from rltraining_trainer.networks.noisy import NoisyLinear, separate_noise
from torch import Tensor, nn

INPUTS, OUTPUTS, ROWS = 5, 3, 4


def layer() -> NoisyLinear:
    torch.manual_seed(0)
    found = NoisyLinear(INPUTS, OUTPUTS)
    for parameter in found.parameters():
        nn.init.normal_(parameter)
    return found


def f(noise: Tensor) -> Tensor:
    return torch.tensor([math.copysign(abs(each) ** 0.5, each) for each in noise.tolist()])


@pytest.mark.parametrize("separate", [True, False])
def test_the_noise_of_parameters_is_factorised(separate: bool) -> None:
    """Builds the weights of each row as in equations 10 and 11: f(η_i) f(ξ_j) for weights, and f(η_i) for biases."""
    noisy, rows = layer(), torch.randn(ROWS, INPUTS)
    if separate:
        separate_noise(noisy)
    torch.manual_seed(7)
    count = ROWS if separate else 1
    ins, outs = (torch.randn(count, size).expand(ROWS, size) for size in (INPUTS, OUTPUTS))
    wanted = []
    for row, inner, outer in zip(rows, ins, outs, strict=True):
        weight = noisy.weight + noisy.weight_deviation * torch.outer(f(outer), f(inner))
        wanted.append(weight @ row + noisy.bias + noisy.bias_deviation * f(outer))
    torch.manual_seed(7)

    found = noisy(rows)

    assert torch.allclose(found, torch.stack(wanted), atol=1e-5)
    assert not torch.allclose(noisy(rows), found), "the next noise differs"


def test_the_gradient_reaches_means_and_deviations() -> None:
    noisy, rows = layer(), torch.randn(ROWS, INPUTS)
    torch.manual_seed(7)
    noisy(rows).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().min() > 0 for p in noisy.parameters())
    # Compare with the difference quotient of one deviation, with the same noise.
    assert noisy.weight_deviation.grad is not None
    step, losses = 1e-2, []
    for sign in (1, -1):
        moved = copy.deepcopy(noisy)
        with torch.no_grad():
            moved.weight_deviation[1, 2] += sign * step
        torch.manual_seed(7)
        losses.append(moved(rows).square().sum().item())
    slope = (losses[0] - losses[1]) / (2 * step)
    assert slope == pytest.approx(noisy.weight_deviation.grad[1, 2].item(), rel=0.01)


def test_an_evaluated_layer_has_no_noise() -> None:
    noisy, rows = layer(), torch.randn(ROWS, INPUTS)
    assert torch.equal(noisy.eval()(rows), nn.functional.linear(rows, noisy.weight, noisy.bias))


def test_the_deviations_begin_as_published() -> None:
    noisy = NoisyLinear(16, 2)
    assert noisy.weight_deviation.tolist() == [[0.125] * 16] * 2
    assert noisy.bias_deviation.tolist() == [0.125] * 2


@pytest.mark.parametrize(("dueling", "count"), [(True, 4), (False, 1)])
def test_the_layers_after_the_torso_are_noisy(dueling: bool, count: int) -> None:
    network = Network(mlp=Mlp(hidden_sizes=(8, 7)))
    box, actions = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3)
    q_network, _ = build_q_network(network, box, actions, dueling=dueling, noisy=True)
    assert sum(isinstance(module, NoisyLinear) for module in q_network.head.modules()) == count
    assert not any(isinstance(module, NoisyLinear) for module in q_network.torso.modules())
    observation = torch.randn(2, 3)
    assert not torch.equal(q_network(observation), q_network(observation))
    assert torch.equal(q_network.eval()(observation), q_network(observation))
