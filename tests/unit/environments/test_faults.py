"""Environments that fail and are reset: the used steps, the counts and the limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from batches import in_turn
from counting import CountingEnv, HandWritten
from gymnasium.vector import AutoresetMode, VectorEnv
from rltraining_trainer.environments import EpisodeTracker, Faults, Stepper
from rltraining_trainer.environments.batch import EnvironmentBatch, WholeBatch
from rltraining_trainer.errors import Diverged, UserCodeError

B = 3


class Faulty(CountingEnv):
    """Has ``fault`` in its third step if its number is 1. Episodes never end."""

    def __init__(self, fault: str, number: int) -> None:
        super().__init__(0)
        self.fault, self.number, self.steps = fault, number, 0

    def step(self, action: int) -> Any:
        self.count, self.steps = self.count + 1, self.steps + 1
        observation, reward = self._observation(), 1.0
        if self.number == 1 and self.steps == 3:
            if self.fault == "raises":
                raise OSError("no power")
            if self.fault == "reward":
                reward = float("inf")
            else:
                observation[1] = np.nan
        return observation, reward, False, False, {}


class FaultyBatch(HandWritten):
    """The same as a single vector environment."""

    def __init__(self, fault: str, mode: AutoresetMode) -> None:
        super().__init__(B, mode)
        self._envs = [Faulty(fault, b) for b in range(B)]


def apart(fault: str) -> VectorEnv:
    return in_turn([lambda b=b: Faulty(fault, b) for b in range(B)])


@pytest.mark.parametrize("fault", ["raises", "observation", "reward"])
@pytest.mark.parametrize(
    "make",
    [
        apart,
        *(
            lambda fault, mode=mode: WholeBatch(lambda: FaultyBatch(fault, mode), "Mine")
            for mode in AutoresetMode
        ),
    ],
    ids=["apart", *(mode.name for mode in AutoresetMode)],
)
def test_a_failed_step_is_a_reset_and_nothing_of_it_is_learnt(
    make: Callable[[str], VectorEnv], fault: str
) -> None:
    environments = make(fault)
    stepper = Stepper(environments, "Mine", Faults(resets=True, max_per_hour=5))
    stepper.reset(0)
    steps = [stepper.step(np.zeros(B, np.int64)) for _ in range(6)]

    failed = steps[2]
    # A user's own batch is reset entirely, unless it supports the reset of some environments and can
    # still do so.
    alone = environments.metadata["rltraining/resetsAlone"] and (
        isinstance(environments, EnvironmentBatch) or fault != "raises"
    )
    hit = np.array([not alone, True, not alone])
    assert failed.discarded is not None
    assert failed.discarded.tolist() == hit.tolist()
    assert (failed.valid == ~hit).all()
    assert failed.first.tolist() == hit.tolist()
    assert failed.observation[hit, 1].tolist() == [0] * hit.sum(), "episodes begin"
    assert not failed.over.any()
    assert all(np.isfinite(part).all() for step in steps for part in (step.observation, step.reward))
    assert stepper.stats.steps == sum(step.valid.sum() for step in steps) == 6 * B - hit.sum()
    assert stepper.stats.discarded == hit.sum()
    assert stepper.stats.episodes == 0
    assert stepper.stats.first_error.startswith("environment 'Mine'")
    assert "\n" not in stepper.stats.first_error
    assert steps[3].valid.all()
    assert steps[3].discarded is None


def test_an_environment_that_fails_again_before_a_step_is_recreated() -> None:
    lives: list[Stuck] = []

    class Stuck(CountingEnv):
        """Fails from its second step on, in its first life."""

        def __init__(self) -> None:
            super().__init__(2)
            self.broken, self.seed = False, -1
            lives.append(self)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.seed = self.seed if seed is None else seed
            return super().reset(seed=seed)

        def step(self, action: int) -> Any:
            self.broken |= self.count == 1 and len(lives) == 1
            return super().step(1 // (1 - self.broken) - 1)

    environments = in_turn([Stuck])
    stepper = Stepper(environments, "Mine", Faults(resets=True, max_per_hour=5))
    stepper.reset(11)
    steps = [stepper.step(np.zeros(1, np.int64)) for _ in range(5)]

    assert [bool(step.valid[0]) for step in steps] == [True, False, False, True, True]
    assert [env.seed for env in lives] == [11, 12], "the new one has another seed"


def test_the_error_after_the_last_that_is_survived_in_an_hour_is_raised_as_it_is() -> None:
    now = 0.0
    faults = Faults(resets=True, max_per_hour=2, clock=lambda: now)
    error = UserCodeError("environment 'Mine': step raised OSError: no power\nTraceback ...")
    for now in (0.0, 10.0, 3601.0, 3611.0):  # noqa: B007
        faults.add([error])
    with pytest.raises(UserCodeError) as caught:
        faults.add([error])
    assert str(caught.value) == (
        "more than 2 errors of environments within an hour (spec.environment.maxErrorsPerHour): fix the "
        "environment, or set the limit above a sampler's steps per hour times the rate of errors; the last: "
        f"{error}"
    )


def test_a_first_reset_that_keeps_failing_is_not_a_matter_of_the_limit() -> None:
    class Closed(CountingEnv):
        def reset(self, **kwargs: Any) -> Any:
            raise OSError("no map")

    environments = in_turn([lambda: Closed(0)])
    with pytest.raises(UserCodeError) as caught:
        Stepper(environments, "Mine", Faults(resets=True, max_per_hour=2)).reset(0)
    assert str(caught.value).startswith(
        "more than 2 errors of environments within an hour (spec.environment.maxErrorsPerHour): fix the first "
        "reset, which keeps failing; the last: environment 'Mine': reset raised OSError: no map"
    )


def test_without_a_policy_the_first_error_is_raised() -> None:
    stepper = Stepper(apart("raises"), "Mine")
    stepper.reset(0)
    stepper.step(np.zeros(B, np.int64))
    stepper.step(np.zeros(B, np.int64))
    with pytest.raises(
        UserCodeError,
        match=r"^environment 'Mine': step raised OSError: no power \(test_faults\.py, line \d+\); if it "
        r"happens only now and then, environment\.onError: Reset lets training continue\nTraceback",
    ):
        stepper.step(np.zeros(B, np.int64))


def test_nan_that_is_too_much_is_a_divergence() -> None:
    stepper = Stepper(apart("observation"), "Mine", Faults(resets=True, max_per_hour=0))
    stepper.reset(0)
    for _ in range(2):
        stepper.step(np.zeros(B, np.int64))
    with pytest.raises(
        Diverged, match="the last: environment 'Mine' returned an observation that is NaN or infinite"
    ):
        stepper.step(np.zeros(B, np.int64))


def test_an_episode_that_is_discarded_has_no_return_and_leaves_none_to_the_next() -> None:
    tracker = EpisodeTracker(1)
    reward, valid = np.ones((6, 1), np.float32), np.ones((6, 1), bool)
    ended, discarded = np.zeros((2, 6, 1), bool)
    valid[2], discarded[2], ended[4] = False, True, True

    returns, lengths = tracker.add(reward, ended, valid, discarded=discarded)
    assert (returns.tolist(), lengths.tolist()) == ([2.0], [2])
    returns, _ = tracker.add(reward, ended, valid, discarded=np.zeros_like(ended))
    assert returns.tolist() == [1 + 4.0], "the step after the end counts for the next"
