"""The trainer and a hostile stranger, as forks of one warm template, so that torch is imported once for both."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import rltraining_trainer  # noqa: F401 - before torch, as in a pod

# isort: split
import gymnasium as gym
import transport_members
from rltraining_api.contract import ENV_OUTPUT_DIR, ENV_POD_NAME
from rltraining_trainer.roles import main as trainer
from rltraining_trainer.roles import record
from rltraining_trainer.world import world

LAST_WRITES, LINGER = "TEST_LAST_WRITES_SECONDS", "TEST_LINGER_SECONDS"
"""Environment variables: how long storage is retried at the end of a run, and how long learners linger."""
GRACE = "TEST_SAMPLER_GRACE_SECONDS"
"""Environment variable: how long a sampler may take to end in order."""
STEP_SECONDS = 0.0002
HOLD_SECONDS = 0.005


class Paced(gym.Wrapper):
    """A game that sleeps in each step, so that the runs of several tests fit on two cores.

    Steps of a sampler block while its file exists, which `Run.hold` makes.
    """

    def __init__(self, game: str) -> None:
        super().__init__(gym.make(game).unwrapped)
        self._held = Path(os.environ[ENV_OUTPUT_DIR], f"hold-{os.environ[ENV_POD_NAME]}")

    def step(self, action: Any) -> Any:
        time.sleep(STEP_SECONDS)
        said = False
        while self._held.exists():
            if not said:
                print("an environment is held", flush=True)
                said = True
            time.sleep(HOLD_SECONDS)
        return self.env.step(action)


gym.register("PacedCartPole-v1", entry_point=Paced, max_episode_steps=500, kwargs={"game": "CartPole-v1"})
gym.register("PacedPendulum-v1", entry_point=Paced, max_episode_steps=200, kwargs={"game": "Pendulum-v1"})


def main(argv: list[str]) -> int:
    """Runs `learner`, `sampler`, or `stranger URL TRACE SECRET RAW SAID`.

    The stranger's output goes to the file SAID, because torch logs to the terminal.
    """
    if argv[0] != "stranger":
        record.LAST_WRITES_SECONDS = float(os.environ.get(LAST_WRITES, record.LAST_WRITES_SECONDS))
        trainer.SAMPLER_GRACE = float(os.environ.get(GRACE, trainer.SAMPLER_GRACE))
        world.LINGER_SECONDS = float(os.environ.get(LINGER, world.LINGER_SECONDS))
        return trainer.main(argv)
    url, trace, secret, raw, said = argv[1:]
    with Path(said).open("w") as file:

        def say(line: str) -> None:
            print(line, file=file, flush=True)

        transport_members.caller(say, url, "another token")
        transport_members.stranger(say, url, trace, secret, raw)
    return 0
