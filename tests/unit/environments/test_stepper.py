"""Stepper: the same result in every autoreset mode."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from batches import single
from counting import HandWritten, length, reward, synchronous, terminates, truncates
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from rltraining_trainer.environments import Stepper
from rltraining_trainer.errors import BadConfiguration, UserCodeError

REMEDY = "if it happens only now and then, environment.onError: Reset lets training continue"
FIRST_RESET_REMEDY = (
    "this was the first reset, so fix it: environment.onError: Reset helps only if errors happen now and then"
)
MODES = list(AutoresetMode)
MAKERS = [synchronous, HandWritten]
B = 4


def walk(stepper: Stepper, steps: int) -> list[list[tuple]]:
    """Returns the transitions of each environment in order.

    A transition is (observation acted on, reward, terminated, truncated, next observation).
    """
    observation = stepper.reset(0).copy()
    assert observation.dtype == np.float32
    first = np.ones(B, bool)
    story: list[list[tuple]] = [[] for _ in range(B)]
    for _ in range(steps):
        step = stepper.step(np.zeros(B, np.int64))
        flags = (step.terminated, step.truncated, step.valid, step.first)
        assert all(flag.dtype == bool for flag in flags)
        floats = (step.observation, step.reward, step.final)
        assert all(part is None or part.dtype == np.float32 for part in floats)
        for b in range(B):
            if not step.valid[b]:
                assert step.first[b], "a row that is no step is a reset"
                assert step.reward[b] == 0.0, "a reset has no reward"
                continue
            assert first[b] == (observation[b][1] == 0), "first says where an episode begins"
            ended = step.terminated[b] or step.truncated[b]
            followed = step.final if ended and step.final is not None else step.observation
            story[b].append(
                (
                    tuple(observation[b]),
                    step.reward[b],
                    step.terminated[b],
                    step.truncated[b],
                    tuple(followed[b]),
                )
            )
        observation, first = step.observation.copy(), step.first.copy()
    return story


def truth(b: int, steps: int) -> list[tuple]:
    """Returns the course of environment b, from CountingEnv's definition."""
    told: list[tuple] = []
    episode = b
    while len(told) < steps:
        for count in range(length(episode)):
            end = count + 1 == length(episode)
            told.append(
                (
                    (episode, count),
                    reward(episode, count),
                    end and terminates(episode),
                    end and truncates(episode),
                    (episode, count + 1),
                )
            )
        episode += 1
    return told


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", MAKERS)
def test_every_step_is_returned_once_with_its_true_successor(
    make: Callable[[int, AutoresetMode], VectorEnv], mode: AutoresetMode
) -> None:
    stepper = Stepper(make(B, mode), "Counting")

    stories = walk(stepper, 40)

    for b, story in enumerate(stories):
        assert len(story) > 25
        assert story == truth(b, len(story))[: len(story)], f"environment {b}"
    steps = [step for story in stories for step in story]
    assert stepper.stats.steps == len(steps), "a reset is no step"
    assert stepper.stats.episodes == sum(terminated or truncated for *_, terminated, truncated, _ in steps)
    assert stepper.stats.seconds > 0


def test_what_infos_of_the_users_environments_say_of_lives_changes_nothing() -> None:
    class Lives(Faulty):
        def step(self, action: int) -> tuple[Any, Any, bool, bool, dict]:
            return *super().step(action)[:4], {"life_lost": True}

    stepper = Stepper(SyncVectorEnv([lambda: Lives("nowhere", divide)]), "Mine")
    stepper.reset(0)
    step = stepper.step(np.zeros(1, np.int64))
    assert not any((step.terminated[0], step.first[0], step.over[0]))


def test_each_environment_gets_a_seed_of_its_own_and_only_once() -> None:
    environments = synchronous(3, AutoresetMode.DISABLED)
    stepper = Stepper(environments, "Counting")
    stepper.reset(7)
    for _ in range(4):
        stepper.step(np.zeros(3, np.int64))

    seeds = [env.seeds for env in environments.envs]
    assert [s[0] for s in seeds] == [7, 8, 9]
    assert all(seed is None for s in seeds for seed in s[1:])


@pytest.mark.parametrize("metadata", [{}, {"autoreset_mode": "NextStep"}])
def test_an_environment_that_does_not_say_how_it_resets_is_refused(metadata: dict) -> None:
    environments = synchronous(1, AutoresetMode.NEXT_STEP)
    environments.metadata = metadata

    with pytest.raises(
        BadConfiguration,
        match=r"spec\.environment\.id: 'Odd' declares no autoreset mode; set metadata",
    ):
        Stepper(environments, "Odd")


class Faulty(gym.Env):
    """Executes ``fault`` in ``where``."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, where: str, fault: Callable[[], Any]) -> None:
        self.where, self.fault = where, fault

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        return (
            self.fault() if self.where == "reset" else np.zeros(self.observation_space.shape, np.float32)
        ), {}

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict]:
        return (
            (self.fault() if self.where == "step" else np.zeros(self.observation_space.shape, np.float32)),
            0.0,
            False,
            False,
            {},
        )


def divide() -> Any:
    return 1 / 0


def leave() -> Any:
    raise SystemExit(0)


class Gone(Exception):
    def __str__(self) -> str:
        raise SystemExit(0)


def go() -> Any:
    raise Gone


def ramble() -> Any:
    raise ValueError("x" * 1_000_000)


def interrupt() -> Any:
    raise KeyboardInterrupt


@contextmanager
def on_ctrl_c(handler: Any) -> Iterator[None]:
    """Sets the handler explicitly, because a shell that runs the tests in the background changes it."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_is_nobodys_mistake() -> None:
    with on_ctrl_c(signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        told("step", interrupt)


def test_a_keyboard_interrupt_where_ctrl_c_is_handled_is_the_environments_mistake() -> None:
    with on_ctrl_c(signal.SIG_IGN):
        text = told("step", interrupt)
    assert text.startswith("environment 'Mine': step raised KeyboardInterrupt (test_stepper.py, line ")


def test_an_environment_that_cannot_be_closed_after_its_work_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stuck(Faulty):
        closed = False

        def close(self) -> None:
            if not self.closed:  # gymnasium tries again when the object is collected
                self.closed = True
                self.fault()

    Stepper(SyncVectorEnv([lambda: Stuck("close", divide)]), "Mine-v0").close()
    assert "environment 'Mine-v0': close raised ZeroDivisionError: division by zero" in caplog.text


@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (divide, "ZeroDivisionError: division by zero"),
        (leave, "SystemExit: 0"),
        (go, "Gone: <exception str() failed>"),
    ],
    ids=["raises", "exits", "exits when its text is asked for"],
)
def test_what_the_environment_does_wrong_is_the_users_with_its_traceback(
    where: str, fault: Callable[[], Any], said: str
) -> None:
    first, _, trace = told(where, fault).partition("\n")
    line = fault.__code__.co_firstlineno + 1
    raised = f"environment 'Mine': {where} raised {said} (test_stepper.py, line {line})"
    assert first == f"{raised}; {FIRST_RESET_REMEDY if where == 'reset' else REMEDY}"
    header, begin, *_, last = trace.splitlines()
    assert header == "Traceback (most recent call last):"
    assert "test_stepper.py" in begin, "it begins where their code does"
    assert f"in {fault.__name__}" in trace
    assert last.removeprefix(f"{__name__}.") == said


def test_however_much_it_says_the_place_is_seen() -> None:
    text = told("step", ramble)
    assert len(text) < 4096
    first, _, trace = text.partition("\n")
    line = ramble.__code__.co_firstlineno + 1
    assert re.fullmatch(rf".* raised ValueError: x+\.\.\. \(test_stepper\.py, line {line}\); {REMEDY}", first)
    assert "in ramble" in trace


SHAPE = "must return an observation of shape (2,) to match its observation space, got"


@pytest.mark.parametrize("batch", [SyncVectorEnv, single])
@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.parametrize(
    ("observation", "rule"),
    [
        (np.zeros(3, np.float32), f"{SHAPE} shape (3,)"),
        ("nonsense", f"{SHAPE} shape ()"),
        (None, f"{SHAPE} None"),
        ([[1.0], [1.0, 2.0]], f"{SHAPE} lists of different lengths"),
    ],
)
def test_an_observation_of_another_shape_is_reported(
    where: str, observation: Any, rule: str, batch: Callable[..., VectorEnv]
) -> None:
    assert told(where, lambda: observation, batch) == f"environment 'Mine': {where} {rule}"


class Forgetful(Faulty):
    """Returns fewer values than gymnasium's rules require."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)

    def reset(self, **kwargs: Any) -> Any:
        observation, info = super().reset(**kwargs)
        return observation if self.where == "reset" else (observation, info)

    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


@pytest.mark.parametrize(
    ("where", "rule"),
    [
        ("reset", "must return (observation, info)"),
        ("step", "must return (observation, reward, terminated, truncated, info)"),
    ],
)
@pytest.mark.parametrize("batch", [SyncVectorEnv, single])
def test_a_return_value_of_the_wrong_form_is_reported(
    where: str, rule: str, batch: Callable[..., VectorEnv]
) -> None:
    stepper = Stepper(batch([lambda: Forgetful(where, lambda: np.zeros(3, np.float32))]), "Mine")

    def reset_and_step() -> None:
        stepper.reset(0)
        stepper.step(np.zeros(1, np.int64))

    with pytest.raises(UserCodeError) as caught:
        reset_and_step()
    assert str(caught.value) == f"environment 'Mine': {where} {rule}"


def told(where: str, fault: Callable[[], Any], batch: Callable[..., VectorEnv] = SyncVectorEnv) -> str:
    """Returns the error message for an environment with a fault in reset or step."""
    stepper = Stepper(batch([lambda: Faulty(where, fault)]), "Mine")
    with pytest.raises(UserCodeError) as caught:  # noqa: PT012
        stepper.reset(0)
        stepper.step(np.zeros(1, np.int64))
    return str(caught.value)


def test_observations_that_do_not_match_the_space_are_reported() -> None:
    environments = HandWritten(2, AutoresetMode.NEXT_STEP)
    environments.single_observation_space = spaces.Box(-1, 1, (3,), np.float32)

    with pytest.raises(
        UserCodeError, match=r"reset returned observations of shape \(2, 2\).*requires \(2, 3\)"
    ):
        Stepper(environments, "Mine").reset(0)


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (spaces.Box(-1, 1, (2,), np.float64), np.float32),
        (spaces.Box(-1, 1, (2,), np.float16), np.float32),
        (spaces.Box(0, 255, (2,), np.uint8), np.uint8),
        (spaces.Box(-9, 9, (2,), np.int32), np.int32),
        (spaces.MultiBinary(2), np.int8),
    ],
    ids=str,
)
def test_floats_come_as_float32_and_the_rest_as_the_space_says(space: spaces.Space, dtype: type) -> None:
    environments = HandWritten(2, AutoresetMode.NEXT_STEP)  # returns float64 whatever the space
    environments.single_observation_space = space
    stepper = Stepper(environments, "Mine")

    assert stepper.reset(0).dtype == dtype
    assert stepper.step(np.zeros(2, np.int64)).observation.dtype == dtype
