"""Convolutions in bfloat16 while gradients are computed, and in float32 otherwise."""

from __future__ import annotations

import copy
from typing import Literal

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.network import ImpalaCnn, Mlp, NatureCnn, Network
from rltraining_trainer.dataflow import flatten_parameters
from rltraining_trainer.environments.pack_space import pack_space
from rltraining_trainer.networks import QNetwork, build_actor_critic, build_q_network
from torch import Tensor

IMAGES = spaces.Box(0, 255, (4, 40, 44), np.uint8)
Precision = Literal["Float32", "BFloat16"]


def nature(precision: Precision) -> Network:
    return Network(nature_cnn=NatureCnn(hidden_size=32, gradient_precision=precision))


def impala(precision: Precision) -> Network:
    cnn = ImpalaCnn(channels=(4, 8), hidden_size=32, gradient_precision=precision)
    return Network(impala_cnn=cnn)


def images() -> Tensor:
    return torch.randint(0, 256, (1, 5, 4, 40, 44), dtype=torch.uint8)


@pytest.mark.parametrize("make", [nature, impala])
def test_gradients_nearly_equal_those_in_float32(make) -> None:
    gradients, observations = [], images()
    for precision in ("Float32", "BFloat16"):
        torch.manual_seed(0)
        network, _ = build_actor_critic(make(precision), IMAGES, spaces.Discrete(3))
        flat = flatten_parameters(network)
        parameters, values = network.unroll(observations, (), torch.zeros(1, 5, dtype=torch.bool))
        assert parameters.dtype == values.dtype == torch.float32
        (parameters.square().sum() + values.sum()).backward()
        assert flat.grad is not None
        assert flat.grad.dtype == torch.float32
        gradients.append(flat.grad)
    exact, rounded = gradients
    assert not torch.equal(exact, rounded), "the gradients were not computed in bfloat16"
    assert (exact - rounded).norm() < 0.04 * exact.norm()


@pytest.mark.parametrize("make", [nature, impala])
def test_without_gradients_the_precision_does_not_matter(make) -> None:
    found, observations = [], images()[0]
    for precision in ("Float32", "BFloat16"):
        torch.manual_seed(0)
        network, _ = build_actor_critic(make(precision), IMAGES, spaces.Discrete(3))
        with torch.no_grad():
            found.append(network.policy(observations, ())[0])
    assert torch.equal(*found)


def test_a_dueling_network_keeps_the_precision_of_its_convolutions() -> None:
    found, observations = [], images()[0]
    for precision in ("Float32", "BFloat16"):
        torch.manual_seed(0)
        network, _ = build_q_network(nature(precision), IMAGES, spaces.Discrete(3), dueling=True)
        copied: QNetwork = copy.deepcopy(network)  # as for the target network
        with torch.no_grad():
            assert torch.equal(network(observations), copied(observations))
        assert torch.equal(network(observations), copied(observations))
        found.append(copied(observations))
    assert found[0].dtype == found[1].dtype == torch.float32
    assert not torch.equal(*found), "the values were not computed in bfloat16"
    assert torch.allclose(*found, atol=0.02)


def test_the_convolutions_of_a_small_image_have_the_precision() -> None:
    parts = spaces.Dict({"grid": spaces.Box(0, 255, (7, 7, 3), np.uint8), "kind": spaces.Discrete(4)})
    space, _ = pack_space(parts, spaces.Discrete(3), mask_in_info=False)
    space.seed(5)
    found, observations = [], torch.from_numpy(np.stack([space.sample() for _ in range(4)]))
    for precision in ("Float32", "BFloat16"):
        torch.manual_seed(0)
        network, _ = build_q_network(nature(precision), space, spaces.Discrete(3), dueling=False)
        found.append(network(observations))
    assert found[0].dtype == found[1].dtype == torch.float32
    assert not torch.equal(*found), "the values were not computed in bfloat16"
    assert torch.allclose(*found, atol=0.02)


def test_only_convolutional_networks_have_a_precision() -> None:
    with pytest.raises(ValueError, match="gradientPrecision"):
        Network(mlp=Mlp(gradientPrecision="BFloat16"))  # type: ignore[call-arg]
