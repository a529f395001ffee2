"""A module and its flat vector share the same numbers, in both directions, including gradients."""

from __future__ import annotations

import pytest
import torch
from rltraining_trainer.dataflow import flatten_parameters, load_flat
from rltraining_trainer.dataflow.flat import frozen_positions, round_flat, slice_of
from torch import nn


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def test_the_vector_is_the_parameters_in_order() -> None:
    plain, module = network(), network()
    flat = flatten_parameters(module)

    expected = torch.cat([parameter.detach().flatten() for parameter in plain.parameters()])
    assert torch.equal(flat, expected)
    assert flat.is_contiguous()
    assert flat.is_leaf
    assert [name for name, _ in module.named_parameters()] == [name for name, _ in plain.named_parameters()]


def test_writing_one_is_writing_the_other() -> None:
    module = network()
    flat = flatten_parameters(module)

    load_flat(flat, torch.arange(flat.numel(), dtype=torch.float32))
    assert module[0].weight[0].tolist() == [0, 1, 2]
    with torch.no_grad():
        module[2].bias.fill_(-1)
    assert flat[-2:].tolist() == [-1, -1]


def test_gradients_and_steps_are_those_of_the_plain_module() -> None:
    plain, module = network(), network()
    flat = flatten_parameters(module)
    observations = torch.randn(7, 3)
    for network_ in (plain, module):
        network_(observations).square().sum().backward()
    with torch.no_grad():
        flat -= 0.01 * flat.grad
        for parameter in plain.parameters():
            parameter -= 0.01 * parameter.grad

    expected = torch.cat([parameter.detach().flatten() for parameter in plain.parameters()])
    assert torch.allclose(flat, expected, rtol=1e-6)
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_a_frozen_parameter_is_in_the_vector_and_has_no_gradient() -> None:
    module = network()
    module[0].requires_grad_(False)
    flat = flatten_parameters(module)
    module(torch.randn(4, 3)).sum().backward()

    assert flat.numel() == sum(parameter.numel() for parameter in module.parameters())
    assert flat.grad is not None
    assert not flat.grad[: 3 * 5 + 5].any()
    assert flat.grad[3 * 5 + 5 :].any()


def test_tied_parameters_are_in_the_vector_once() -> None:
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    module[1].weight = module[0].weight

    assert flatten_parameters(module).numel() == 9


def test_what_cannot_be_flattened_is_said() -> None:
    with pytest.raises(ValueError, match="Tanh has no parameters"):
        flatten_parameters(nn.Tanh())
    with pytest.raises(ValueError, match=r"parameter 0\.weight is torch\.float64"):
        flatten_parameters(network().double())


@pytest.mark.parametrize("values", [torch.zeros(3), torch.zeros(32, 1), torch.zeros(32, dtype=torch.float64)])
def test_values_of_another_network_are_refused(values: torch.Tensor) -> None:
    flat = flatten_parameters(network())
    before = flat.detach().clone()

    with pytest.raises(ValueError, match=r"the network has 32 parameters .* both sides need the same"):
        load_flat(flat, values)
    assert torch.equal(flat, before)


def test_rounded_parameters_keep_the_frozen_ones_exact() -> None:
    module = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    module[1].requires_grad_(False)
    flat = flatten_parameters(module)
    frozen = frozen_positions(flat)
    assert frozen is not None
    rounded = round_flat(flat.detach(), frozen)
    received = torch.zeros_like(flat)
    load_flat(received, rounded)

    assert torch.equal(received[:20], flat[:20].bfloat16().float())
    assert torch.equal(received[20:], flat[20:])
    with pytest.raises(ValueError, match="32 parameters"):
        load_flat(flat, round_flat(torch.zeros(7), torch.arange(0)))


def test_a_slice_is_a_view_that_knows_its_frozen_parameters() -> None:
    module = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    module[1].requires_grad_(False)
    flat = flatten_parameters(module)
    part = slice_of(flat, slice(18, 24))

    frozen = frozen_positions(part)
    assert frozen is not None
    assert frozen.tolist() == [2, 3, 4, 5]
    part.fill_(7)
    assert flat[18:24].tolist() == [7] * 6
    assert frozen_positions(torch.zeros(3)) is None
