"""Targets and losses by hand, and against torch's own."""

from __future__ import annotations

import torch
from rltraining_trainer.algorithms.q_learning import double_q_target, huber_loss, squared_loss

RETURNS = torch.tensor([1.0, 2.0, -1.0])
DISCOUNTS = torch.tensor([0.5, 0.0, 0.9])
TARGET_NETWORK = torch.tensor([[4.0, 10.0], [5.0, 6.0], [1.0, -2.0]])
NETWORK = torch.tensor([[3.0, 2.0], [0.0, 1.0], [7.0, 8.0]])


def test_double_q_values_the_networks_choice_by_the_target_network() -> None:
    found = double_q_target(RETURNS, DISCOUNTS, TARGET_NETWORK, NETWORK)

    assert torch.equal(found, torch.tensor([1 + 0.5 * 4, 2.0, -1 + 0.9 * -2]))


def test_plain_q_learning_takes_the_target_networks_best() -> None:
    found = double_q_target(RETURNS, DISCOUNTS, TARGET_NETWORK, TARGET_NETWORK)

    assert torch.allclose(found, torch.tensor([1 + 0.5 * 10, 2.0, -1 + 0.9 * 1]))


def test_losses_are_torchs_and_their_slopes_those_of_autograd() -> None:
    errors = torch.cat((torch.linspace(-3, 3, 61), torch.tensor([-1.0, 1.0, 1e10])))
    for ours, theirs in (
        (huber_loss, torch.nn.functional.huber_loss),
        (squared_loss, lambda a, b, reduction: 0.5 * torch.nn.functional.mse_loss(a, b, reduction=reduction)),
    ):
        wanted = errors.clone().requires_grad_()
        expected = theirs(wanted, torch.zeros_like(errors), reduction="none")
        (slope,) = torch.autograd.grad(expected.sum(), wanted)

        loss, found = ours(errors)

        assert torch.allclose(loss, expected)
        assert torch.allclose(found, slope)
