"""A run's folder from a stranger names modules in that folder. No command runs them without permission."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import gymnasium
import pytest
import torch
from command_line import refused, rltrain, succeeded
from report_page import Page
from rltraining.jobfile import load
from rltraining_trainer.policy.trust import UntrustedCode, check_class

PAYLOAD = """
import os
from pathlib import Path
Path(os.environ["ZZ_PWNED"]).touch()
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv
gym.register("Arena-v0", entry_point=CartPoleEnv, max_episode_steps=7)
from torch import nn
def torso(space):
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh())
"""
ENVIRONMENT, NETWORK = "zz_payload_env:Arena-v0", "zz_payload_net:torso"
COMMANDS = {
    "evaluate": ("evaluate", "evil", "--episodes", "1"),
    "evaluate the policy": ("evaluate", "evil/policy", "--episodes", "1"),
    "export": ("export", "evil", "--format", "torchscript"),
    "report": ("report", "evil"),
}


@pytest.fixture
def pwned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the payload creates.

    The archive is unpacked in the working directory, which Python searches for modules.
    """
    path = tmp_path / "pwned"
    monkeypatch.setenv("ZZ_PWNED", str(path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", str(tmp_path), *sys.path])
    return path


def unpack(policy: Path, folder: Path, manifest: str, **needs: str) -> Path:
    """Packs a run into a tarball, with a policy that needs user code, and unpacks it as `folder/evil`."""
    made = folder / "made" / "evil"
    (made / "policy").mkdir(parents=True)
    for file in policy.iterdir():
        (made / "policy" / file.name).write_bytes(file.read_bytes())
    described = json.loads((policy / "policy.json").read_text())
    if "environment" in needs:
        described["environment"]["id"] = needs["environment"]
    if "wrapper" in needs:
        described["environment"]["wrappers"] = [{"entryPoint": needs["wrapper"]}]
    if "network" in needs:
        described["network"] = {"entryPoint": needs["network"]}
    (made / "policy" / "policy.json").write_text(json.dumps(described))
    (folder / "job.yaml").write_text(manifest)
    load(str(folder / "job.yaml")).save(made / "job.yaml")
    text = (made / "job.yaml").read_text().replace(str(folder / "job.yaml"), "evil/code/job.yaml")
    assert "rltraining.dev/source: evil/code/job.yaml" in text
    (made / "job.yaml").write_text(text)
    (made / "code").mkdir()
    for place in (made / "code", made / "policy", made, folder):
        for module in ("zz_payload_env", "zz_payload_net"):
            (place / f"{module}.py").write_text(PAYLOAD)
    with tarfile.open(folder / "evil.tar", "w") as tar:
        tar.add(made, "evil")
    with tarfile.open(folder / "evil.tar") as tar:
        tar.extractall(folder, filter="data")
    return folder / "evil"


@pytest.mark.parametrize(
    "needs",
    [{"environment": ENVIRONMENT}, {"network": NETWORK}, {"wrapper": NETWORK}],
    ids=["env", "net", "wrapper"],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_the_code_of_a_strangers_folder(
    command: str, needs: dict[str, str], policy: Path, tmp_path: Path, manifest: str, pwned: Path
) -> None:
    unpack(policy, tmp_path, manifest, **needs)
    result = rltrain(*COMMANDS[command])
    assert not pwned.exists(), "the payload ran"
    needed = command != "export" or "network" in needs
    if not needed:
        assert result.exit_code == 0, "exporting needs no environment"
        return
    (part, reference), *_ = needs.items()
    module = reference.partition(":")[0]
    because = f"its {part} is code of the module '{module}', which belongs to no installed package"
    (sentence,) = result.stderr.splitlines()
    assert because in sentence
    assert "--trust-code" in sentence
    if command == "report":
        assert result.exit_code == 0, result.output
        assert sentence.startswith("note: the policy is not filmed: ")
        assert Page(tmp_path / "evil" / "report.html").has(because)
    else:
        assert result.exit_code == 2
        assert sentence.startswith(f"error: evil/policy: {because}")


@pytest.mark.parametrize(
    "reference", ["os:system", "antigravity:fly", "json.tool:main", "zz_nowhere:x", "zz_package.sub:x"]
)
def test_neither_the_standard_library_nor_a_folder_without_init_is_an_installed_package(
    reference: str, policy: Path, tmp_path: Path, manifest: str, pwned: Path
) -> None:
    (tmp_path / "zz_package").mkdir()
    (tmp_path / "zz_package" / "sub.py").write_text(PAYLOAD)
    unpack(policy, tmp_path, manifest, network=reference)
    assert "which belongs to no installed package" in refused("export", "evil")
    assert not pwned.exists()
    assert "antigravity" not in sys.modules


def test_a_policy_calls_nothing_of_an_installed_package_but_wrappers(
    policy: Path, tmp_path: Path, manifest: str, pwned: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    # It empties a file before it looks at its other arguments.
    handler = "torch.distributed.elastic.multiprocessing.subprocess_handler:SubprocessHandler"
    options = {"args": [], "env": {}, "stdout": str(precious), "stderr": None}
    evil = unpack(policy, tmp_path, manifest, wrapper=handler)
    described = json.loads((evil / "policy" / "policy.json").read_text())
    described["environment"]["wrappers"][0]["kwargs"] = options | {"local_rank_id": 0, "numa_options": None}
    (evil / "policy" / "policy.json").write_text(json.dumps(described))
    message = refused("evaluate", "evil", "--episodes", "1")
    assert precious.read_text() == "years of work"
    assert f"its wrapper is '{handler}', which is no subclass of Wrapper" in message


@pytest.mark.parametrize(
    ("needs", "problem"),
    [
        ({"wrapper": "gymnasium.wrappers:TimeAwareObservation"}, None),
        ({"wrapper": "gymnasium.wrappers:RecordVideo"}, "writes files"),
        ({"wrapper": "torch:os.remove"}, "no subclass of Wrapper"),
        ({"network": "setuptools._distutils.spawn:spawn"}, "no subclass of Module"),
        ({"network": "torch.nn:Flatten"}, None),
        ({"network": "torch.zz_nowhere:Flatten"}, "cannot be imported"),
        ({"network": "numpy.f2py.__main__:main"}, "code of the program"),
    ],
)
def test_installed_wrappers_and_networks_need_no_trust(needs: dict[str, str], problem: str | None) -> None:
    ((part, reference),) = needs.items()
    base = gymnasium.Wrapper if part == "wrapper" else torch.nn.Module
    if problem is None:
        check_class("evil", part, reference, base)
    else:
        with pytest.raises(UntrustedCode, match=problem):
            check_class("evil", part, reference, base)


class _Payload:
    """Creates the file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pickle_among_the_weights_is_not_executed(
    command: str, policy: Path, tmp_path: Path, manifest: str, pwned: Path
) -> None:
    evil = unpack(policy, tmp_path, manifest)
    torch.save({"policy_head.weight": _Payload(pwned)}, evil / "policy" / "weights.pt")
    result = rltrain(*COMMANDS[command])
    assert not pwned.exists(), "the pickle ran"
    damaged = "evil/policy/weights.pt is damaged"
    if command == "report":
        assert Page(evil / "report.html").has(damaged)
    else:
        assert damaged in result.stderr


def test_a_policy_of_ones_own_without_user_code_needs_no_flag(
    policy: Path, tmp_path: Path, manifest: str, pwned: Path
) -> None:
    unpack(policy, tmp_path, manifest)
    assert succeeded("evaluate", "evil", "--episodes", "1").startswith("CartPole-v1: 1 episodes")
