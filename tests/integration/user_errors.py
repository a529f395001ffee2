"""Environments that fail, and jobs that fail because of an error of their user."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from training import Run

BASE = """
import gymnasium as gym
import numpy as np

class Base(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), self.reward(), False, False, {}

    def reward(self):
        return 0.0

class Step(Base):
    def reward(self):
        if self.steps > 50:
            raise ValueError("the maze has no exit")
        return 0.0

class NaN(Base):
    def reward(self):
        return float("nan") if self.steps > 50 else 0.0

class Make(Base):
    def __init__(self):
        raise OSError("no licence for this simulator")

class Tired(Base):
    def close(self):
        if self.steps:
            raise OSError("the simulator is gone")

class Panics(Base):
    def reward(self):
        raise Panic("index out of bounds")

class Panic(BaseException):
    pass

for environment in (Step, NaN, Make, Tired, Panics):
    gym.register(f"{environment.__name__}-v0", entry_point=environment)
"""


@dataclass
class Case:
    """A job that cannot work."""

    spec: dict[str, Any]
    reason: str
    message: str
    """How the sentence begins, after the pod's name."""
    trace: list[str] = field(default_factory=list)
    """Expected parts of the traceback."""

    async def check(self, run: Run) -> None:
        """Checks that the job fails with this message, and that no process restarts."""
        job, failed = await run.until_failed()
        assert (failed.status, failed.reason) == ("True", self.reason)
        pod, _, message = failed.message.partition(": ")
        assert pod in run.pids
        assert message.startswith(self.message), message
        for words in self.trace:
            assert words in message
        assert job.status.message == failed.message.splitlines()[0]
        assert {pod: len(pids) for pod, pids in run.pids.items()} == dict.fromkeys(run.pids, 1), "restarted"
