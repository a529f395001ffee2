"""`rltrain evaluate` and `rltrain export`, with a policy that has learned nothing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from command_line import refused, rltrain, succeeded
from PIL import Image, ImageSequence
from rltraining.jobfile import load
from rltraining.video import GIF_PAUSE_MS, GIF_WIDTH
from rltraining_api.extras import install_command


def test_returns_are_told_to_people_and_to_programs_and_are_the_same_for_a_seed(policy: Path) -> None:
    arguments = ("evaluate", policy, "--episodes", "5", "--seed", "3", "--envs", "2", "--stochastic")
    found = json.loads(succeeded(*arguments, "--json"))
    assert len(found["returns"]) == found["episodes"] == 5
    assert found["steps"] == sum(found["returns"])
    assert not found["deterministic"]
    text = succeeded(*arguments)
    assert text.startswith("CartPole-v1: 5 episodes, actions: drawn as in training\n")
    assert f"mean    {found['mean']:.2f}\n" in text
    assert f"max     {max(found['returns']):.2f}\n" in text


def test_a_video_is_written(policy: Path, tmp_path: Path) -> None:
    video = tmp_path / "new" / "cartpole.mp4"
    arguments = ("evaluate", policy, "--episodes", "1", "--video", video)
    assert str(video) in succeeded(*arguments)
    assert video.read_bytes()[4:8] == b"ftyp"
    assert json.loads(succeeded(*arguments, "--json"))["video"] == str(video)


def test_a_gif_is_small_and_loops(policy: Path, tmp_path: Path) -> None:
    gif = tmp_path / "cartpole.gif"
    found = json.loads(
        succeeded("evaluate", policy, "--episodes", "1", "--video", gif, "--json", "--envs", "1")
    )
    with Image.open(gif) as images:
        assert images.format == "GIF"
        assert images.size == (GIF_WIDTH, GIF_WIDTH * 400 // 600)  # CartPole-v1 renders 600 by 400 pixels
        assert images.info["loop"] == 0
        shown_ms = [images.info["duration"] for _ in ImageSequence.Iterator(images)]
    # CartPole-v1 has 50 frames per second, of which each second one is kept. The first shows the reset.
    kept = found["steps"] // 2 + 1
    assert sum(shown_ms) == (kept - 1) * 40 + GIF_PAUSE_MS
    assert len(shown_ms) > 1


def test_a_gif_of_a_long_episode_is_cut(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltraining.video.GIF_SECONDS", 0.1)
    succeeded("evaluate", policy, "--episodes", "1", "--video", tmp_path / "cut.gif")
    with Image.open(tmp_path / "cut.gif") as images:
        # Frames 0, 2 and 4 of the five.
        assert (
            sum(image.info["duration"] for image in ImageSequence.Iterator(images)) == 2 * 40 + GIF_PAUSE_MS
        )


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no EGL")
@pytest.mark.parametrize(("display", "renderer"), [(None, "egl"), (":0", None)])
def test_mujoco_renders_with_egl_where_there_is_no_display(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, display: str | None, renderer: str | None
) -> None:
    for name in ("MUJOCO_GL", "WAYLAND_DISPLAY", "DISPLAY"):
        monkeypatch.setenv(name, "")  # so that the test's changes are undone
        monkeypatch.delenv(name)
    if display:
        monkeypatch.setenv("DISPLAY", display)
    succeeded("evaluate", policy, "--episodes", "1", "--video", tmp_path / "cartpole.gif")
    assert os.environ.get("MUJOCO_GL") == renderer


def test_torchscript_is_written_beside_the_policy_or_where_it_is_wanted(policy: Path, tmp_path: Path) -> None:
    wanted = tmp_path / "a" / "b.pt"
    for path, more in ((policy / "policy.pt", ()), (wanted, ("--output", wanted))):
        assert succeeded("export", policy, "--format", "torchscript", *more).startswith(f"{path}: ")
        assert path.stat().st_size > 1000


@pytest.mark.parametrize("command", ["evaluate", "export"])
def test_an_empty_name_as_of_an_unset_variable_is_refused(command: str) -> None:
    assert refused(command, "") == "POLICY is empty: name a policy or the folder of a run, such as runs/first"


@pytest.mark.parametrize(
    "arguments", [("export", "runs/first", "--format"), ("get", "--output"), ("explain", "--preset")]
)
def test_a_wrong_choice_is_answered_with_the_right_ones(arguments: tuple[str, ...]) -> None:
    """The typer of this test begins the message with the kind of error of another library."""
    error = rltrain(*arguments, "nonsense").stderr.splitlines()[-1]
    assert error.startswith(f"Error: Invalid value for '{arguments[-1]}'")
    assert ": 'nonsense' is not one of '" in error


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("evaluate {tmp}", 2, "there is no policy at {tmp}"),
        ("evaluate file:///output/policy", 2, "one in a cluster's volume has to be copied here first"),
        ("evaluate {policy} --video x.avi", 2, "--video x.avi: only .mp4 and .gif files are written"),
        ("evaluate {policy} --episodes 1 --video {tmp}/file/x.mp4", 1, "x.mp4: cannot be written: "),
        ("export {tmp} --format torchscript", 2, "there is no policy at {tmp}"),
        ("export s3://bucket/policy", 2, "name the file to write with --output"),
        ("export {policy} --output {tmp}", 2, "--output {tmp}: is a folder: name a file in it"),
    ],
)
def test_what_cannot_be_done_is_refused(
    policy: Path, tmp_path: Path, arguments: str, code: int, sentence: str
) -> None:
    (tmp_path / "file").touch()
    places = {"tmp": tmp_path, "policy": policy}
    assert sentence.format(**places) in refused(*arguments.format(**places).split(), code=code)


def copied(policy: Path, folder: Path, module: str, environment: str = "Arena-v0") -> None:
    """Copies a policy and replaces its environment with one from a user module."""
    folder.mkdir(parents=True)
    for file in policy.iterdir():
        content = file.read_bytes().replace(b'"CartPole-v1"', f'"{module}:{environment}"'.encode())
        (folder / file.name).write_bytes(content)


def test_user_code_beside_the_runs_manifest_is_found(
    policy: Path, tmp_path: Path, manifest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy stores only the module's name. The module is found beside the run's job.yaml."""
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "client_test_arena.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Arena(CartPoleEnv):\n"
        "    metadata = {'render_modes': ['human']}\n"
        "    def __init__(self): super().__init__()\n"
        "gym.register('Arena-v0', entry_point=Arena, max_episode_steps=7)\n"
    )
    (tmp_path / "job.yaml").write_text(manifest.replace("CartPole-v1", "client_test_arena:Arena-v0"))
    run = tmp_path / "run"
    copied(policy, run / "policy", "client_test_arena")
    (policy.parent / "job.yaml").write_text("{kind: Job, of: another}")
    succeeded("evaluate", policy, "--episodes", "1")
    load(str(tmp_path / "job.yaml")).save(run / "job.yaml")
    trusted = ("--trust-code", "--episodes", "2")
    blind = rltrain("evaluate", run, *trusted, "--video", tmp_path / "blind.mp4").stderr
    assert blind.endswith(
        'cannot be filmed: it does not offer render_mode "rgb_array"; add "rgb_array" to its '
        'metadata["render_modes"] and return an image from its render()\n'
    )
    for place in (run / "policy", run):
        returns = json.loads(succeeded("evaluate", place, *trusted, "--json"))["returns"]
        assert max(returns) <= 7
    assert succeeded("export", run, "--format", "torchscript").startswith(f"{run}/policy/policy.pt: ")


def test_episodes_whose_environments_failed_are_discarded_and_counted(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "client_test_faulty.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Faulty(CartPoleEnv):\n"
        "    steps = 0\n"
        "    def step(self, action):\n"
        "        Faulty.steps += 1\n"
        "        if Faulty.steps % 5 == 0: raise RuntimeError('did not converge')\n"
        "        return super().step(action)\n"
        "gym.register('Faulty-v0', entry_point=Faulty, max_episode_steps=3)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    copied(policy, tmp_path / "policy", "client_test_faulty", "Faulty-v0")
    arguments = ("evaluate", tmp_path / "policy", "--trust-code", "--episodes", "3", "--envs", "1")
    told = rltrain(*arguments).stderr
    assert "step raised RuntimeError: did not converge (client_test_faulty.py, line 7)" in told
    description = tmp_path / "policy" / "policy.json"
    description.write_text(description.read_text().replace('"onError": "Fail"', '"onError": "Reset"'))
    # Steps after the first failure: 3, 1 and the second failure, 3, 1 and the third failure, 3.
    found = json.loads(succeeded(*arguments, "--json"))
    assert (found["returns"], found["discarded"]) == ([3.0] * 3, 2)
    assert "\n  resets  3, because the environment failed; these episodes are " in succeeded(*arguments)


def test_of_user_code_that_is_not_found_the_remedy_is_told(policy: Path, tmp_path: Path) -> None:
    copied(policy, tmp_path / "policy", "client_test_nowhere")
    told = refused("evaluate", tmp_path / "policy", "--trust-code", code=1)
    assert "No module named 'client_test_nowhere': with --trust-code, user code is found beside" in told
    assert "otherwise put it on PYTHONPATH" in told


def test_a_package_that_onnx_needs_and_is_not_installed_is_named(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    told = refused("export", policy, "--format", "onnx", "--output", tmp_path / "policy.onnx", code=1)
    assert told == (f"ONNX needs the package onnxruntime, which is not installed: {install_command('onnx')}")
    assert not list(tmp_path.iterdir())


def test_what_was_exported_before_stays_when_the_disk_is_full(
    policy: Path, tmp_path: Path, file_size_limit: Callable[[int], AbstractContextManager[None]]
) -> None:
    (tmp_path / "policy.pt").write_text("what was before")
    with file_size_limit(1000):
        output = ("--output", tmp_path / "policy.pt")
        told = refused("export", policy, "--format", "torchscript", *output, code=1)
    assert "policy.pt: cannot be written: " in told
    left = [(path.name, path.read_text()) for path in tmp_path.iterdir()]
    assert left == [("policy.pt", "what was before")]
