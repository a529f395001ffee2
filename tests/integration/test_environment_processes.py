"""Environments in separate processes: equal episodes, reported errors, and no process outlives its sampler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from rltraining_api.contract import STACKS_SIGNAL
from rltraining_api.environment import Environment
from rltraining_trainer.environments import Faults, Stepper, make_environments, make_spaces
from rltraining_trainer.errors import EnvironmentLost, EnvironmentRaised, UserCodeError

MODULE = """
import os
import gymnasium as gym
import numpy as np

class Walk(gym.Env):
    observation_space = gym.spaces.Dict({"at": gym.spaces.Box(-9, 9, (2,)), "leg": gym.spaces.Discrete(2)})
    action_space = gym.spaces.MultiDiscrete([2, 3])
    steps = 0

    def __init__(self, fault=""):
        self.fault = fault
        if fault == "exits when made":
            os._exit(9)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.fault == "exits when reset":
            os._exit(9)
        self.at = self.np_random.normal(size=2)
        return self._observation(), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 4 and self.fault:
            getattr(self, self.fault)()
        self.at += action + self.np_random.normal(size=2)
        return self._observation(), float(self.at.sum()), bool(self.np_random.random() < 0.2), False, {}

    def _observation(self):
        return {"at": self.at.clip(-9, 9).astype("f"), "leg": int(self.np_random.integers(2))}

    def raises(self):
        raise ValueError("lost its footing")

    def crashes(self):
        os.abort()

class Vector(Walk):
    observation_space = gym.spaces.Box(-9, 9, (2,))

    def _observation(self):
        return super()._observation()["at"]

for environment in (Walk, Vector):
    gym.register(f"{environment.__name__}-v0", entry_point=environment)
"""


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("code")
    (folder / "walk_env.py").write_text(MODULE)
    sys.path.append(str(folder))
    yield folder
    sys.path.remove(str(folder))


def spec(name: str = "Vector", stepping: str = "Processes", **settings: object) -> Environment:
    return Environment.model_validate({"id": f"walk_env:{name}-v0", "stepping": stepping, **settings})


def test_the_same_seed_plays_the_same_episodes_in_turn_in_threads_and_in_processes() -> None:
    stories = []
    for stepping in ("Serial", "Threads", "Processes"):
        environments = make_environments(spec("Walk", stepping), 3)
        environments.action_space.seed(5)
        story = [environments.reset(seed=7)[0]]
        for _ in range(60):
            story += environments.step(environments.action_space.sample())[:4]
        environments.close()
        stories.append(story)
    np.testing.assert_equal(stories[1], stories[0])
    np.testing.assert_equal(stories[2], stories[0])


def step_until(stepper: Stepper, steps: int) -> None:
    stepper.reset(0)
    for _ in range(steps):
        stepper.step(np.zeros((2, 2), np.int64))


def test_an_error_of_an_environment_is_reported_with_its_traceback() -> None:
    texts = []
    for stepping in ("Serial", "Processes"):
        stepper = Stepper(make_environments(spec(stepping=stepping, kwargs={"fault": "raises"}), 2), "Mine")
        with pytest.raises(UserCodeError) as caught:
            step_until(stepper, 9)
        texts.append(str(caught.value))
        stepper.close()
    in_turn, in_process = texts
    assert "raised ValueError: lost its footing (walk_env.py, line " in in_process
    assert in_process.partition(": step")[2] == in_turn.partition(": step")[2]


LOST = r"the process of environment 0 ended with SIGABRT in step; environment\.onError: Reset replaces this"


def test_a_crash_of_native_code_ends_one_environment_alone_or_is_worth_a_restart() -> None:
    crashing = spec(kwargs={"fault": "crashes"})
    stepper = Stepper(make_environments(crashing, 2), "Mine")
    with pytest.raises(EnvironmentLost, match=LOST):
        step_until(stepper, 9)
    stepper.close()

    # Each environment crashes in its fourth step, and so does the environment that replaces it.
    stepper = Stepper(make_environments(crashing, 2), "Mine", Faults(resets=True, max_per_hour=100))
    step_until(stepper, 12)
    assert stepper.stats.discarded > 0
    stepper.close()


def test_a_constructor_that_exits_is_a_mistake_and_named() -> None:
    for make in (make_spaces, lambda exits: make_environments(exits, 2)):
        with pytest.raises(UserCodeError) as caught:
            make(spec(kwargs={"fault": "exits when made"}))
        assert str(caught.value) == (
            "environment 'walk_env:Vector-v0': the process of environment 0 ended with exit code 9 in its constructor"
        )


def test_a_process_that_exits_in_the_first_reset_ends_the_job_with_its_exit_code() -> None:
    """It would do so again after every restart."""
    stepper = Stepper(make_environments(spec(kwargs={"fault": "exits when reset"}), 2), "Mine")
    with pytest.raises(EnvironmentRaised) as caught:
        stepper.reset(0)
    assert str(caught.value) == (
        "environment 'walk_env:Vector-v0': the process of environment 0 ended with exit code 9 in reset; this was "
        "the first reset, so fix it: environment.onError: Reset helps only if errors happen now and then"
    )
    stepper.close()


def test_processes_end_with_a_sampler_that_is_killed_whatever_they_do(module: Path) -> None:
    program = f"""
    import sys
    sys.path.append({str(module)!r})
    from rltraining_api.environment import Environment
    from rltraining_trainer.environments import make_environments
    environments = make_environments(Environment(id="walk_env:Vector-v0", stepping="Processes"), 3)
    environments.reset(seed=0)
    print("ready", flush=True)
    sys.stdin.read()
    """
    sampler = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with sampler:
        assert sampler.stdout is not None
        assert sampler.stdout.readline() == b"ready\n"
        family = psutil.Process(sampler.pid).children(recursive=True)
        assert len(family) == 4, "a template and three environments"
        os.kill(family[-1].pid, signal.SIGSTOP)  # a process that cannot notice its closed connection
        sampler.kill()
        gone, alive = psutil.wait_procs(family, timeout=20)
    assert not alive, [process.cmdline() for process in alive]
    assert len(gone) == 4


def test_closing_leaves_no_process_and_does_not_wait_for_one_that_hangs() -> None:
    others = {process.pid for process in psutil.Process().children(recursive=True)}  # of other tests
    environments = make_environments(spec(), 3)
    environments.reset(seed=0)
    family = [child for child in psutil.Process().children(recursive=True) if child.pid not in others]
    os.kill(family[-1].pid, signal.SIGSTOP)
    began = time.monotonic()
    environments.close()
    assert time.monotonic() - began < 20
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive


def test_the_processes_print_their_stacks_on_a_signal_and_go_on(tmp_path: Path) -> None:
    others = {process.pid for process in psutil.Process().children(recursive=True)}  # of other tests
    errors, kept = tmp_path / "errors", os.dup(2)
    with errors.open("w") as file:  # pytest's own capture loses output that is written during a read
        os.dup2(file.fileno(), 2)
        try:
            environments = make_environments(spec(), 2)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
    family = [child for child in psutil.Process().children(recursive=True) if child.pid not in others]
    told = []
    for process in family:
        before = len(errors.read_text())
        process.send_signal(signal.Signals[STACKS_SIGNAL])
        until, text = time.monotonic() + 60, ""
        while " in <module>" not in text and time.monotonic() < until:  # the outermost frame
            text = errors.read_text()[before:]
        told.append(text)
    assert len(told) == 3, "a template and two environments"
    assert [" in _serve" in text for text in told] == [False, True, True]
    Stepper(environments, "Mine").reset(0)
    environments.close()
