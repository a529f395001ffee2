"""Renders an episode of a policy frame by frame."""

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
    """The frames of one episode, which is played while they are iterated over."""

    frames: Iterator[np.ndarray]
    """``[H, W, 3]`` uint8 each."""
    frames_per_second: float


@contextmanager
def film(policy: Policy, *, seed: int = 0, deterministic: bool = True) -> Iterator[Film]:
    """Opens an environment for ``with film(policy) as taken: for frame in taken.frames: ...``.

    Raises:
        UntrustedCode: The environment is user code, and the policy was loaded without
            ``trust_code``.
        BadConfiguration: The environment cannot be rendered, or has other spaces than in training.
        UserCodeError: The environment raised an exception.
    """
    _check_can_be_filmed(policy)
    with open_environments(policy, 1, render_mode=RENDER_MODE) as stepper:
        rate = float(stepper.environments.metadata.get("render_fps") or 30)
        yield Film(_frames(policy, stepper, seed, deterministic), rate)


def _check_can_be_filmed(policy: Policy) -> None:
    """Checks the render modes of an environment that is created without one.

    With an unsupported mode gymnasium would only warn, and pass the mode to the constructor.
    """
    with open_environments(policy, 1) as stepper:
        if RENDER_MODE not in (stepper.environments.metadata.get("render_modes") or ()):
            raise BadConfiguration(
                f'environment {stepper.name!r} cannot be filmed: it does not offer render_mode "{RENDER_MODE}"; '
                f'add "{RENDER_MODE}" to its metadata["render_modes"] and return an image from its render()'
            )


def _frames(policy: Policy, stepper: Stepper, seed: int, deterministic: bool) -> Iterator[np.ndarray]:
    for ended in play(policy, stepper, seed=seed, deterministic=deterministic):
        with user_code(f"environment {stepper.name!r}: render"):
            rendered = stepper.environments.render()
        if rendered is None or not isinstance(rendered[0], np.ndarray):
            raise BadConfiguration(
                f"environment {stepper.name!r} cannot be filmed: its render() returns no image"
            )
        yield rendered[0]
        if ended:
            return
