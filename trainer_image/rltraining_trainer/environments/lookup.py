"""Finds registered environments by their ids, without making them."""

from __future__ import annotations

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, find_highest_version, parse_env_id

from rltraining_trainer.environments.extras import NotInstalled, check_imports, missing_extra, register_extra
from rltraining_trainer.errors import BadConfiguration, text_of

OWN_ENVIRONMENT = "One of your own is named with its module: my_env:My-v0"


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
        reason = _with_version(id) or sentence_of(error)
        is_known = isinstance(error, gym.error.VersionNotFound | gym.error.DeprecatedEnv)
        if ":" not in written and not is_known:
            reason += f"{'' if reason.endswith(('.', '?')) else '.'} {OWN_ENVIRONMENT}"
        message = f"spec.environment.id: there is no environment {written!r}: {reason}"
        # Without a similar name, a package that is not installed may register the environment.
        is_similar = is_known or "Did you mean" in reason
        raise (BadConfiguration if is_similar else NotInstalled)(message) from error


def check_registered(id: str) -> None:
    """Checks that an environment of an installed package can be made. Imports no user code.

    Args:
        id: An id without a module.

    Raises:
        NotInstalled: No installed package registers it or a similar one, or it needs another package.
        BadConfiguration: There is no such environment.
    """
    try:
        register_extra(id)
    except ImportError as error:
        raise missing_extra(id, error) or NotInstalled(str(error)) from error
    check_imports(find_registered(id, id), id)


def _with_version(id: str) -> str:
    """Returns a question that names the newest version, for the id of an environment without its version."""
    try:
        namespace, name, version = parse_env_id(id)
    except gym.error.Error:
        return ""
    newest = find_highest_version(namespace, name) if version is None else None
    return "" if newest is None else f"An id ends with its version. Did you mean: `{id}-v{newest}`?"


def sentence_of(error: BaseException) -> str:
    """Returns the first line of an error's message, or its type."""
    lines = text_of(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
