"""Evaluates policies: plays complete episodes in several environments at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rltraining_trainer.environments import Faults, Stepper, make_environments
from rltraining_trainer.environments.magnitudes import Limits
from rltraining_trainer.environments.packed_space import PackedSpace
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.policy.description import describe_space
from rltraining_trainer.policy.policy import Policy


@dataclass(frozen=True)
class Episode:
    """The undiscounted return and the length in steps of one episode."""

    return_: float
    length: int


@dataclass(frozen=True)
class Evaluation:
    """Episodes in the order of their ends, and statistics of their returns."""

    episodes: tuple[Episode, ...]
    discarded: int = 0
    """Number of episodes discarded because their environments failed."""

    @property
    def returns(self) -> np.ndarray:
        """``[N]``."""
        return np.array([episode.return_ for episode in self.episodes])

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def standard_deviation(self) -> float:
        """The standard deviation of the population, which is 0 for one episode."""
        return float(self.returns.std())


def evaluate(
    policy: Policy,
    episodes: int,
    *,
    seed: int = 0,
    deterministic: bool = True,
    num_envs: int = 16,
    on_episode: Callable[[Episode], None] = lambda _: None,
) -> Evaluation:
    """Plays ``episodes`` episodes in up to ``num_envs`` environments. Reproducible for a seed.

    Each environment plays a fixed number of episodes. Taking the first episodes that end would be
    biased towards short ones.

    Raises:
        UntrustedCode: The environment is user code, and the policy was loaded without
            ``trust_code``.
        BadConfiguration: The environment does not exist, or has other spaces than in training.
        UserCodeError: The environment raised an exception, and ``spec.environment.onError`` was Fail,
            or it raised too many.
    """
    num_envs = min(num_envs, episodes)
    to_play = np.full(num_envs, episodes // num_envs) + (np.arange(num_envs) < episodes % num_envs)
    finished: list[Episode] = []
    with open_environments(policy, num_envs) as stepper:
        for ended in play(policy, stepper, seed=seed, deterministic=deterministic):
            for environment, episode in ended:
                if to_play[environment]:
                    to_play[environment] -= 1
                    finished.append(episode)
                    on_episode(episode)
            if not to_play.any():
                break
        discarded = stepper.stats.discarded
    return Evaluation(tuple(finished), discarded)


@contextmanager
def open_environments(policy: Policy, num_envs: int, **kwargs: Any) -> Iterator[Stepper]:
    """Opens environments of the policy's job. ``kwargs`` are passed to their constructor."""
    policy.check_environment()
    spec = policy.description.environment
    stepper = Stepper(make_environments(spec, num_envs, **kwargs), spec.id, Faults.of(spec), Limits(None))
    try:
        _check_spaces(policy, stepper)
        yield stepper
    finally:
        stepper.close()


def play(
    policy: Policy, stepper: Stepper, *, seed: int, deterministic: bool
) -> Iterator[list[tuple[int, Episode]]]:
    """Plays without end. Yields the episodes that ended, after the reset and after each step."""
    rng_state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        policy.reset()
        observation = stepper.reset(seed)
        first = np.ones(len(observation), bool)
        returns, lengths = np.zeros(len(observation)), np.zeros(len(observation), int)
        yield []
        while True:
            # Act.
            step = stepper.step(policy.act_packed(observation, deterministic=deterministic, first=first))
            observation, first = step.observation, step.first
            # Update and report the returns.
            returns += step.reward
            lengths += step.valid
            if step.discarded is not None:
                returns[step.discarded], lengths[step.discarded] = 0.0, 0
            (ended,) = np.nonzero(step.over)
            yield [(int(i), Episode(float(returns[i]), int(lengths[i]))) for i in ended]
            returns[ended], lengths[ended] = 0.0, 0
    finally:
        torch.random.set_rng_state(rng_state)


def _check_spaces(policy: Policy, stepper: Stepper) -> None:
    environments = stepper.environments
    for what, trained, found in (
        ("observations", policy.observation_space, environments.single_observation_space),
        ("actions", policy.action_space, environments.single_action_space),
    ):
        if describe_space(found) != describe_space(trained):
            raise BadConfiguration(
                f"spec.environment.id: {stepper.name!r} has {what} of {found}, "
                f"but the policy was trained with {trained}"
            )
    found_space = environments.single_observation_space
    in_info = isinstance(found_space, PackedSpace) and found_space.mask_from_info
    if in_info != policy.description.action_mask_in_info:
        raise BadConfiguration(
            f'spec.environment.id: {stepper.name!r} returns {"an" if in_info else "no"} info["action_mask"], '
            f"but the policy was trained {'without' if in_info else 'with'} one"
        )
