"""An episode in pictures; who looks at them may write a video."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from rltraining_trainer.environments import Stepper
from rltraining_trainer.errors import BadConfiguration, user_code
from rltraining_trainer.policy.evaluate import open_environments, play
from rltraining_trainer.policy.policy import Policy

RENDER_MODE = "rgb_array"


@dataclass(frozen=True)
class Film:
    """The frames of one episode, played while they are taken."""

    frames: Iterator[np.ndarray]
    """``[H, W, 3]`` uint8 each."""
    frames_per_second: float


@contextmanager
def film(policy: Policy, *, seed: int = 0, deterministic: bool = True) -> Iterator[Film]:
    """``with film(policy) as taken: for frame in taken.frames: ...``

    Raises:
        UntrustedCode: the environment is user code, and the policy was loaded without ``trust_code``.
        BadConfiguration: the environment cannot be filmed, or is not the one the policy was trained for.
        UserCodeError: the environment raised.
    """
    _check_can_be_filmed(policy)
    with open_environments(policy, 1, render_mode=RENDER_MODE) as stepper:
        rate = float(stepper.environments.metadata.get("render_fps") or 30)
        yield Film(_frames(policy, stepper, seed, deterministic), rate)


def _check_can_be_filmed(policy: Policy) -> None:
    """Ask an environment that was made without a render mode: gymnasium would warn of one that is not offered, then
    hand it to a constructor that may not know it."""
    with open_environments(policy, 1) as stepper:
        if RENDER_MODE not in (stepper.environments.metadata.get("render_modes") or ()):
            raise BadConfiguration(
                f'environment {stepper.name!r} cannot be filmed: it does not offer render_mode "{RENDER_MODE}"'
            )


def _frames(policy: Policy, stepper: Stepper, seed: int, deterministic: bool) -> Iterator[np.ndarray]:
    for ended in play(policy, stepper, seed=seed, deterministic=deterministic):
        with user_code(f"environment {stepper.name!r}: render"):
            rendered = stepper.environments.render()
        if rendered is None or not isinstance(rendered[0], np.ndarray):
            raise BadConfiguration(
                f"environment {stepper.name!r} cannot be filmed: its render() gives no picture"
            )
        yield rendered[0]
        if ended:
            return
