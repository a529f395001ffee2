"""spec.environment.wrappers wrap each single environment in order; errors are one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from rltraining_api.environment import Environment, Wrapper
from rltraining_trainer.environments import Stepper, make_environments
from rltraining_trainer.errors import BadConfiguration, UserCodeError

STACK = {"name": "FrameStackObservation", "kwargs": {"stack_size": 4}}
MINE = """
import gymnasium as gym

class Shift(gym.ObservationWrapper):
    def __init__(self, env, by=100.0):
        super().__init__(env)
        self.by = by
    def observation(self, observation):
        return observation + self.by

class Broken(gym.Wrapper):
    def __init__(self, env):
        raise RuntimeError("no simulator here")

class Careless(gym.Wrapper):
    def __init__(self, env, port=None):
        super().__init__(env)
        self.port = int(port)

def nothing(env):
    return None
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Yields the name of a user's module with wrappers."""
    name = f"user_wrappers_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def environment(*wrappers: dict[str, Any], id: str = "CartPole-v1", **fields: Any) -> Environment:
    made = tuple(Wrapper.model_validate(wrapper) for wrapper in wrappers)
    return Environment(id=id, wrappers=made, **fields)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_wrappers_are_applied_in_their_order_to_each_environment(num_envs: int, module: str) -> None:
    """CartPole also has a vector_entry_point, to which wrappers of single environments do not apply."""
    flat = {"name": "FlattenObservation"}
    shift = {"entryPoint": f"{module}:Shift", "kwargs": {"by": 1000.0}}
    stepper = Stepper(make_environments(environment(shift, STACK, flat), num_envs), "CartPole-v1")

    observation = stepper.reset(0)
    assert observation.shape == (num_envs, 16)
    stepper.step(np.zeros(num_envs, np.int64))
    observation = stepper.step(np.ones(num_envs, np.int64)).observation
    frames = observation.reshape(num_envs, 4, 4)
    assert (frames > 990).all(), "each frame was shifted before it was stacked"
    assert (frames[:, 2] != frames[:, 3]).any(), "a stack of frames that follow each other"
    stepper.close()


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize(
    ("wrappers", "kind", "sentence"),
    [
        (
            [{"name": "FrameStackObservations"}],
            BadConfiguration,
            r"spec\.environment\.wrappers\[0\]\.name: gymnasium\.wrappers has no 'FrameStackObservations'; did you mean "
            r"FrameStackObservation\?",
        ),
        (
            [{"name": "vector"}],
            BadConfiguration,
            r"spec\.environment\.wrappers\[0\]\.name: gymnasium\.wrappers has no 'vector'; they are: AtariPreprocessing, .*",
        ),
        (
            [STACK, {"name": "FrameStackObservation", "kwargs": {"size": 4}}],
            BadConfiguration,
            r"spec\.environment\.wrappers\[1\]\.kwargs: FrameStackObservation does not take them: TypeError: .*'size'.*",
        ),
        (
            [{"name": "GrayscaleObservation"}],
            BadConfiguration,
            r"spec\.environment\.wrappers\[0\]: GrayscaleObservation does not fit the environment: ValueError: .*",
        ),
        (
            [{"name": "NormalizeObservation"}],
            BadConfiguration,
            r"spec\.environment\.wrappers\[0\]\.name: NormalizeObservation cannot be used: .*; use "
            r"environment\.normalize\.observations",
        ),
        (
            [{"entryPoint": "no_such_wrappers:Mine"}],
            UserCodeError,
            r"spec\.environment\.wrappers\[0\]\.entryPoint: importing 'no_such_wrappers' raised ModuleNotFoundError: .*",
        ),
        (
            [{"entryPoint": "MODULE:Absent"}],
            UserCodeError,
            r"spec\.environment\.wrappers\[0\]\.entryPoint: module '\w+' has no 'Absent' that can be called",
        ),
        (
            [{"entryPoint": "MODULE:Broken"}],
            UserCodeError,
            r"spec\.environment\.wrappers\[0\]: \w+:Broken\(environment\) raised RuntimeError: no simulator here "
            r"\(\w+\.py, line 13\)",
        ),
        (
            [{"entryPoint": "MODULE:Careless"}],
            UserCodeError,
            r"spec\.environment\.wrappers\[0\]: \w+:Careless\(environment\) raised TypeError: int\(\) argument .*"
            r"\(\w+\.py, line 18\)",
        ),
        (
            [{"entryPoint": "MODULE:Careless", "kwargs": {"prot": 1}}],
            BadConfiguration,
            r"spec\.environment\.wrappers\[0\]\.kwargs: \w+:Careless does not take them: TypeError: .*'prot'",
        ),
        (
            [{"entryPoint": "MODULE:nothing"}],
            UserCodeError,
            r"spec\.environment\.wrappers\[0\]: \w+:nothing must return a gymnasium\.Env, got NoneType",
        ),
    ],
    ids=range(11),
)
def test_an_unusable_wrapper_is_reported_in_one_sentence(
    num_envs: int, wrappers: list[dict[str, Any]], kind: type[Exception], sentence: str, module: str
) -> None:
    wrappers = [
        {
            key: value.replace("MODULE", module) if isinstance(value, str) else value
            for key, value in item.items()
        }
        for item in wrappers
    ]
    with pytest.raises(kind) as caught:
        make_environments(environment(*wrappers), num_envs)

    first = str(caught.value).partition("\n")[0]
    assert re.fullmatch(sentence, first), first


def test_an_environment_that_is_vectorised_only_cannot_be_wrapped(
    unregistered: Callable[[str], None],
) -> None:
    gym.register("Batch-v0", vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv")
    unregistered("Batch-v0")
    with pytest.raises(
        BadConfiguration, match=r"wrappers: .* 'Batch-v0' has only a vector_entry_point; wrap"
    ):
        make_environments(environment(STACK, id="Batch-v0"), 2)


@pytest.fixture
def unregistered(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """``unregistered(id)``: removes the environment after the test."""
    return lambda id: request.addfinalizer(lambda: gym.registry.pop(id))
