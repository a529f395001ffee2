"""Acting with convolutions in bfloat16 nearly equals the learning policy, on any CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.network import ImpalaCnn, Mlp, NatureCnn, Network
from rltraining_trainer.dataflow import flatten_parameters
from rltraining_trainer.networks import ActorCritic, build_actor_critic
from rltraining_trainer.networks.half_precision import (
    HalfPrecisionTorso,
    bfloat16_instructions,
    half_precision_torso,
)
from rltraining_trainer.world.blocks import processor

IMAGES = spaces.Box(0, 255, (4, 40, 44), np.uint8)
NETWORKS = [
    Network(nature_cnn=NatureCnn(hidden_size=32)),
    Network(impala_cnn=ImpalaCnn(channels=(4, 8), hidden_size=32)),
]


def made(network: Network, space: spaces.Space = IMAGES) -> ActorCritic:
    torch.manual_seed(0)
    return build_actor_critic(network, space, spaces.Discrete(3))[0]


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_features_are_nearly_those_of_the_torso_and_follow_its_parameters(network: Network) -> None:
    torso = made(network).torso
    half = HalfPrecisionTorso(torso)
    images = torch.randint(0, 256, (5, 4, 40, 44), dtype=torch.uint8)
    with torch.no_grad():
        for _ in range(2):
            expected, found = torso(images), half(images)
            assert found.dtype == torch.float32
            assert (found - expected).abs().max() < 0.03 * expected.abs().max()
            for parameter in torso.parameters():
                parameter.mul_(1.2)
            assert (half(images) - torso(images)).abs().max() > 0.1 * expected.abs().max(), "not yet"
            half.refresh()


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_acting_follows_each_update_and_leaves_the_network_as_it_is(network: Network) -> None:
    net = made(network)
    names, flat = [*net.state_dict()], flatten_parameters(net)
    images = torch.randint(0, 256, (5, 4, 40, 44), dtype=torch.uint8)
    with torch.no_grad():
        for _ in range(2):
            before = flat.clone()
            expected, _ = net.policy(images, ())
            found, _ = net.acting()(images, (), None)
            assert (found - expected).abs().max() < 0.03 * expected.abs().max()
            assert torch.equal(flat, before)
            flat += 0.003
    assert [*net.state_dict()] == names


def test_other_networks_have_no_such_copy() -> None:
    assert half_precision_torso(made(Network(mlp=Mlp())).torso) is None


@pytest.mark.parametrize(
    ("amx", "avx512_bf16", "found"),
    [(True, True, "AMX"), (False, True, "AVX512_BF16"), (False, False, "")],
)
def test_only_processors_with_instructions_for_bfloat16_act_in_it(
    amx: bool, avx512_bf16: bool, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    assert bfloat16_instructions() == found
    assert (half_precision_torso(made(NETWORKS[0]).torso) is not None) == bool(found)
    processor.cache_clear()
    assert processor().endswith(found or torch.backends.cpu.get_cpu_capability())
    processor.cache_clear()
