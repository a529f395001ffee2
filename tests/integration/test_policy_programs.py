"""Policies as programs of torch.export and ONNX. Not unit tests only because importing torch's compiler takes seconds."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces
from rltraining_api.job import RLTrainingJob
from rltraining_api.status import Progress
from rltraining_trainer.algorithms.registry import build_policy_network
from rltraining_trainer.environments import make_environments
from rltraining_trainer.networks import (
    PolicyNetwork,
)
from rltraining_trainer.policy import (
    Policy,
    ProgramError,
    export_policy,
    to_exported_program,
    to_onnx,
    to_torchscript,
)
from rltraining_trainer.policy.description import describe
from rltraining_trainer.policy.program import describe_program

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
IMAGE = f"{__name__}:Noise-v0"
MLP, LSTM = {"mlp": {"hiddenSizes": [8]}}, {"mlp": {"hiddenSizes": [8]}, "lstm": {"hiddenSize": 8}}
CASES: dict[str, tuple[str, dict, dict]] = {
    "discrete": ("CartPole-v1", MLP, {"impala": {}}),
    "continuous, recurrent": ("Pendulum-v1", LSTM, {"ppo": {}}),
    "deterministic": ("Pendulum-v1", MLP, {"ddpgApex": {}}),
    "values, recurrent": ("CartPole-v1", LSTM, {"r2d2": {}}),
    "squashed": ("Pendulum-v1", MLP, {"sac": {}}),
    "twin critics": ("Pendulum-v1", MLP, {"td3": {}}),
    "images, recurrent": (IMAGE, {"natureCnn": {"hiddenSize": 8}, "lstm": {"hiddenSize": 8}}, {"a3c": {}}),
    "images, dueling": (IMAGE, {"impalaCnn": {"channels": [4], "hiddenSize": 8}}, {"dqnApex": {}}),
    "quantiles": ("CartPole-v1", MLP, {"dqnApex": {"quantiles": 5}}),
    "noise while training": ("CartPole-v1", MLP, {"dqnApex": {"noisyLayers": True}}),
    "user code": ("CartPole-v1", {"entryPoint": f"{__name__}:attentive"}, {"impala": {}}),
}
"""Environment, network, algorithm."""


class Noise(gym.Env):
    """An environment of noise images with actions that start at 3."""

    observation_space, action_space = spaces.Box(0, 255, (36, 36, 2), np.uint8), spaces.Discrete(4, start=3)


class Formal(gym.Env):
    """An environment with bounds that mean nothing, as many have."""

    limit = np.finfo(np.float32).max
    observation_space, action_space = spaces.Box(-limit, limit, (4,), np.float32), spaces.Discrete(2)


class Parts(gym.Env):
    """An environment of several parts. The first one is not a vector of floats."""

    observation_space = spaces.Dict(
        {"gear": spaces.Discrete(3), "speed": spaces.Box(0, 9, (2,)), "time": spaces.Box(0, 9, ())}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        return self.observation_space.sample(), {}


gym.register("Noise-v0", Noise)
gym.register("Parts-v0", Parts)
gym.register("Formal-v0", Formal)


class Attentive(torch.nn.Module):
    """A user's network with less common layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(1, 8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(observation.unsqueeze(-1))
        attended, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return self.norm(tokens + attended).flatten(1)


class Branching(torch.nn.Module):
    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return observation if observation.sum() > 0 else -observation


class Noisy(torch.nn.Module):
    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return observation + torch.randn_like(observation)


def attentive(space: spaces.Space) -> torch.nn.Module:
    return Attentive()


def branching(space: spaces.Space) -> torch.nn.Module:
    return Branching()


def noisy(space: spaces.Space) -> torch.nn.Module:
    return Noisy()


Spaces = tuple[spaces.Space, spaces.Space]


def trained(
    environment_id: str, network: dict, algorithm: dict
) -> tuple[PolicyNetwork, RLTrainingJob, Spaces]:
    """Returns a network with random weights in every head, with its job and spaces."""
    job = RLTrainingJob.model_validate(
        {
            "metadata": {"name": "exported"},
            "spec": {
                "algorithm": algorithm,
                "environment": {"id": environment_id},
                "network": network,
                "stop": {"environmentSteps": 1000},
            },
        }
    )
    environment = make_environments(job.spec.environment, 1)
    found = environment.single_observation_space, environment.single_action_space
    environment.close()
    torch.manual_seed(5)
    settings = job.spec.algorithm.parameters
    built, _ = build_policy_network(
        job.spec.algorithm.name,
        job.spec.network,
        *found,
        normalize=None,
        dueling=getattr(settings, "dueling", False),
        quantiles=getattr(settings, "quantiles", 1),
        noisy=getattr(settings, "noisy_layers", False),
    )
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built, job, found


def make_policy(environment_id: str, network: dict, algorithm: dict) -> Policy:
    built, job, found = trained(environment_id, network, algorithm)
    policy = Policy(describe(job, *found, Progress()), built.state_dict(), trust_code=True)
    policy.observation_space.seed(5)
    return policy


def acts_alike(policy: Policy, program: Callable[..., Sequence[np.ndarray]], batch: int) -> None:
    """Compares the first three steps of an episode; `program` maps arrays to arrays."""
    state = [part.numpy() for part in policy.network.initial_state(batch)]
    policy.reset()
    for _ in range(3):
        observation = np.stack([policy.observation_space.sample() for _ in range(batch)])
        action, _, *state = program(observation, *state)
        np.testing.assert_allclose(action, policy.act(observation), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_program_of_torch_export_acts_as_the_policy(case: tuple[str, dict, dict]) -> None:
    policy = make_policy(*case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, on its way in
        program = torch.export.load(io.BytesIO(to_exported_program(policy))).module()

    def run(*inputs: np.ndarray) -> list[np.ndarray]:
        return [output.numpy() for output in program(*map(torch.from_numpy, inputs))]

    for batch in (1, 5):
        acts_alike(policy, run, batch)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_onnx_model_acts_as_the_policy(
    case: tuple[str, dict, dict], capfd: pytest.CaptureFixture[str]
) -> None:
    policy = make_policy(*case)
    content = to_onnx(policy)
    assert capfd.readouterr() == ("", ""), "torch and ONNX Runtime keep quiet"

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options)
    said = describe_program(policy, "policy.onnx")
    for described, found in ((said.inputs, session.get_inputs()), (said.outputs, session.get_outputs())):
        assert [(t.name, list(t.shape)) for t in described] == [(t.name, t.shape) for t in found]
    names = [tensor.name for tensor in said.inputs]
    for batch in (1, 5):
        acts_alike(policy, lambda *inputs: session.run(None, dict(zip(names, inputs, strict=True))), batch)


def test_bounds_that_are_the_largest_float_are_no_reason_to_refuse_a_policy() -> None:
    assert to_onnx(make_policy(f"{__name__}:Formal-v0", MLP, {"impala": {}}))


def test_observations_whose_first_part_is_not_a_vector_can_be_exported() -> None:
    """torch.export has no reason to assume that all parts have the same batch size."""
    assert to_onnx(make_policy(f"{__name__}:Parts-v0", MLP, {"impala": {}}))


@pytest.mark.parametrize("write", [to_exported_program, to_onnx])
def test_a_network_that_branches_is_refused_in_a_sentence(write: Callable[[Policy], bytes]) -> None:
    policy = make_policy("CartPole-v1", {"entryPoint": f"{__name__}:branching"}, {"impala": {}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(
            ProgramError,
            match=r"^spec\.network\.entryPoint: cannot be made into a torch\.export program: .*$",
        ):
            write(policy)


@pytest.mark.parametrize("write", [to_exported_program, to_onnx, to_torchscript])
def test_a_network_whose_program_gives_something_else_is_refused(write: Callable[[Policy], bytes]) -> None:
    policy = make_policy("CartPole-v1", {"entryPoint": f"{__name__}:noisy"}, {"impala": {}})
    with pytest.raises(
        ProgramError, match=r"the network gives other results than in torch; its forward must"
    ):
        write(policy)


def test_the_programs_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each Python block of docs/policies.md beside the files that `rltrain export` writes."""
    export_policy(tmp_path / "runs" / "quickstart" / "policy", *trained(*CASES["discrete"]), Progress())
    policy = make_policy(*CASES["discrete"])
    for name, write in {
        "runs/quickstart/policy/policy.pt2": to_exported_program,
        "runs/quickstart/policy/policy.pt": to_torchscript,
        "cartpole.onnx": to_onnx,
    }.items():
        (tmp_path / name).write_bytes(write(policy))
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(programs) == 4
    for program in programs:
        names: dict[str, Any] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces the end of TorchScript
            exec(program, names)
        if "action" in names:
            assert (tuple(names["action"].shape), tuple(names["output"].shape)) == ((1,), (1, 2))
            assert np.asarray(names["output"]).dtype == np.float32  # needs an output without gradients
