"""Policy.load and TorchScript read the files that export_policy writes."""

from __future__ import annotations

import io
import json
import shutil
import uuid
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from policies import JOBS, PROGRESS, trained
from rltraining_trainer.errors import BadConfiguration, Diverged, UserCodeError
from rltraining_trainer.policy import Policy, PolicyError, export_policy
from rltraining_trainer.policy.description import BoxSpace, describe_space, make_space


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a policy `discrete`."""
    folder = tmp_path_factory.mktemp("exported")
    export_policy(folder, *trained("discrete"), PROGRESS)
    return folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """A copy of the exported policy, which tests damage."""
    return shutil.copytree(exported, tmp_path / "policy")


def saved(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


@pytest.mark.parametrize("name", JOBS)
def test_network_and_program_and_loaded_policy_agree(name: str, tmp_path: Path) -> None:
    network, job, environment_spaces = trained(name)
    export_policy(tmp_path / "policy", network, job, environment_spaces, PROGRESS)
    policy = Policy.load(str(tmp_path / "policy"), trust_code=True)
    program = load_program((tmp_path / "policy" / "policy.ts").read_bytes())

    assert (policy.observation_space, policy.action_space) == environment_spaces
    network.eval()
    state = program_state = network.initial_state(5)
    policy.observation_space.seed(5)
    for _ in range(3):
        observation = np.stack([np.asarray(policy.observation_space.sample()) for _ in range(5)])
        with torch.no_grad():
            parameters, state = network.policy(torch.from_numpy(observation), state)
            expected = policy.actions.to_environment(policy.actions.mode(parameters))
            action, program_parameters, *program_state = program(
                torch.from_numpy(observation), *program_state
            )
        acted = policy.act(observation)
        np.testing.assert_array_equal(acted, expected)
        np.testing.assert_allclose(action.numpy(), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(program_parameters, parameters, rtol=1e-4, atol=1e-5)
        assert policy.action_space.contains(np.asarray(acted[0], policy.action_space.dtype))


def test_the_directory_describes_itself(tmp_path: Path) -> None:
    uri = export_policy(tmp_path / "policy", *trained("continuous-lstm"), PROGRESS)
    assert uri == f"file://{tmp_path}/policy"
    assert sorted(path.name for path in (tmp_path / "policy").iterdir()) == [
        "policy.json",
        "policy.ts",
        "weights.pt",
    ]
    said = json.loads((tmp_path / "policy" / "policy.json").read_text())
    assert said["algorithm"] == "impala"
    assert said["environment"]["id"] == "MountainCarContinuous-v0"
    assert said["actionSpace"] == {"type": "Box", "shape": [1], "dtype": "float32", "low": -1, "high": 1}
    assert said["progress"]["meanReturn"] == 21.5
    assert said["program"]["inputs"] == [
        {"name": "observation", "shape": ["batch", 2], "dtype": "float32"},
        {"name": "state_0", "shape": ["batch", 8], "dtype": "float32"},
        {"name": "state_1", "shape": ["batch", 8], "dtype": "float32"},
    ]
    assert [output["name"] for output in said["program"]["outputs"]] == [
        "action",
        "policy",
        "next_state_0",
        "next_state_1",
    ]
    assert said["versions"]["torch"] == torch.__version__
    assert torch.load(tmp_path / "policy" / "weights.pt", weights_only=True).keys() >= {"policy_head.weight"}


@pytest.mark.parametrize(("name", "dueling"), [("q-dueling", True), ("deterministic", False)])
def test_the_description_says_which_algorithm_the_policy_is_of(
    name: str, dueling: bool, tmp_path: Path
) -> None:
    network, job, environment_spaces = trained(name)
    export_policy(tmp_path, network, job, environment_spaces, PROGRESS)
    said = json.loads((tmp_path / "policy.json").read_text())
    assert said["algorithm"] == job.spec.algorithm.name
    assert said["dueling"] is dueling
    assert said["program"]["outputs"][1]["name"] == "policy"
    del said["dueling"]  # as earlier versions wrote policies of other algorithms
    (tmp_path / "policy.json").write_text(json.dumps(said))
    if dueling:
        with pytest.raises(BadConfiguration, match="the weights do not fit the network"):
            Policy.load(str(tmp_path))
    else:
        assert Policy.load(str(tmp_path)).description.algorithm == job.spec.algorithm.name


def test_an_object_store_holds_policies_too() -> None:
    uri = f"memory://{uuid.uuid4().hex}/policy"
    network, *rest = trained("discrete")
    assert export_policy(uri, network, *rest, PROGRESS) == uri.replace("//", "///")
    export_policy(uri, network, *rest, PROGRESS.model_copy(update={"environment_steps": 2000}))
    assert Policy.load(uri).description.progress.environment_steps == 2000


def test_a_policy_already_there_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "old").touch()
    (tmp_path / "notes").touch()
    export_policy(tmp_path / "policy", *trained("discrete"), PROGRESS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "policy"]
    assert not (tmp_path / "policy" / "old").exists()


def test_a_full_disk_leaves_the_policy_that_was_there(tmp_path: Path, file_size_limit) -> None:
    network, *rest = trained("discrete")
    export_policy(tmp_path / "policy", network, *rest, PROGRESS)
    with (
        file_size_limit(500),
        pytest.raises(PolicyError, match=r"could not be written to .*: the disk is full"),
    ):
        export_policy(tmp_path / "policy", network, *rest, PROGRESS)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    Policy.load(str(tmp_path / "policy"))


def test_a_policy_that_is_not_finite_is_not_written(tmp_path: Path) -> None:
    network, *rest = trained("discrete")
    with torch.no_grad():
        next(network.parameters())[0] = torch.inf
    with pytest.raises(
        Diverged,
        match=r"^the policy's parameter \S+ is NaN or infinite in the end: lower the learning rate, or clip "
        r"gradients or rewards, and continue from the newest checkpoint$",
    ):
        export_policy(tmp_path / "policy", network, *rest, PROGRESS)
    assert not list(tmp_path.iterdir())


def test_a_network_that_cannot_be_traced_is_written_without_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(
        JOBS, "branching", ({"id": "CartPole-v1"}, {"entryPoint": "policies:branching_torso"})
    )
    for seed in range(20):  # half of the examples take only one branch
        torch.manual_seed(seed)
        export_policy(tmp_path / "policy", *trained("branching"), PROGRESS)
        if not (tmp_path / "policy" / "policy.ts").exists():
            break
    policy = Policy.load(str(tmp_path / "policy"), trust_code=True)
    assert policy.description.program is None
    assert "as TorchScript the network gives other results" in caplog.text


def test_the_warning_names_what_torchscript_rejects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(JOBS, "fixed", ({"id": "CartPole-v1"}, {"entryPoint": "policies:fixed_batch_torso"}))
    export_policy(tmp_path / "policy", *trained("fixed"), PROGRESS)
    reason = "cannot be made into TorchScript: RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    assert reason in caplog.text


@pytest.mark.parametrize("ending", ["", "/"])
def test_the_folder_of_a_run_names_its_policy(tmp_path: Path, folder: Path, ending: str) -> None:
    assert Policy.load(f"{tmp_path}{ending}").description.job == "discrete"
    (tmp_path / "policy" / "weights.pt").write_bytes(b"hello")
    with pytest.raises(BadConfiguration, match=rf"^{tmp_path}/policy/weights\.pt is damaged"):
        Policy.load(f"{tmp_path}{ending}")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("policy.json", None, "there is no policy at"),
        ("weights.pt", None, "there is no policy at"),
        ("policy.json", b"{", "policy.json is damaged"),
        ("weights.pt", b"PK", "weights.pt is damaged"),
        ("weights.pt", b"hello", "weights.pt is damaged"),
        ("weights.pt", b"\x80\x02.", "weights.pt is damaged"),
        ("weights.pt", saved([1.0]), "weights.pt contains no weights of a policy"),
        ("weights.pt", saved({"torso": 1}), "weights.pt contains no weights of a policy"),
        ("weights.pt", saved({"torso": torch.zeros(1)}), "the weights do not fit the network of the policy"),
    ],
)
def test_what_is_no_policy_is_refused(folder: Path, file: str, content: bytes | None, message: str) -> None:
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(BadConfiguration, match=message):
        Policy.load(str(folder))


@pytest.mark.parametrize(
    "space",
    [
        {"type": "Box", "shape": [4], "dtype": "foo", "low": -1.0, "high": 1.0},
        {"type": "Box", "shape": [-1, 7], "dtype": "float32", "low": -1.0, "high": 1.0},
        {"type": "Box", "shape": [4], "dtype": "float32", "low": [1.0, 2.0], "high": 1.0},
        {"type": "Discrete", "n": 0},
        {"type": "Discrete", "n": 10**30},
    ],
    ids=str,
)
def test_a_description_of_what_is_no_space_is_refused(folder: Path, space: dict[str, Any]) -> None:
    description = folder / "policy.json"
    said = json.loads(description.read_text())
    said["observationSpace"] = space
    description.write_text(json.dumps(said))
    with pytest.raises(BadConfiguration, match=r"policy\.json is damaged"):
        Policy.load(str(folder))


def test_missing_user_code_is_named(folder: Path) -> None:
    description = folder / "policy.json"
    said = json.loads(description.read_text())
    said["network"] = {"entryPoint": "not_here:torso"}
    description.write_text(json.dumps(said))
    with pytest.raises(UserCodeError, match=r"spec\.network\.entryPoint: importing 'not_here'"):
        Policy.load(str(folder), trust_code=True)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1),
        spaces.Box(-np.inf, np.inf, (2, 3), np.float32),
        spaces.Box(np.array([-4.8, -np.inf], np.float32), np.array([4.8, np.inf], np.float32)),
        spaces.Box(0, 255, (4, 4, 1), np.uint8),
        spaces.Box(0, np.inf, (2,), np.int64),
        spaces.Box(-np.inf, np.inf, (2,), np.int64),
        spaces.Box(np.array([0, 1]), np.array([2**53 + 1, 3]), (2,), np.int64),
        spaces.Box(-1.5, 0.1, (1,), np.float64),
        spaces.Box(-1, 1, (), np.float32),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiDiscrete([[2, 3], [4, 5]], np.int32, start=[[0, -1], [1, 7]]),
        spaces.MultiBinary((2, 2)),
        spaces.MultiBinary(4),
    ],
    ids=str,
)
def test_spaces_survive_json(space: spaces.Space) -> None:
    description = describe_space(space)
    again = type(description).model_validate_json(description.model_dump_json(by_alias=True))
    made = make_space(again)
    assert made == space
    made.seed(1)
    space.seed(1)
    assert np.array_equal(made.sample(), space.sample()), "bounded where it was"


def test_a_large_space_is_described_shortly() -> None:
    assert len(describe_space(spaces.Box(0, 255, (84, 84, 4), np.uint8)).model_dump_json()) < 100
    assert (
        BoxSpace.model_validate_json(
            describe_space(spaces.Box(-np.inf, 1, (3,), np.float32)).model_dump_json()
        ).low
        == -np.inf
    )


def load_program(content: bytes) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.load(io.BytesIO(content))
