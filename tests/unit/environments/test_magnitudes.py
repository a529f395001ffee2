"""Finite numbers that are too large: which ones are rejected, and that the error names the number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from batches import in_turn, single
from counting import CountingEnv, HandWritten
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from rltraining_api.algorithms import Algorithm, Ppo, Sac
from rltraining_api.environment import Environment, Normalize
from rltraining_api.job import JobSpec
from rltraining_api.lifecycle import Stop
from rltraining_trainer.environments import Faults, Stepper
from rltraining_trainer.environments.magnitudes import FLOAT32_MAX, NORMALIZED_MAX, Limits
from rltraining_trainer.environments.packing import pack_environments
from rltraining_trainer.errors import Diverged, TooLarge

REMEDY = "if it happens only now and then, environment.onError: Reset lets training continue"
OVERFLOW = (
    "environment 'Mine' returned an observation with 1e+300 in element [1]{part}, which is too large for "
    "float32 (at most 3.4e+38): scale or clip it in the environment"
)
LIMIT = (
    "environment 'Mine' returned an observation with {value} in element [1], but environment.normalize "
    "needs numbers within ±1e+19: scale or clip it in the environment"
)
NORMALIZED = Limits(NORMALIZED_MAX, NORMALIZED_MAX)
PARTS = spaces.Dict(
    {"arm": spaces.Dict({"pose": spaces.Box(-np.inf, np.inf, (2,), np.float64)}), "kind": spaces.Discrete(3)}
)


class Large(CountingEnv):
    """Returns ``value`` as the second number of the third observation. Episodes never end."""

    def __init__(self, value: float, dtype: Any = np.float64, returned: Any = np.float64) -> None:
        super().__init__(0)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), dtype)
        self.value, self.returned, self.steps = value, returned, 0

    def step(self, action: int) -> Any:
        self.steps += 1
        numbers = np.array([self.steps, self.value if self.steps == 2 else 0.0])
        return numbers.astype(self.returned), 1.0, False, False, {}


class LargePart(Large):
    """The same number in a part of an observation."""

    def __init__(self, value: float) -> None:
        super().__init__(value)
        self.observation_space = PARTS

    def reset(self, **kwargs: Any) -> Any:
        return {"arm": {"pose": np.zeros(2)}, "kind": 1}, {}

    def step(self, action: int) -> Any:
        numbers, *rest = super().step(action)
        return {"arm": {"pose": numbers}, "kind": 1}, *rest


class LargeParts(HandWritten):
    """A user's vector environment of one ``LargePart``."""

    def __init__(self, value: float) -> None:
        super().__init__(1, AutoresetMode.NEXT_STEP)
        self._one = LargePart(value)
        self.single_observation_space = PARTS
        self.observation_space = batch_space(PARTS, 1)
        self.action_space = batch_space(self.single_action_space, 1)

    def _batch(self, observation: Any) -> Any:
        return concatenate(PARTS, [observation], create_empty_array(PARTS, 1))  # type: ignore[arg-type]

    def reset(self, **kwargs: Any) -> Any:
        return self._batch(self._one.reset()[0]), {}

    def step(self, action: np.ndarray) -> Any:
        observation, *_ = self._one.step(0)
        return self._batch(observation), np.ones(1), np.zeros(1, bool), np.zeros(1, bool), {}


def walk(stepper: Stepper, steps: int = 3) -> list[Any]:
    stepper.reset(0)
    return [stepper.step(np.zeros(stepper.environments.num_envs, np.int64)) for _ in range(steps)]


every_batch = pytest.mark.parametrize("batch", [SyncVectorEnv, single, in_turn])


@every_batch
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_a_number_that_float32_cannot_hold_is_named(batch: Callable[..., VectorEnv], dtype: Any) -> None:
    stepper = Stepper(batch([lambda: Large(1e300, dtype)]), "Mine")
    with pytest.raises(TooLarge) as caught:
        walk(stepper)
    assert str(caught.value) == f"{OVERFLOW.format(part='')}; {REMEDY}"
    assert stepper.stats.steps == 1, "the step with the number is not counted"


@pytest.mark.parametrize(
    "make",
    [
        lambda: SyncVectorEnv([lambda: LargePart(1e300)]),
        lambda: single([lambda: LargePart(1e300)]),
        lambda: in_turn([lambda: LargePart(1e300)]),
        lambda: LargeParts(1e300),
    ],
    ids=["sync", "single", "in turn", "vector"],
)
def test_the_part_of_the_number_is_named(make: Callable[[], VectorEnv]) -> None:
    with pytest.raises(TooLarge) as caught:
        walk(Stepper(pack_environments(make(), "Mine"), "Mine"))
    assert str(caught.value) == OVERFLOW.format(part=" of 'arm.pose'") + f"; {REMEDY}"


@every_batch
@pytest.mark.parametrize(("value", "text"), [(1e25, "1e+25"), (-1e20, "-1e+20"), (FLOAT32_MAX, "3.403e+38")])
def test_a_number_that_cannot_be_normalised_is_named(
    batch: Callable[..., VectorEnv], value: float, text: str
) -> None:
    makers = [lambda: Large(value, np.float32, np.float32)]
    with pytest.raises(TooLarge) as caught:
        walk(Stepper(batch(makers), "Mine", limits=NORMALIZED))
    assert str(caught.value) == f"{LIMIT.format(value=text)}; {REMEDY}"
    # Without normalisation, all finite numbers are accepted.
    assert walk(Stepper(batch(makers), "Mine"))[1].observation[0, 1] == np.float32(value)


@every_batch
def test_numbers_up_to_the_limit_are_accepted(batch: Callable[..., VectorEnv]) -> None:
    stepper = Stepper(batch([lambda: Large(-1e19, np.float32, np.float32)]), "Mine", limits=NORMALIZED)
    assert walk(stepper)[1].observation.tolist() == [[2.0, float(np.float32(-1e19))]]


@pytest.mark.parametrize(
    ("value", "dtype", "error"),
    [
        (1e25, np.float32, LIMIT.format(value="1e+25")),
        (1e300, np.float32, OVERFLOW.format(part="")),
        (1e300, np.float64, OVERFLOW.format(part="")),
        (np.nan, np.float32, "environment 'Mine' returned an observation that is NaN or infinite"),
        (np.inf, np.float64, "environment 'Mine' returned an observation that is NaN or infinite"),
    ],
)
def test_only_the_environment_with_the_number_is_reset(value: float, dtype: Any, error: str) -> None:
    makers = [lambda value=value: Large(value, dtype) for value in (0.0, value, 1.0)]
    stepper = Stepper(in_turn(makers), "Mine", Faults(resets=True, max_per_hour=1), NORMALIZED)
    steps = walk(stepper)
    assert [step.valid.tolist() for step in steps] == [[True] * 3, [True, False, True], [True] * 3]
    assert all(np.abs(step.observation).max() <= 3 for step in steps)
    assert stepper.stats.first_error == error
    assert stepper.stats.discarded == 1


def test_an_algorithm_of_the_user_receives_every_number_unless_failures_are_survived() -> None:
    def makers(value: float) -> list[Callable[[], gym.Env]]:
        return [lambda: Large(value, np.float32, np.float32)]

    free = Limits(observation=None)
    assert np.isnan(walk(Stepper(in_turn(makers(np.nan)), "Mine", limits=free))[1].observation[0, 1])
    faults = Faults(resets=True, max_per_hour=1)
    large, nan = (walk(Stepper(in_turn(makers(value)), "Mine", faults, free)) for value in (1e25, np.nan))
    assert large[1].observation[0, 1] == np.float32(1e25)
    assert not nan[1].valid[0]


BOTH = Normalize(observations=True, rewards=True)
ANY = FLOAT32_MAX


@pytest.mark.parametrize(
    ("algorithm", "normalize", "expected"),
    [
        (Algorithm(ppo=Ppo()), BOTH, Limits(1e19, 1e19)),
        (Algorithm(ppo=Ppo(reward_clip=1.0)), BOTH, Limits(1e19, ANY)),
        (Algorithm(sac=Sac()), Normalize(observations=True), Limits(1e19, ANY)),
        (Algorithm(ppo=Ppo()), Normalize(rewards=True), Limits(ANY, 1e19)),
        (Algorithm(ppo=Ppo()), None, Limits(ANY, ANY)),
        (Algorithm.model_validate({"entryPoint": {"module": "mine"}}), BOTH, Limits(None, ANY)),
    ],
)
def test_limits_follow_from_what_is_normalised(
    algorithm: Algorithm, normalize: Normalize | None, expected: Limits
) -> None:
    environment = Environment(id="Mine", normalize=normalize)
    spec = JobSpec(algorithm=algorithm, environment=environment, stop=Stop(environment_steps=1))
    assert Limits.of(spec) == expected


@pytest.mark.parametrize(
    ("reward", "error"),
    [
        (
            -1e25,
            "environment 'Mine' returned the reward -1e+25, but environment.normalize needs rewards within "
            f"±1e+19: scale or clip it in the environment, or set rewardClip; {REMEDY}",
        ),
        (np.inf, f"environment 'Mine' returned a reward that is NaN or infinite; {REMEDY}"),
    ],
)
def test_a_reward_that_cannot_be_normalised_is_named(reward: float, error: str) -> None:
    stepper = Stepper(in_turn([lambda: Large(0.0)]), "Mine", limits=NORMALIZED)
    stepper.check_rewards(np.array([1e19, -1e19], np.float32))
    with pytest.raises(Diverged) as caught:
        stepper.check_rewards(np.array([1.0, reward], np.float32))
    assert str(caught.value) == error
