"""`rltraining.train`, in this process and in scripts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from rltrain_command import SECONDS_MAX
from rltraining import JobFailedError, Run, engine_thread, train
from rltraining.engine_thread import EngineThread
from rltraining.errors import UsageError
from rltraining_api.contract import ENV_MANIFEST_DIR
from rltraining_api.evaluation import EvaluationResult
from rltraining_api.status import Progress
from rltraining_operator.local import WarmRuntime

IMPALA = {"impala": {"learningRate": 1e-3}}


@pytest.fixture(autouse=True)
def restored_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`train` sets this variable for the processes that it starts."""
    monkeypatch.setenv(ENV_MANIFEST_DIR, "")


def test_a_policy_is_trained_and_used_as_in_a_notebook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A notebook has an event loop that is running already."""
    updates: list[Progress] = []
    evaluations: list[EvaluationResult] = []

    async def cell() -> Run:
        return train(
            "CartPole-v1",
            algorithm=IMPALA,
            environment_steps=20_000,
            seed=1,
            spec={"evaluation": {"everySteps": 10_000, "episodes": 2}},
            workdir=tmp_path / "run",
            on_update=updates.append,
            on_evaluation=evaluations.append,
        )

    run = asyncio.run(cell())

    assert run.status.phase == "Succeeded"
    assert not run.interrupted
    assert "CartPole-v1" in (tmp_path / "run" / "job.yaml").read_text()
    # Progress was shown and reported.
    assert "20," in capsys.readouterr().out
    assert updates[-1] == run.status.progress
    assert [one.updates for one in updates] == sorted({one.updates for one in updates})
    assert run.status.evaluation is not None
    assert evaluations[-1] == run.status.evaluation.last
    # The policy acts, and the curve is a data frame.
    observation, _ = gym.make("CartPole-v1").reset(seed=0)
    assert run.policy.act(observation) in (0, 1)
    curve = run.curve
    assert curve["environmentSteps"].is_monotonic_increasing
    assert curve["environmentSteps"].iloc[-1] == run.status.progress.environment_steps
    assert curve["meanReturn"].iloc[-1] == pytest.approx(run.status.progress.mean_return)

    # The run can be continued.
    more = train(
        "CartPole-v1",
        algorithm=IMPALA,
        environment_steps=30_000,
        workdir=run.folder,
        resume=True,
        progress=False,
    )
    assert more.status.progress.environment_steps >= 30_000
    assert more.status.progress.updates > run.status.progress.updates


def test_what_a_callback_raises_stops_the_run_in_order(tmp_path: Path) -> None:
    def look(progress: Progress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(
            "CartPole-v1",
            algorithm=IMPALA,
            spec={"stop": {"environmentSteps": 10**9}},
            workdir=tmp_path,
            on_update=look,
            progress=False,
        )

    assert (tmp_path / "policy" / "policy.json").exists()
    assert list((tmp_path / "checkpoints").glob("step-*"))


MODULE = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Broken(CartPoleEnv):
    def step(self, action):
        raise ValueError("the gripper is stuck")

gym.register("Broken-v0", Broken)
gym.register("Own-v0", CartPoleEnv, max_episode_steps=100)
"""


def script(folder: Path, text: str, **options: Any) -> subprocess.Popen[str]:
    """Starts a script beside a module with environments."""
    (folder / "own_env.py").write_text(MODULE)
    (folder / "script.py").write_text(f"from rltraining import train\n{text}\n")
    return subprocess.Popen(
        [sys.executable, "-u", folder / "script.py"],
        cwd=folder.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def test_an_exception_in_a_module_beside_the_script_is_raised_with_its_traceback(tmp_path: Path) -> None:
    call = 'train("own_env:Broken-v0", environment_steps=1000, workdir="run", progress=False)'
    with script(tmp_path, call) as process:
        _, errors = process.communicate(timeout=SECONDS_MAX)

    assert process.returncode == 1
    assert JobFailedError.__name__ in errors
    assert "own_env.py" in errors
    assert "the gripper is stuck" in errors


def test_ctrl_c_ends_a_run_in_order_and_returns_it(tmp_path: Path) -> None:
    call = """
from pathlib import Path
run = train("own_env:Own-v0", spec={"stop": {"environmentSteps": 10**9}}, workdir=Path(__file__).parent / "run")
print("interrupted", run.interrupted, run.status.progress.updates > 0, run.policy.description.environment.id)
"""
    with script(tmp_path, call) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "updates" in line:
                break
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=SECONDS_MAX)

    assert "interrupted True True own_env:Own-v0" in out, (out, errors)
    assert process.returncode == 0


def test_a_second_ctrl_c_kills_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook's process does not end."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    runtimes: list[WarmRuntime] = []

    def runtime(entry: str) -> WarmRuntime:
        runtimes.append(WarmRuntime(entry))
        return runtimes[-1]

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    def stop(thread: EngineThread, number: int) -> None:
        asked(thread, number)
        signal.setitimer(signal.ITIMER_REAL, 0.05)  # the second, while the run stops

    asked = EngineThread.stop
    monkeypatch.setattr(EngineThread, "stop", stop)
    monkeypatch.setattr(engine_thread, "WarmRuntime", runtime)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(
                "CartPole-v1",
                algorithm=IMPALA,
                spec={"stop": {"environmentSteps": 10**9}},
                workdir=tmp_path,
                on_update=interrupt,
                progress=False,
            )
    finally:
        signal.signal(signal.SIGALRM, before)

    assert not [thread for thread in threading.enumerate() if "rltraining" in thread.name]
    (template,) = [one._template for one in runtimes]
    assert template is not None
    assert not template.alive
    # The folder is not in use, and the run can be continued.
    run_of = train(
        "CartPole-v1", algorithm=IMPALA, environment_steps=1, workdir=tmp_path, resume=True, progress=False
    )
    assert run_of.status.phase == "Succeeded"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"algorithm": "pop"}, "spec.algorithm"),
        ({"environment_steps": 0}, "spec.stop.environmentSteps: must be"),
        ({"spec": {"algorithm": {"ppo": {}}}}, "spec has algorithm, which is an argument of train()"),
        ({"spec": {"netwrok": {}}}, "netwrok"),
        ({"environment_steps": None}, "environment_steps is missing"),
        ({"resume": True, "overwrite": True}, "resume and overwrite exclude each other"),
        ({"resume": True}, "workdir is missing"),
        ({"spec": {"runPolicy": {"suspend": True}}}, "spec.runPolicy.suspend"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        train("CartPole-v1", **{"environment_steps": 10} | arguments)
    assert sentence in str(caught.value)
    assert not list(tmp_path.iterdir())
