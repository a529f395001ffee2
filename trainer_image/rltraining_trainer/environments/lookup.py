"""Finds registered environments by their ids, without making them."""

from __future__ import annotations

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from rltraining_trainer.environments.extras import missing_extra, register_extra
from rltraining_trainer.errors import BadConfiguration, text_of

OWN_ENVIRONMENT = "One of your own is named with its module: my_env:My-v0"


class NotInstalled(BadConfiguration):
    """The package that registers an environment may not be installed here."""


def find_registered(id: str, written: str) -> EnvSpec:
    """Returns the registration of an environment whose package is imported.

    Args:
        id: The id without a module.
        written: The id as the user has written it, for messages.

    Raises:
        BadConfiguration: There is no such environment. Names a similar one, if gymnasium knows one.
    """
    try:
        return gym.spec(id)
    except gym.error.Error as error:
        reason = sentence_of(error)
        is_known = isinstance(error, gym.error.VersionNotFound | gym.error.DeprecatedEnv)
        if ":" not in written and not is_known:
            reason += f"{'' if reason.endswith(('.', '?')) else '.'} {OWN_ENVIRONMENT}"
        message = f"spec.environment.id: there is no environment {written!r}: {reason}"
        # Without a similar name, a package that is not installed may register the environment.
        is_similar = is_known or "Did you mean" in reason
        raise (BadConfiguration if is_similar else NotInstalled)(message) from error


def check_registered(id: str) -> None:
    """Checks that an installed package registers an environment. Imports no user code.

    Args:
        id: An id without a module.

    Raises:
        NotInstalled: No installed package registers it or a similar one.
        BadConfiguration: There is no such environment.
    """
    try:
        register_extra(id)
    except ImportError as error:
        raise NotInstalled(str(missing_extra(id, error) or error)) from error
    find_registered(id, id)


def sentence_of(error: BaseException) -> str:
    """Returns the first line of an error's message, or its type."""
    lines = text_of(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
