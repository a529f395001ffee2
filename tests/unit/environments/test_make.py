"""From spec.environment to a vector environment, and the errors of environments that cannot be made."""

from __future__ import annotations

import re
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rltraining_api.environment import Environment
from rltraining_api.extras import install_command
from rltraining_trainer.environments import Stepper, make_environments, make_spaces
from rltraining_trainer.errors import BadConfiguration, TrainerError, UserCodeError

MINE = """
import gymnasium as gym
import numpy as np
from gymnasium import spaces

class Mine(gym.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, size=1, render_mode=None):
        self.size, self.render_mode = size, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """``user_module(source)`` writes an importable module of user code and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)
    registered, modules = dict(gym.registry), set(sys.modules)

    def write(source: str) -> str:
        name = f"user_{uuid.uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(source.replace("__MODULE__", name))
        return name

    yield write
    gym.registry.clear()
    gym.registry.update(registered)
    for name in set(sys.modules) - modules:
        if name.startswith("user_"):
            del sys.modules[name]


def refusal(spec: Environment) -> TrainerError:
    """Returns the error for two environments. The error for one environment is the same."""
    with pytest.raises(TrainerError) as caught:
        make_environments(spec, 2)
    with pytest.raises(type(caught.value)) as of_one:
        make_environments(spec, 1)
    assert first_line(of_one.value) == first_line(caught.value)
    return caught.value


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def test_an_environment_that_computes_a_batch_at_once_does_so() -> None:
    environments = make_environments(Environment(id="CartPole-v1"), 5)

    assert isinstance(environments.unwrapped, CartPoleVectorEnv)
    assert environments.num_envs == 5
    Stepper(environments, "CartPole-v1").reset(0)


def test_others_are_stepped_one_after_the_other_and_show_their_last_observation() -> None:
    environments = make_environments(Environment(id="MountainCarContinuous-v0"), 3)

    assert isinstance(environments.unwrapped, SyncVectorEnv)
    assert environments.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    environments.close()


@pytest.mark.parametrize("id", ["CartPole-v1", "Acrobot-v1"])
def test_max_episode_steps_truncates(id: str) -> None:
    stepper = Stepper(make_environments(Environment(id=id, max_episode_steps=3), 2), id)
    stepper.reset(0)
    steps = [stepper.step(np.zeros(2, np.int64)) for _ in range(3)]

    assert [step.truncated.all() for step in steps] == [False, False, True]


def test_kwargs_reach_the_constructor() -> None:
    spec = Environment(id="CartPole-v1", kwargs={"sutton_barto_reward": True})
    stepper = Stepper(make_environments(spec, 2, render_mode="rgb_array"), spec.id)
    stepper.reset(0)

    assert stepper.step(np.zeros(2, np.int64)).reward.tolist() == [0.0, 0.0]
    assert stepper.environments.render_mode == "rgb_array"


def test_user_code_is_imported_and_its_environment_made(user_module: Callable[[str], str]) -> None:
    module = user_module(MINE + "gym.register(id='Mine-v0', entry_point='__MODULE__:Mine')")
    environments = make_environments(Environment(id=f"{module}:Mine-v0", kwargs={"size": 4}), 2)

    assert environments.envs[0].unwrapped.size == 4
    environments.close()


def test_a_vector_entry_point_of_the_users_is_used(user_module: Callable[[str], str]) -> None:
    module = user_module(
        MINE
        + """
class Batch(gym.vector.VectorEnv):
    metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    single_observation_space, single_action_space = Mine.observation_space, Mine.action_space

    def __init__(self, num_envs, max_episode_steps=None):
        self.num_envs, self.max_episode_steps = num_envs, max_episode_steps

gym.register(id='Batch-v0', vector_entry_point='__MODULE__:Batch', max_episode_steps=9)
"""
    )
    environments = make_environments(Environment(id=f"{module}:Batch-v0"), 6)

    assert environments.num_envs == 6
    assert environments.unwrapped.max_episode_steps == 9
    assert Stepper(environments, "Batch-v0").shows_last_observation is False


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            Environment(id="CartPoel-v1"),
            r"spec\.environment\.id: there is no environment 'CartPoel-v1': .*Did you mean: `CartPole`\? "
            r"One of your own is named with its module: my_env:My-v0",
        ),
        (
            Environment(id="CartPole"),
            r"spec\.environment\.id: there is no environment 'CartPole': An id ends with its version\. Did you mean: "
            r"`CartPole-v1`\? One of your own is named with its module: my_env:My-v0",
        ),
        (
            Environment(id="CartPole-v7"),
            r"spec\.environment\.id: there is no environment 'CartPole-v7': .* \[ `v0`, `v1` \]\.",
        ),
        (
            Environment(id="ALE/Pong-v5", kwargs={"mode": 1}),
            r"spec\.environment\.kwargs: 'ALE/Pong-v5' does not take them: .*'mode'.*",
        ),
        (
            Environment(id="CartPole-v1", kwargs={"gravty": 1}),
            r"spec\.environment\.kwargs: 'CartPole-v1' does not take them: .*'gravty'.*",
        ),
        (
            Environment(id="CartPole-v1", kwargs={"num_envs": 1}),
            r"spec\.environment\.kwargs: 'CartPole-v1' does not take them: .*'num_envs'.*",
        ),
        (
            Environment(id="Acrobot-v1", kwargs={"gravty": 1}),
            r"spec\.environment\.kwargs: 'Acrobot-v1' does not take them: .*'gravty'",
        ),
    ],
    ids=lambda x: x.id if isinstance(x, Environment) else "",
)
def test_a_bad_configuration_is_one_sentence(spec: Environment, sentence: str) -> None:
    error = refusal(spec)

    assert isinstance(error, BadConfiguration), error
    assert re.fullmatch(sentence, str(error)), str(error)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import no_such_package", r".*importing module '\w+' raised ModuleNotFoundError: No module .*"),
        (
            "raise ValueError('one\\ntwo')",
            r".*importing module '\w+' raised ValueError: one \(\w+\.py, line 1\)",
        ),
        (
            "e = ValueError('one')\ne.add_note('a note')\nraise e",
            r".*importing module '\w+' raised ValueError: one \(\w+\.py, line 3\)",
        ),
        ("import sys\nsys.exit(3)", r".*importing module '\w+' raised SystemExit: 3 \(\w+\.py, line 2\)"),
        (
            MINE,
            r".*module '\w+' was imported but registers no environment 'Mine-v0'; call gymnasium\.register.*",
        ),
        (
            MINE + "gym.register(id='Mine-v0', entry_point='__MODULE__:Other')",
            r"making environment '\w+:Mine-v0' raised .*",
        ),
        (
            MINE.replace("self.size, ", "1 + 'a'; self.size, ")
            + "gym.register(id='Mine-v0', entry_point='__MODULE__:Mine')",
            r"making environment '\w+:Mine-v0' raised TypeError: unsupported operand .*",
        ),
        (
            MINE.replace("self.size, ", "int(None); self.size, ")
            + "gym.register(id='Mine-v0', entry_point='__MODULE__:Mine')",
            r"making environment '\w+:Mine-v0' raised TypeError: int\(\) argument must be .* \(\w+\.py, line \d+\)",
        ),
        (
            MINE.replace("self.size, ", "self.close(hard=True); self.size, ")
            + "gym.register(id='Mine-v0', entry_point='__MODULE__:Mine')",
            r"making environment '\w+:Mine-v0' raised TypeError: .*keyword argument 'hard' \(\w+\.py, line \d+\)",
        ),
    ],
    ids=[
        "import fails",
        "two lines",
        "note",
        "exit",
        "not registered",
        "no class",
        "constructor",
        "argument of another call",
        "keyword of another call",
    ],
)
def test_what_the_users_code_does_wrong_is_the_first_line(
    user_module: Callable[[str], str], source: str, sentence: str
) -> None:
    error = refusal(Environment(id=f"{user_module(source)}:Mine-v0"))

    assert isinstance(error, UserCodeError), error
    assert re.fullmatch(sentence, first_line(error)), str(error)


def test_a_keyword_that_user_code_passes_on_is_named_with_its_field(
    user_module: Callable[[str], str],
) -> None:
    factory = "\ndef make(**kwargs): return Mine(**kwargs)\n"
    module = user_module(f"{MINE}{factory}gym.register(id='Mine-v0', entry_point='__MODULE__:make')")

    error = refusal(Environment(id=f"{module}:Mine-v0", kwargs={"siez": 3}))

    assert isinstance(error, BadConfiguration), error
    assert re.fullmatch(r"spec\.environment\.kwargs: .* does not take them: .*'siez'", str(error)), str(error)


def of_torch(user_module: Callable[[str], str], call: str) -> Environment:
    """Returns an environment. Its module changes a global setting of torch."""
    module = user_module(
        f"import torch\ntorch.{call}\n{MINE}gym.register(id='Mine-v0', entry_point='__MODULE__:Mine')"
    )
    return Environment(id=f"{module}:Mine-v0")


def test_an_environment_that_disables_gradients_does_not_do_so_for_the_trainer(
    user_module: Callable[[str], str],
) -> None:
    make_spaces(of_torch(user_module, "set_grad_enabled(False)"))
    assert torch.is_grad_enabled()


def test_a_change_of_torch_s_default_type_is_refused(user_module: Callable[[str], str]) -> None:
    environment = of_torch(user_module, "set_default_dtype(torch.float64)")
    message = r"has called torch\.set_default_dtype\(torch\.float64\), which changes"
    try:
        with pytest.raises(UserCodeError, match=message):
            make_spaces(environment)
    finally:
        torch.set_default_dtype(torch.float32)


def test_an_environment_that_cannot_be_closed_is_told_as_the_users(user_module: Callable[[str], str]) -> None:
    close = "\n    def close(self):\n        if self.size: self.size = 0; raise OSError('the simulator is gone')\n"
    module = user_module(f"{MINE}{close}gym.register(id='Mine-v0', entry_point='__MODULE__:Mine')")
    with pytest.raises(UserCodeError) as caught:
        make_spaces(Environment(id=f"{module}:Mine-v0"))
    first, _, trace = str(caught.value).partition("\n")
    assert first == (
        f"environment '{module}:Mine-v0': close raised OSError: the simulator is gone ({module}.py, line 21)"
    )
    assert "in close" in trace


def test_a_close_that_blocks_is_interrupted(
    user_module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for a simulator that does not answer. The job would otherwise never start."""
    close = """
    def close(self):
        try:
            threading.Event().wait(60)
        except Exception:
            pass
"""
    register = "gym.register(id='Mine-v0', entry_point='__MODULE__:Mine')"
    module = user_module(f"import threading\n{MINE}{close}{register}")
    monkeypatch.setattr("rltraining_trainer.environments.make.CLOSE_SECONDS", 0.4)
    handler = signal.getsignal(signal.SIGALRM)

    _, actions = make_spaces(Environment(id=f"{module}:Mine-v0"))

    assert actions == gym.spaces.Discrete(2)
    assert (
        f"environment '{module}:Mine-v0': close was interrupted after 0 s ({module}.py, line 23)"
        in caplog.text
    )
    assert signal.getsignal(signal.SIGALRM) is handler


def test_a_module_that_hides_the_users_is_named() -> None:
    error = refusal(Environment(id="venv:Mine-v0"))
    assert re.fullmatch(
        r"spec\.environment\.id: module 'venv' \(.*venv/__init__\.py, which hides a file of yours with this name\) was "
        r"imported but registers no environment 'Mine-v0'; call gymnasium\.register\(id='Mine-v0', \.\.\.\) in it",
        first_line(error),
    )


def test_what_does_not_parse_is_told_where_it_is_and_not_where_it_was_imported(
    user_module: Callable[[str], str],
) -> None:
    broken = user_module("x = 1\ndef f(:")
    error = refusal(Environment(id=f"{user_module(f'import {broken}')}:Mine-v0"))

    assert first_line(error).endswith(f"raised SyntaxError: invalid syntax ({broken}.py, line 2)"), str(error)
    assert f"import {broken}" in str(error), "the traceback contains the import"


def test_a_module_that_is_not_there_is_named() -> None:
    error = refusal(Environment(id="no_such_module_of_mine:Mine-v0"))

    assert first_line(error) == (
        "spec.environment.id: importing module 'no_such_module_of_mine' raised "
        "ModuleNotFoundError: No module named 'no_such_module_of_mine'"
    )
    assert "Traceback" not in str(error)


@pytest.mark.parametrize(
    ("id", "package", "extra"),
    [
        ("ALE/Pong-v5", "ale_py", "atari"),
        ("LunarLander-v3", "Box2D", "box2d"),
        ("HalfCheetah-v5", "mujoco", "mujoco"),
        ("MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"),
        ("minigrid:MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"),
    ],
)
def test_the_extra_of_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, id: str, package: str, extra: str
) -> None:
    importers = ("rltraining_trainer.environments.atari", "gymnasium.envs.box2d", "gymnasium.envs.mujoco")
    for module in list(sys.modules):
        if module.startswith((package, *importers)):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in gym.registry if name.startswith(("ALE/", "MiniGrid-", "BabyAI-"))]:
        monkeypatch.delitem(gym.registry, name)

    assert str(refusal(Environment(id=id))) == (
        f"spec.environment.id: {id!r} needs the package {package}, which is not installed: "
        f"{install_command(extra)} (in a cluster: an image with the extra {extra})"
    )


def test_ids_of_minigrid_need_no_module() -> None:
    environments = make_environments(Environment(id="MiniGrid-Empty-5x5-v0"), 2)
    assert environments.single_action_space == gym.spaces.Discrete(7)
    environments.close()
