"""Networks for observations of several parts, scaled arrays, images of all kinds, and masks of valid actions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.environment import Normalize
from rltraining_api.network import Network
from rltraining_trainer.environments.masks import fill_empty_masks
from rltraining_trainer.environments.pack_space import pack_space
from rltraining_trainer.environments.packed_space import PackedSpace
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.networks import build_actor_critic, build_deterministic, build_q_network
from rltraining_trainer.networks.encoders import OneHot, Scaled, image_encoder, vector_encoder
from rltraining_trainer.networks.torsos import SmallCnn
from rltraining_trainer.networks.unpack import MASKED, Unpack
from small_networks import IMPALA, MLP, NATURE, RECURRENT

TWO = spaces.Discrete(2)
VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


MANY = spaces.Dict(
    {
        "camera": image(40, 44, 3),
        "count": spaces.MultiDiscrete([2, 3]),
        "grid": image(7, 7, 3),
        "kind": spaces.Discrete(4, start=1),
        "lights": spaces.MultiBinary([2, 2]),
        "pose": VECTOR,
        "ram": spaces.Box(0, 255, (5,), np.uint8),
    }
)
VECTORS = spaces.Tuple([VECTOR, spaces.Discrete(3), spaces.Box(-1, 1, (), np.float64)])


def packed(space: spaces.Space, action: spaces.Space = TWO, *, in_info: bool = False) -> PackedSpace:
    found, _ = pack_space(space, action, mask_in_info=in_info)
    assert isinstance(found, PackedSpace)
    found.seed(5)
    return found


def rows(space: spaces.Space, batch: int) -> torch.Tensor:
    return torch.from_numpy(np.stack([space.sample() for _ in range(batch)]))


@pytest.mark.parametrize("network", [MLP, RECURRENT, NATURE, IMPALA], ids=lambda x: x.name)
def test_each_part_reaches_policy_and_value(network: Network) -> None:
    space = packed(MANY)
    actor_critic, _ = build_actor_critic(network, space, spaces.Discrete(2))
    observation = rows(space, 6)
    state = actor_critic.initial_state(6)
    parts = Unpack(space)(observation)
    before, value = actor_critic.policy(parts, state)[0], actor_critic.value(parts, state)
    torch.testing.assert_close(before, actor_critic.policy(observation, state)[0])
    for i, part in enumerate(space.parts):
        changed = [tensor.clone() for tensor in parts]
        low = getattr(part.space, "start", 0)
        changed[i] = changed[i] * 0 + torch.as_tensor(np.asarray(low)).to(changed[i])
        assert not torch.equal(actor_critic.policy(changed, state)[0], before), part.name
        assert not torch.equal(actor_critic.value(changed, state), value), part.name


@pytest.mark.parametrize("space", [MANY, VECTORS], ids=["bytes", "numbers"])
def test_rows_are_unpacked_as_they_were_packed(space: spaces.Space) -> None:
    found = packed(space)
    observation = rows(found, 9)
    for part, values in zip(found.parts, Unpack(found)(observation[1:]), strict=True):
        assert values.dtype == (torch.uint8 if part.is_bytes else torch.float32)
        expected = found.part_of(observation.numpy()[1:], part).reshape(8, *part.shape)
        np.testing.assert_array_equal(values.numpy(), expected)


def test_apex_networks_take_parts_too() -> None:
    space = packed(VECTORS)
    q_network, _ = build_q_network(MLP, space, spaces.Discrete(2), dueling=True)
    assert q_network(rows(space, 4)).shape == (4, 2)
    box = spaces.Box(-1, 1, (2,), np.float32)
    deterministic, _ = build_deterministic(MLP, space, box)
    observation = rows(space, 4)
    features = deterministic.critic_torso(observation)
    assert deterministic.value(features, deterministic.actor(observation)).shape == (4,)


def test_vectors_are_normalised_and_other_parts_are_not() -> None:
    space = packed(VECTORS)
    network, _ = build_actor_critic(MLP, space, spaces.Discrete(2), normalize=Normalize(observations=True))
    assert network.normalizer is not None
    assert network.normalizer.shape == (4,)
    observation = rows(space, 3)
    assert network.normalizer.vectors(observation.numpy()).tolist() == observation[:, :4].tolist()
    with torch.no_grad():
        network.normalizer.mean.copy_(observation[0, :4])
    encoded = network.torso.encode(observation)
    assert (encoded[0, :4] == 0).all()
    assert (encoded[:, 4:].sum(1) == 1).all(), "the discrete part as one-hot"


def test_a_network_of_the_users_gets_the_structure_of_the_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "user_parts.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def forward(self, x):\n"
        "        assert x['camera'].dtype == torch.uint8 and x['camera'].shape[1:] == (40, 44, 3)\n"
        "        assert x['kind'].dtype == torch.int64 and x['count'].shape[1:] == (2,)\n"
        "        return x['pose']\n"
        "def make(space):\n"
        "    assert list(space) == ['camera', 'count', 'grid', 'kind', 'lights', 'pose', 'ram']\n"
        "    return Net()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    network, _ = build_actor_critic(Network(entry_point="user_parts:make"), packed(MANY), spaces.Discrete(2))
    assert network.policy_head.in_features == 3
    remedy = r"set environment\.normalize: \{observations: false\}, or use network\.mlp"
    with pytest.raises(BadConfiguration, match=f"observations of Dict.* cannot be normalised .*{remedy}"):
        build_actor_critic(
            Network(entry_point="user_parts:make"),
            packed(MANY),
            spaces.Discrete(2),
            normalize=Normalize(observations=True),
        )


def test_integers_are_scaled_by_their_bounds() -> None:
    def scaled(space: spaces.Box, *values: float) -> list[float]:
        return Scaled(space.low, space.high)(torch.tensor([values])).flatten().tolist()

    assert scaled(spaces.Box(0, 255, (2,), np.uint8), 0, 255) == [0.0, 1.0]
    assert scaled(spaces.Box(10, 20, (2,), np.int64), 10, 20) == [0.0, 1.0]
    assert scaled(spaces.Box(-4, 2, (2,), np.int32), -4, 2) == [-1.0, 0.5]
    assert scaled(spaces.Box(0, 2**31 - 1, (1,), np.int32), 7) == [7.0], "bounds that are there for form"
    one_hot = OneHot(np.array([2, 3]), np.array([0, 5]))
    assert one_hot(torch.tensor([[1, 6]])).tolist() == [[0.0, 1.0, 0.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    "encode", [vector_encoder, lambda space: image_encoder(space)[0]], ids=["mlp", "cnn"]
)
def test_small_images_of_small_numbers_are_not_scaled_to_nothing(encode: Callable) -> None:
    """MiniGrid's bytes are below 11, although their space allows 255."""
    encoder = encode(image(7, 7, 3))
    grid = torch.randint(0, 11, (4, 7, 7, 3), dtype=torch.uint8)
    encoded = encoder(grid)
    torch.testing.assert_close(encoded.flatten(1).square().mean(1), torch.ones(4))
    torch.testing.assert_close(encoder(grid * 20), encoded), "whatever their scale"
    assert (encoder(torch.zeros(1, 7, 7, 3, dtype=torch.uint8)) == 0).all()


@pytest.mark.parametrize(
    ("space", "sizes"),
    [
        (image(40, 44), (1, 40, 44)),
        (spaces.Box(0, 1, (40, 44, 3), np.float32), (3, 40, 44)),
        (image(4, 40, 44, 3), (12, 40, 44)),
        (image(4, 3, 40, 44), (12, 40, 44)),
        (image(4, 40, 44), (4, 40, 44)),
    ],
    ids=str,
)
def test_images_of_all_kinds(space: spaces.Box, sizes: tuple[int, int, int]) -> None:
    found = image_encoder(space)
    assert found is not None
    encoder, shape = found
    observation = rows(space, 2)
    encoded = encoder(observation)
    assert (shape, encoded.shape) == (sizes, (2, *sizes))
    assert 0.0 <= encoded.min() < 0.1 < 0.9 < encoded.max() <= 1.0
    network, _ = build_actor_critic(NATURE, space, spaces.Discrete(2))
    assert network.value(observation, ()).shape == (2,)
    if len(space.shape) == 4 and space.shape[-1] == 3:
        torch.testing.assert_close(encoded[0, 4], observation[0, 1, :, :, 1] / 255), "frame 1, green"


@pytest.mark.parametrize("in_info", [False, True])
@pytest.mark.parametrize("action", [spaces.Discrete(6), spaces.MultiDiscrete([2, 4])], ids=str)
def test_invalid_actions_have_probability_zero_everywhere(action: spaces.Space, in_info: bool) -> None:
    space = packed(
        VECTOR if in_info else spaces.Dict({"x": VECTOR, "action_mask": spaces.MultiBinary(6)}),
        action,
        in_info=in_info,
    )
    for network in (MLP, RECURRENT):
        actor_critic, distribution = build_actor_critic(network, space, action)
        observation = rows(space, 500)
        assert space.mask is not None
        valid = torch.from_numpy(space.part_of(observation.numpy(), space.mask) != 0)
        assert not valid.all()
        state = actor_critic.initial_state(500)
        for act in (actor_critic.policy, actor_critic.acting()):
            parameters, _ = act(observation, state, None)
            assert ((parameters == MASKED) == ~valid).all()
        unrolled, values = actor_critic.unroll(
            observation.unflatten(0, (5, 100)),
            actor_critic.initial_state(100),
            torch.zeros(5, 100, dtype=torch.bool),
        )
        assert ((unrolled.flatten(0, 1) == MASKED) == ~valid).all()
        drawn = distribution.sample(parameters, distribution.noise(500))
        columns = drawn.view(500, -1) + torch.tensor(
            [0, 2] if isinstance(action, spaces.MultiDiscrete) else [0]
        )
        assert valid.gather(1, columns).all()
        log_prob, entropy = distribution.log_prob_and_entropy(parameters, drawn)
        (log_prob.sum() + entropy.sum() + values.sum()).backward()
        assert all(
            torch.isfinite(parameter.grad).all()
            for parameter in actor_critic.parameters()
            if parameter.grad is not None
        )


def test_a_q_network_masks_the_values_of_invalid_actions_only() -> None:
    space = packed(VECTOR, spaces.Discrete(4), in_info=True)
    network, _ = build_q_network(MLP, space, spaces.Discrete(4), dueling=True)
    observation = rows(space, 500)
    assert space.mask is not None
    valid = torch.from_numpy(space.part_of(observation.numpy(), space.mask) != 0)
    everything = observation.clone()
    space.part_of(everything.numpy(), space.mask)[:] = 1

    values = network(observation)

    assert torch.equal(values, network(everything).masked_fill(~valid, MASKED))
    assert not valid.all()


def test_a_mask_for_several_factors_needs_a_valid_choice_in_each() -> None:
    space = packed(VECTOR, spaces.MultiDiscrete([2, 3]), in_info=True)
    good, bad = np.array([[1, 0, 0, 0, 1]]), np.array([[1, 1, 0, 0, 0]])
    rows = space.pack(np.zeros((2, 3)), 2, np.concatenate((good, bad)))
    errors = fill_empty_masks(space, rows)
    assert list(errors) == [1]
    assert "in environment 1 of this process factor 1 has no valid choice" in str(errors[1])
    assert space.mask is not None
    assert space.part_of(rows, space.mask).tolist() == [good[0].tolist(), [1] * 5]


def test_convolutions_need_an_image_among_the_parts() -> None:
    with pytest.raises(
        BadConfiguration, match=r"natureCnn: it needs images, but the observations contain none"
    ):
        build_actor_critic(NATURE, packed(VECTORS), spaces.Discrete(2))


@pytest.mark.parametrize(("side", "weights"), [(7, 49 * 32 * 64), (24, 36 * 32 * 64)])
def test_a_small_image_does_not_get_millions_of_weights(side: int, weights: int) -> None:
    torso = SmallCnn(3, side, side, 64)
    assert torso(torch.zeros(2, 3, side, side)).shape == (2, 64)
    assert max(parameter.numel() for parameter in torso.parameters()) == weights
