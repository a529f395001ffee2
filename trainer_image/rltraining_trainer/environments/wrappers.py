"""Loads the wrappers of ``spec.environment.wrappers``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import gymnasium as gym
from gymnasium import wrappers as gymnasium_wrappers
from rltraining_api.environment import Wrapper

from rltraining_trainer.environments.mistakes import rejects_keywords
from rltraining_trainer.errors import BadConfiguration, UserCodeError, one_line, user_code, user_code_error

REFUSED = {
    "NormalizeObservation": "its statistics stay in one environment and are not part of the policy; "
    "use environment.normalize.observations",
    "NormalizeReward": "its statistics stay in one environment; use environment.normalize.rewards",
    "RecordVideo": "it writes files in each sampler; use rltrain evaluate --video",
    "HumanRendering": "samplers have no screen; use rltrain evaluate --video",
    "Autoreset": "environments that are stepped together are reset by the trainer; leave it out",
}
"""Gymnasium wrappers that are rejected: the reason and the alternative."""


@dataclass(frozen=True)
class Wrapping:
    """A loaded item of ``spec.environment.wrappers``, which wraps one environment when called."""

    factory: Callable[..., gym.Env]
    kwargs: dict[str, Any]
    field: str
    title: str
    is_user_code: bool

    def __call__(self, environment: gym.Env) -> gym.Env:
        """Returns the wrapped environment.

        Raises:
            BadConfiguration: The wrapper rejects its keywords or the environment.
            UserCodeError: A user's wrapper raised, or did not return an environment.
        """
        try:
            wrapped = self.factory(environment, **self.kwargs)
        except BaseException as error:
            if rejects_keywords(error, self.kwargs):
                raise BadConfiguration(
                    f"{self.field}.kwargs: {self.title} does not take them: {one_line(error)}"
                ) from error
            if self.is_user_code or not isinstance(error, Exception):
                raise user_code_error(f"{self.field}: {self.title}(environment)", error) from error
            raise BadConfiguration(
                f"{self.field}: {self.title} does not fit the environment: {one_line(error)}"
            ) from error
        if not isinstance(wrapped, gym.Env):
            raise UserCodeError(
                f"{self.field}: {self.title} must return a gymnasium.Env, got {type(wrapped).__name__}"
            )
        return wrapped


def load_wrappers(wrappers: Sequence[Wrapper]) -> tuple[Wrapping, ...]:
    """Returns the wrappers in the order in which they are applied.

    Raises:
        BadConfiguration: There is no wrapper of that name, or it is one of ``REFUSED``.
        UserCodeError: The module of an ``entryPoint`` cannot be imported, or lacks the class.
    """
    return tuple(_load(wrapper, f"spec.environment.wrappers[{i}]") for i, wrapper in enumerate(wrappers))


def check_names(wrappers: Sequence[Wrapper]) -> None:
    """Checks the names of gymnasium's wrappers. Makes nothing and imports no user code.

    Raises:
        BadConfiguration: There is no wrapper of that name, or it is one of ``REFUSED``.
    """
    for i, wrapper in enumerate(wrappers):
        if wrapper.name is not None:
            _check_name(wrapper.name, f"spec.environment.wrappers[{i}].name")


def _load(wrapper: Wrapper, field: str) -> Wrapping:
    if wrapper.entry_point is None:
        assert wrapper.name is not None
        factory: Any = _of_gymnasium(wrapper.name, f"{field}.name")
    else:
        factory = _of_user(wrapper.entry_point, f"{field}.entryPoint")
    return Wrapping(factory, wrapper.kwargs, field, wrapper.title, wrapper.entry_point is not None)


def _check_name(name: str, field: str) -> None:
    if name in REFUSED:
        raise BadConfiguration(f"{field}: {name} cannot be used: {REFUSED[name]}")
    known = [known for known in gymnasium_wrappers.__all__ if known != "vector"]
    if name not in known:
        close = get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"they are: {', '.join(known)}"
        raise BadConfiguration(f"{field}: gymnasium.wrappers has no {name!r}; {hint}")


def _of_gymnasium(name: str, field: str) -> type[gym.Wrapper]:
    _check_name(name, field)
    try:
        # Gymnasium imports some wrappers lazily, since they need further packages.
        wrapper: type[gym.Wrapper] = getattr(gymnasium_wrappers, name)
    except (gym.error.Error, ImportError, AttributeError) as error:
        raise BadConfiguration(f"{field}: {name} cannot be imported: {one_line(error)}") from error
    return wrapper


def _of_user(entry_point: str, field: str) -> Callable[..., gym.Env]:
    module_name, _, path = entry_point.partition(":")
    with user_code(f"{field}: importing {module_name!r}"):
        module = importlib.import_module(module_name)
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise UserCodeError(f"{field}: module {module_name!r} has no {path!r} that can be called")
    return found
