"""The defaults of each preset learn, end to end, on tasks of seconds. The spaces select the preset.

The slowest of ten seeds took 29,136 steps (Parts), 18,208 (Images), 4,552 (PPO on vectors) and
2,848 (Ape-X): the limits are at least three times as many. Ape-X on images has no row, since the
preset's replay needs 50,000 transitions before learning starts.
"""

from __future__ import annotations

from typing import Any

import pytest
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import parse_job
from small_jobs import CODE, code
from training import Run, Train

TASKS = """
import gymnasium as gym
import numpy as np
from gymnasium import spaces

STEPS = 8

class Task(gym.Env):
    '''Each of 8 steps has a right action for its observation, which is worth 1.'''

    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.draw(), {}

    def step(self, action):
        reward = self.worth(action)
        self.t += 1
        return self.draw(), reward, self.t == STEPS, False, {}

    def draw(self):
        self.right = int(self.np_random.integers(4))
        return self.show()

    def worth(self, action):
        return float(action == self.right)

class Vectors(Task):
    observation_space = spaces.Box(0, 1, (4,), np.float32)

    def show(self):
        return np.eye(4, dtype=np.float32)[self.right]

class Images(Task):
    '''A bright corner is the right action.'''

    observation_space = spaces.Box(0, 255, (36, 36, 3), np.uint8)

    def show(self):
        return self.corner(self.right)

    def corner(self, number):
        image = np.zeros((36, 36, 3), np.uint8)
        image[18 * (number // 2):, 18 * (number % 2):][:18, :18] = 255
        return image

class Parts(Images):
    '''The row of the corner and a number are the right action together.'''

    observation_space = spaces.Dict(
        {"camera": Images.observation_space, "side": spaces.Box(-1, 1, (1,), np.float32)}
    )

    def show(self):
        side = np.full(1, 2 * (self.right % 2) - 1, np.float32)
        return {"camera": self.corner(2 * (self.right // 2)), "side": side}

class Continuous(Task):
    '''A number of the right sign.'''

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def draw(self):
        self.seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.seen

    def worth(self, action):
        return float(action[0] * np.sign(self.seen[0]))

for task in (Vectors, Images, Parts, Continuous):
    gym.register(f"{task.__name__}-v0", entry_point=task)
"""


def job_of(task: str, algorithm: str, steps: int, wanted: float, seed: int = 0, **more: Any) -> RLTrainingJob:
    """Returns a job with defaults but for ``more``, which ends at ``steps`` or at a mean return of ``wanted``."""
    spec = {
        "algorithm": {algorithm: {}},
        "environment": {"id": f"tasks:{task}-v0"},
        "stop": {"meanReturn": {"atLeast": wanted, "episodes": 100}, "environmentSteps": steps},
        "seed": seed,
        "code": CODE,
        **more,
    }
    header = {"apiVersion": "rltraining.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "demo"}}
    return parse_job(header | {"spec": spec})


@pytest.mark.parametrize(
    ("preset", "task", "algorithm", "steps", "untrained", "wanted"),
    [
        ("Atari", "Images", "ppo", 100_000, 2.0, 5.0),
        ("Atari", "Parts", "ppo", 100_000, 2.0, 5.0),
        ("MuJoCo", "Continuous", "ppo", 100_000, 0.0, 4.0),
        ("MuJoCo", "Continuous", "ddpgApex", 20_000, 0.0, 4.0),
        ("Classic", "Vectors", "ppo", 100_000, 2.0, 5.0),
        ("Classic", "Vectors", "dqnApex", 20_000, 2.0, 5.0),
    ],
)
def test_the_defaults_learn(
    preset: str, task: str, algorithm: str, steps: int, untrained: float, wanted: float, train: Train
) -> None:
    """``untrained``: the mean return of random actions; over 100 episodes it varies by about 0.15."""
    assert wanted > untrained + 2
    job = job_of(task, algorithm, steps, wanted)

    async def scenario(run: Run) -> None:
        ended = (await run.until_ended()).status
        assert ended.preset == preset
        assert ended.message.startswith("stop.meanReturn is met"), ended.message

    train(job, scenario, code(tasks=TASKS))


@pytest.mark.parametrize(
    ("task", "algorithm", "wanted"),
    [("Continuous", "ppo", 4.0), ("Continuous", "ddpgApex", 4.0), ("Vectors", "a3c", 5.0)],
)
def test_samplers_with_rounded_parameters_learn_too(
    task: str, algorithm: str, wanted: float, train: Train
) -> None:
    """Each algorithm has another data path."""
    job = job_of(task, algorithm, 100_000, wanted, learner={"parameterPrecision": "BFloat16"})

    async def scenario(run: Run) -> None:
        ended = (await run.until_ended()).status
        assert ended.message.startswith("stop.meanReturn is met"), ended.message

    train(job, scenario, code(tasks=TASKS))
