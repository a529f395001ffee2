"""spec.network and spaces: matching specs are built, others are rejected in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.network import Gaussian, Mlp, Network
from rltraining_trainer.errors import BadConfiguration, TrainerError, UserCodeError
from rltraining_trainer.networks import SquashedGaussian, build_actor_critic
from small_networks import IMPALA, MLP, NATURE, RECURRENT, as_stored

TWO = spaces.Discrete(2)


def box(*shape: int, dtype: type = np.float32) -> spaces.Box:
    floating = np.issubdtype(dtype, np.floating)
    return spaces.Box(-1 if floating else 0, 1 if floating else 255, shape, dtype)


@pytest.mark.parametrize(
    ("network", "space"),
    [
        (MLP, box(3)),
        (RECURRENT, box(3)),
        (MLP, box()),
        (MLP, box(2, 3, 4)),
        (MLP, box(3, dtype=np.float64)),
        (MLP, box(3, dtype=np.float16)),
        (MLP, box(3, dtype=np.uint8)),
        (MLP, box(3, dtype=np.int64)),
        (MLP, spaces.Box(0, 1, (3,), bool)),
        (MLP, spaces.Discrete(4, start=-2)),
        (MLP, spaces.MultiDiscrete([3, 4], start=[1, 0])),
        (MLP, spaces.MultiBinary([2, 3])),
        (NATURE, box(84, 84, 4, dtype=np.uint8)),
        (NATURE, box(4, 84, 84, dtype=np.uint8)),
        (NATURE, box(36, 50, 1, dtype=np.uint8)),
        (IMPALA, box(72, 96, 3, dtype=np.uint8)),
        (IMPALA, box(3, 9, 9, dtype=np.uint8)),
    ],
    ids=lambda x: x.name if isinstance(x, Network) else f"{x.dtype}{x.shape}",
)
def test_what_fits_is_built(network: Network, space: spaces.Space) -> None:
    actor_critic, distribution = build_actor_critic(network, space, TWO)

    state = actor_critic.initial_state(6)
    parameters, state = actor_critic.policy(as_stored(space, 6), state, torch.ones(6, dtype=torch.bool))
    assert parameters.shape == (6, distribution.parameter_size)
    assert parameters.dtype == torch.float32
    assert [part.shape for part in state] == ([(6, 5)] * 2 if network.lstm else [])
    assert actor_critic.value(as_stored(space, 6), state).shape == (6,)
    # An exported policy returns the space's own type.
    own = torch.from_numpy(np.stack([np.asarray(space.sample()) for _ in range(6)]))
    assert torch.isfinite(actor_critic.policy(own, state)[0]).all()


def test_the_first_policy_is_nearly_uniform() -> None:
    network, _ = build_actor_critic(MLP, box(3), spaces.Discrete(4))
    logits, _ = network.policy(as_stored(box(3), 50), ())

    assert torch.allclose(logits.softmax(-1), torch.tensor(0.25), atol=0.02)


def test_pixels_are_scaled_and_channels_found() -> None:
    last, first = box(84, 60, 3, dtype=np.uint8), box(3, 84, 60, dtype=np.uint8)
    networks = []
    for space in (last, first):
        torch.manual_seed(0)
        networks.append(build_actor_critic(NATURE, space, TWO)[0])
    image = torch.randint(0, 256, (2, 84, 60, 3), dtype=torch.uint8)

    with torch.no_grad():
        a = networks[0].value(image, ())
        b = networks[1].value(image.permute(0, 3, 1, 2), ())
        black = networks[0].torso[0](torch.zeros(1, 84, 60, 3, dtype=torch.uint8))
        white = networks[0].torso[0](torch.full((1, 84, 60, 3), 255, dtype=torch.uint8))
        stacked = networks[1].torso[0](torch.zeros(2, 3, 84, 60, dtype=torch.uint8))
    assert stacked.is_contiguous(memory_format=torch.channels_last), "as convolutions are fastest"
    assert torch.equal(a, b), "the order of axes makes no difference"
    assert (black.max(), white.min()) == (0.0, 1.0)


LONG = spaces.Dict({"a": spaces.Box(-np.arange(1, 60, dtype=np.float32), 1, (59,)), "b": TWO})


@pytest.mark.parametrize(
    ("network", "observation", "action", "sentence"),
    [
        (
            MLP,
            spaces.Dict({"a": box(2)}),
            TWO,
            r"spec\.environment: observations of Dict\('a': .*\) are not arrays of numbers; "
            r"wrap the environment \(environment\.wrappers: \[\{name: FlattenObservation\}\]\)",
        ),
        (
            MLP,
            LONG,
            TWO,
            r"spec\.environment: observations of Dict\(.* \.\.\. are not arrays of numbers; wrap .*",
        ),
        (
            MLP,
            spaces.Text(3),
            TWO,
            r"spec\.environment: observations of Text\(.* are not arrays of numbers; wrap .*",
        ),
        (
            NATURE,
            box(4),
            TWO,
            r"spec\.network\.natureCnn: it needs images, a Box \[height, width, channels\] or a stack of them, but the "
            r"observations are Box\(-1\.0, 1\.0, \(4,\), float32\); use network\.mlp or network\.entryPoint",
        ),
        (IMPALA, spaces.Discrete(3), TWO, r"spec\.network\.impalaCnn: it needs images, .*Discrete\(3\).*"),
        (
            NATURE,
            box(20, 30, 3, dtype=np.uint8),
            TWO,
            r"spec\.network\.natureCnn: images of 20 x 30 are too small for it; "
            r"use a smaller network or larger images",
        ),
        (
            MLP,
            box(3),
            spaces.Dict({"a": TWO, "b": spaces.Text(2)}),
            r"spec\.environment: actions of Dict\(.*\) are not supported; use Discrete, MultiDiscrete, "
            r"MultiBinary, a Box of floats, or a Dict or Tuple of these, or wrap the environment "
            r"\(environment\.wrappers\)",
        ),
        (MLP, box(3), box(2, dtype=np.int32), r"spec\.environment: actions of Box\(.*int32\) are not .*"),
        (
            MLP,
            spaces.Box(0, np.iinfo(np.int64).max, (4,), np.int64),
            TWO,
            r"spec\.environment: observations of Box\(0, 9223372036854775807, \(4,\), int64\) cannot be sampled \(.*\); "
            r"give the space narrower bounds, or none: -numpy\.inf and numpy\.inf",
        ),
        (
            MLP,
            spaces.Box(-np.finfo(np.float64).max, np.finfo(np.float64).max, (4,), np.float64),
            TWO,
            r"spec\.environment: observations of Box\(.*, float64\) cannot be sampled \(.*\); .*",
        ),
        (
            MLP,
            box(3, dtype=np.longdouble),
            TWO,
            r"spec\.environment: torch does not support the type of observations of Box\(.*; use float32",
        ),
        (
            MLP,
            box(3),
            box(2, dtype=np.longdouble),
            r"spec\.environment: actions of Box\(.* are not supported; .*",
        ),
        (
            MLP,
            spaces.Discrete(10**9),
            TWO,
            r"spec\.environment: observations of Discrete\(1000000000\) need 1,000,000,000 inputs of the network, "
            r"one for each value \(at most 1,000,000\); return them as a Box of numbers instead",
        ),
    ],
    ids=range(13),
)
def test_what_does_not_fit_is_one_sentence(
    network: Network, observation: spaces.Space, action: spaces.Space, sentence: str
) -> None:
    with pytest.raises(BadConfiguration) as caught:
        build_actor_critic(network, observation, action)

    assert re.fullmatch(sentence, str(caught.value)), str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.fixture
def entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable:
    """``entry_point(source)`` writes user code and returns ``spec.network`` with its function ``make``."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"user_net_{abs(hash(request.node.name))}"

    def write(source: str, factory: str = "make") -> Network:
        (tmp_path / f"{name}.py").write_text(f"import torch\nfrom torch import nn\n{source}\n")
        return Network(entry_point=f"{name}:{factory}")

    return write


GOOD = "def make(space): return nn.Sequential(nn.Flatten(), nn.LazyLinear(9), nn.ReLU())"


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_a_network_of_the_users_is_given_float32(entry_point: Callable, dtype: type) -> None:
    space = box(2, 3, dtype=dtype)
    network, _ = build_actor_critic(entry_point(GOOD), space, TWO)

    assert network.policy_head.in_features == 9
    assert network.value(as_stored(space, 4), ()).shape == (4,)


def test_a_network_of_the_users_gets_integers_as_they_are(entry_point: Callable) -> None:
    source = (
        "class Net(nn.Module):\n"
        "    def forward(self, x):\n"
        "        assert x.dtype == torch.uint8\n"
        "        return x.flatten(1).float()\n"
        "def make(space): return Net()"
    )
    network, _ = build_actor_critic(entry_point(source), box(2, 3, dtype=np.uint8), TWO)

    assert network.policy_head.in_features == 6


@pytest.mark.parametrize(
    ("source", "kind", "sentence"),
    [
        (
            "1/0",
            UserCodeError,
            r"spec\.network\.entryPoint: importing '\w+' raised ZeroDivisionError: .* \(\w+\.py, line \d\)",
        ),
        ("", UserCodeError, r"spec\.network\.entryPoint: module '\w+' has no 'make'"),
        (
            "def make(space): raise KeyError('x')",
            UserCodeError,
            r"spec\.network\.entryPoint: \w+:make\(observation_space\) raised KeyError: 'x' \(\w+\.py, line \d\)",
        ),
        ("make = 3", UserCodeError, r".*:make\(observation_space\) raised TypeError: 'int' object .*"),
        (
            "def make(space): return 3",
            UserCodeError,
            r".*:make must return a torch\.nn\.Module, got int",
        ),
        (
            "def make(space): return nn.BatchNorm1d(4)",
            UserCodeError,
            r"spec\.network\.entryPoint: \w+:make has buffers \(as BatchNorm does\), .*LayerNorm",
        ),
        (
            "def make(space): return nn.Linear(5, 5)",
            UserCodeError,
            r"spec\.network\.entryPoint: the network does not fit observations of Box\(.*\): it raised "
            r"RuntimeError: mat1 and mat2 shapes cannot be multiplied.*",
        ),
        (
            "def make(space): return nn.Unflatten(1, (3, 1))",
            BadConfiguration,
            r"spec\.network\.entryPoint: the network must map observations \[N, \.\.\.\] to features \[N, F\] of "
            r"torch\.float32, but mapped \(2, 3\) to \(2, 3, 1\) of torch\.float32",
        ),
        (
            "class Net(nn.Module):\n    def forward(self, x): return x.double()\ndef make(space): return Net()",
            BadConfiguration,
            r".*but mapped \(2, 3\) to \(2, 3\) of torch\.float64",
        ),
        (
            "class Net(nn.Module):\n    def forward(self, x): return x, x\ndef make(space): return Net()",
            BadConfiguration,
            r".*but mapped \(2, 3\) to a tuple",
        ),
    ],
    ids=range(10),
)
def test_a_network_of_the_users_that_does_not_fit_is_one_sentence(
    entry_point: Callable, source: str, kind: type[TrainerError], sentence: str
) -> None:
    with pytest.raises(kind) as caught:
        build_actor_critic(entry_point(source), box(3), TWO)

    first, _, trace = str(caught.value).partition("\n")
    assert re.fullmatch(sentence, first), first
    assert "raised" not in first or "Traceback" in trace, "a traceback follows what was raised"


def test_a_network_of_the_users_needs_observations_that_are_one_array(entry_point: Callable) -> None:
    with pytest.raises(
        BadConfiguration, match=r"entryPoint: observations of Dict\(.* are not arrays of numbers; wrap"
    ):
        build_actor_critic(entry_point(GOOD), LONG, TWO)


@pytest.mark.parametrize("error", ["RuntimeError", "SystemExit"])
def test_what_a_network_of_the_users_raises_later_is_theirs(entry_point: Callable, error: str) -> None:
    """Errors while acting, and in the learner's batches, which are larger than the checked batch."""
    source = (
        "class Net(nn.Module):\n"
        "    def forward(self, x):\n"
        f"        if len(x) > 2: raise {error}('too many')\n"
        "        return x\n"
        "def make(space): return Net()"
    )
    network, _ = build_actor_critic(entry_point(source), box(3), TWO)
    for act in (network.policy, network.acting()):
        act(torch.zeros(2, 3), (), None)
        with pytest.raises(UserCodeError) as caught:
            act(torch.zeros(3, 3), (), None)
        first, _, trace = str(caught.value).partition("\n")
        assert re.fullmatch(
            rf"spec\.network\.entryPoint: the network of \w+:make raised {error}: too many \(\w+\.py, line \d\)",
            first,
        ), first
        assert f"raise {error}('too many')" in trace


def test_a_gaussian_begins_and_is_squashed_as_its_settings_say() -> None:
    observation, action = spaces.Box(-1, 1, (3,)), spaces.Box(-2, 2, (2,))
    network = Network(mlp=Mlp(), gaussian=Gaussian(initial_log_std=-1.5, squash="Tanh"))
    actor_critic, distribution = build_actor_critic(network, observation, action)
    assert actor_critic.log_std is not None
    assert actor_critic.log_std.tolist() == [-1.5, -1.5]
    assert isinstance(distribution, SquashedGaussian)
    with pytest.raises(BadConfiguration, match=r"gaussian\.squash: Tanh needs actions with bounds"):
        build_actor_critic(network, observation, spaces.Box(-np.inf, np.inf, (2,)))


@pytest.mark.parametrize(
    ("settings", "initial"),
    [({"max_log_std": -0.5}, -0.5), ({"min_log_std": -1.0, "initial_log_std": -2.0}, -1.0)],
)
def test_a_gaussian_begins_within_its_bounds(settings: dict[str, float], initial: float) -> None:
    network = Network(mlp=Mlp(), gaussian=Gaussian(**settings))
    actor_critic, _ = build_actor_critic(network, spaces.Box(-1, 1, (3,)), spaces.Box(-2, 2, (1,)))
    assert actor_critic.log_std is not None
    assert actor_critic.log_std.tolist() == [initial]
