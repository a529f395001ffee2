"""Clear errors for mistakes in environments that gymnasium detects late or reports unclearly."""

from __future__ import annotations

import re
import traceback
from collections.abc import Container, Iterable
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils import passive_env_checker

from rltraining_trainer.environments.magnitudes import numbers_in, overflow_error
from rltraining_trainer.environments.nested_spaces import Path, dotted, items_of
from rltraining_trainer.errors import (
    EnvironmentRaised,
    TrainerError,
    UserCodeError,
    text_of,
    user_code_error,
)
from rltraining_trainer.user_trace import user_trace

RETURNS = {
    "reset": "(observation, info)",
    "step": "(observation, reward, terminated, truncated, info)",
}
SIGNATURES = {"reset": "reset(self, *, seed=None, options=None)", "step": "step(self, action)"}
WRONG_SIGNATURE = re.compile(r"\(\) (got an unexpected keyword argument|takes \d|missing \d)")
"""The message of a call with arguments that the method does not have."""

UNEXPECTED_KEYWORD = re.compile(r"got an unexpected keyword argument '(\w+)'")


class WrongObservation(ValueError):
    """Raised for an observation or a mask that does not match its space. Its text is a clause after "step"."""


class WrongValue(ValueError):
    """Raised for a wrong return value beside the observation. Its text is a clause after "step"."""


def copy_array(
    observation: Any, space: spaces.Space, dtype: np.dtype | None, shape: tuple[int, ...] | None
) -> np.ndarray:
    """Copies an observation to an array, since environments may reuse the arrays that they return.

    Args:
        observation: What the environment returned.
        space: Space of the observation.
        dtype: The space's type. Callers cache it and the shape, which are slow properties of a
            space.
        shape: The space's shape.

    Raises:
        WrongObservation: The shape differs from the space's, or the elements are not numbers.
        WrongValue: An integer is too large for ``dtype``.
        FloatingPointError: A number is too large for ``dtype``.
    """
    try:
        if getattr(observation, "dtype", None) == dtype:
            copied = np.array(observation)
        else:
            with np.errstate(over="raise"):
                copied = np.array(observation, dtype)
    except (TypeError, ValueError) as error:
        raise WrongObservation(_mismatch(observation, space)) from error
    if copied.shape != shape:
        raise WrongObservation(_mismatch(observation, space))
    if copied.dtype.kind in "iu":
        check_integers(observation, space)
    return copied


def check_integers(observation: Any, space: spaces.Space) -> None:
    """Raises WrongValue if the type of the space cannot hold an integer of the observation.

    Numpy would wrap it: 300 in an image of bytes would become 44.
    """
    values, dtype = np.asarray(observation), space.dtype
    if dtype is None or values.dtype == dtype or dtype.kind not in "iu" or values.dtype.kind not in "iu":
        return
    limits = np.iinfo(dtype.name)
    if values.size and not (limits.min <= values.min() and values.max() <= limits.max):
        worst = values.max() if values.max() > limits.max else values.min()
        raise WrongValue(
            f"must return an observation of type {dtype} to match its observation space, got {worst} of type "
            f"{values.dtype}"
        )


def rejects_keywords(error: BaseException, given: Container[str]) -> bool:
    """Returns whether a call raised ``error`` because of its keywords.

    A TypeError that the called code raised later, such as that of ``int(None)``, has frames of user
    code. It concerns the keywords only if it names one of them, which the code passed on.

    Args:
        error: The exception of the call.
        given: Names of the keywords that the user gave.
    """
    text = text_of(error)
    if not isinstance(error, TypeError) or "argument" not in text:
        return False
    named = UNEXPECTED_KEYWORD.search(text)
    return not user_trace(error)[0] or (named is not None and named[1] in given)


def environment_error(
    name: str, method: str, error: BaseException, space: spaces.Space, observations: Iterable[Any] = ()
) -> TrainerError:
    """Converts an exception of an environment's method into a TrainerError with the user's
    traceback.

    Args:
        name: The environment's name.
        method: ``reset`` or ``step``.
        error: The exception that the method raised.
        space: The space of one observation.
        observations: Observations that may have been returned before the failure.
    """
    # Name the number that a conversion to the space's type could not hold.
    if isinstance(error, FloatingPointError):
        for observation in (given for given in observations if given is not None):
            if too_large := overflow_error(name, numbers_in(space, observation)):
                return too_large
    rule = mistake(space, method, error, observations)
    what = f"environment {name!r}: {method}"
    if rule:
        return UserCodeError(f"{what} {rule}")
    raised = user_code_error(what, error)
    return raised if raised is error else EnvironmentRaised(str(raised))


def not_finite(name: str, what: str) -> str:
    """Returns the message for ``what`` ("an observation" or "a reward") that is not finite."""
    return f"environment {name!r} returned {what} that is NaN or infinite"


def mistake(
    space: spaces.Space, method: str, error: BaseException, observations: Iterable[Any] = ()
) -> str | None:
    """Describes what is wrong with the return value of ``reset`` or ``step``, as a clause.

    Returns None if ``error`` has another cause.
    """
    if isinstance(error, WrongValue):
        return str(error)
    if isinstance(error, TypeError) and WRONG_SIGNATURE.search(str(error)) and not user_trace(error)[0]:
        return f"must be defined as {SIGNATURES[method]}, but raised TypeError: {error}"
    if (rule := _rule_of_gymnasium(error, method)) is not None:
        return rule
    is_described = isinstance(error, WrongObservation)
    if not is_described:
        if not isinstance(error, ValueError | TypeError | KeyError) or user_trace(error)[0]:
            return None  # an unrelated error, or an error of user code
        if "unpack" in str(error):
            return f"must return {RETURNS[method]}"
    # Find the part of an observation that is wrong.
    wrong = (_wrong_observation(observation, space) for observation in observations)
    return next(filter(None, wrong), str(error) if is_described else None)


def _rule_of_gymnasium(error: BaseException, method: str) -> str | None:
    """Describes what gymnasium's own check of the first step rejects, as a clause.

    That check raises before ours. Returns None for an error of another origin.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames or frames[-1][0].f_code.co_filename != passive_env_checker.__file__:
        return None
    text, result = text_of(error), frames[-1][0].f_locals.get("result")
    # Gymnasium accepts four values as the old API, and rejects the last one.
    is_short = isinstance(result, tuple) and len(result) == 4
    if method == "step" and ("tuple" in text or is_short):
        return f"must return {RETURNS[method]}"
    return "must return info as a dict" if "info" in text else None


def _wrong_observation(observation: Any, space: spaces.Space, path: Path = ()) -> str | None:
    """Describes a part of an observation that is missing, or has another shape or type than its
    space."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in items_of(space):
            at = (*path, key)
            try:
                value = observation[key]
            except (LookupError, TypeError):
                return f"must return observations with the part {dotted(at)!r} to match its observation space"
            if (clause := _wrong_observation(value, part, at)) is not None:
                return clause
        return None
    if space.shape is None or space.dtype is None or isinstance(space, spaces.Text):
        return None
    same_shape = shape_of(observation) == space.shape
    if same_shape and np.can_cast(np.asarray(observation).dtype, space.dtype, "same_kind"):
        return None
    return _mismatch(observation, space, path)


def _mismatch(observation: Any, space: spaces.Space, path: Path = ()) -> str:
    """Describes an observation, or its part at ``path``, of another shape or type than its space."""
    rule, got = f"shape {space.shape}", _describe(observation)
    if observation is not None and shape_of(observation) == space.shape:
        rule, got = f"type {space.dtype}", _type_of(np.asarray(observation))
    of = f"in which the part {dotted(path)!r} has" if path else "of"
    return f"must return an observation {of} {rule} to match its observation space, got {got}"


def _describe(observation: Any) -> str:
    if observation is None:
        return "None"
    shape = shape_of(observation)
    return "lists of different lengths" if shape is None else f"shape {shape}"


def _type_of(array: np.ndarray) -> str:
    return "text" if array.dtype.kind in "US" else str(array.dtype)


def shape_of(observation: Any) -> tuple[int, ...] | None:
    """Returns the shape of an array-like, or None for nested lists of different lengths."""
    try:
        return np.shape(observation)
    except ValueError:
        return None
