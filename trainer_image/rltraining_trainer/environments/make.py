"""From ``spec.environment`` to a gymnasium vector environment."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv
from rltraining_api.environment import Environment

from rltraining_trainer.environments.batch import EnvironmentBatch, InThreads, InTurn, Slots, WholeBatch
from rltraining_trainer.environments.extras import missing_extra, register_extra
from rltraining_trainer.environments.packing import pack_environments
from rltraining_trainer.environments.processes import InProcesses
from rltraining_trainer.environments.single import SingleEnvironment
from rltraining_trainer.environments.slot import Slot
from rltraining_trainer.environments.wrappers import Wrapping, load_wrappers
from rltraining_trainer.errors import (
    BadConfiguration,
    TrainerError,
    UserCodeError,
    text_of,
    user_code,
    user_code_error,
)

_LOG = logging.getLogger(__name__)


def make_environments(spec: Environment, num_envs: int, **kwargs: Any) -> VectorEnv:
    """``num_envs`` copies of ``spec.id``, stepped together as ``spec.stepping`` says. Observations of several parts, and masks
    of valid actions, are packed into one array: see ``packed_space``.

    In turn (Serial), the environment's own ``vector_entry_point`` is used where it has one (the whole batch is then one
    computation), else gymnasium's ``SyncVectorEnv``. A single environment is no batch: it is made by its ``entry_point``
    (``SingleEnvironment``), unless what that makes has other spaces than the ``vector_entry_point``'s, or takes other keywords.
    Games of the Arcade Learning Environment are ``AtariGames``. ``spec.wrappers`` are around each single environment, which
    then is always made by the ``entry_point``.

    Where ``spec.onError`` is Reset, or ``spec.stepping`` is Threads or Processes, single environments are an
    ``EnvironmentBatch`` and others a ``WholeBatch``, which report errors instead of raising them (see ``faults``).
    ``kwargs`` (such as ``render_mode``) come on top of ``spec.kwargs``.

    Raises:
        BadConfiguration: no environment of that id, or a wrapper that does not fit it.
        UserCodeError: its module, its constructor or a wrapper of the user's raised.
    """
    environments = _make(spec, num_envs, kwargs)
    if spec.preprocessing is not None:
        return environments  # one array, all actions valid
    try:
        return pack_environments(environments, spec.id)
    except BaseException:
        close_environments(environments, spec.id)
        raise


def _make(spec: Environment, num_envs: int, kwargs: dict[str, Any]) -> VectorEnv:
    registered, wrappers = _find(spec)
    if spec.stepping != "Serial" and registered.entry_point is None:
        raise BadConfiguration(
            f"spec.environment.stepping: {spec.stepping} is for single environments, but {spec.id!r} has a vector_entry_point "
            "only, which steps all environments at once; leave stepping out, or register an entry_point too"
        )
    atari = spec.preprocessing
    wrapped = bool(wrappers or registered.additional_wrappers)
    vectorised = registered.vector_entry_point is not None and not wrapped
    options = _options(spec, kwargs)
    resets = spec.on_error == "Reset"

    def make() -> VectorEnv:
        with _making(spec):
            if atari is not None:
                # Imported here: a tenth of a second that only games cost.
                from rltraining_trainer.environments.atari import AtariGames

                return AtariGames(registered.kwargs["game"], num_envs, atari, **options)
            return gym.make_vec(
                registered.id, num_envs=num_envs, vectorization_mode="vector_entry_point", **options
            )

    if atari is not None or (vectorised and spec.stepping == "Serial"):
        batch: VectorEnv = WholeBatch(make, spec.id) if resets else make()
        single = num_envs == 1 and atari is None and not resets
        return (single and _single_like(batch, registered.id, options)) or batch
    if resets or spec.stepping != "Serial":
        return EnvironmentBatch(_slots(spec, num_envs, kwargs), num_envs)
    if num_envs == 1:
        return SingleEnvironment(make_environment(spec, **kwargs))
    with _making(spec):
        return gym.make_vec(
            registered.id,
            num_envs=num_envs,
            vectorization_mode="sync",
            wrappers=wrappers,  # type: ignore[arg-type]
            vector_kwargs={"autoreset_mode": AutoresetMode.NEXT_STEP},
            **options,
        )


def make_environment(spec: Environment, **kwargs: Any) -> gym.Env:
    """One environment, made by its ``entry_point``, in ``spec.wrappers``. Raises as ``make_environments``."""
    registered, wrappers = _find(spec)
    with _making(spec):
        environment = gym.make(registered.id, **_options(spec, kwargs))
        for wrap in wrappers:
            environment = wrap(environment)
        return environment


def preload(spec: Environment) -> None:
    """Import what ``make_environment`` will need. Raises what that import raises."""
    registered, _ = _find(spec)
    if isinstance(registered.entry_point, str):
        load_env_creator(registered.entry_point)


def _slots(spec: Environment, num_envs: int, kwargs: dict[str, Any]) -> Slots:
    make = partial(make_environment, spec, **kwargs)
    if spec.stepping == "Processes":
        return InProcesses(make, spec.id, num_envs, partial(preload, spec))
    slots = [Slot(make, spec.id) for _ in range(num_envs)]
    return InThreads(slots) if spec.stepping == "Threads" else InTurn(slots)


def _find(spec: Environment) -> tuple[EnvSpec, tuple[Wrapping, ...]]:
    """The registration of ``spec.id``, whose module is imported for that, and its wrappers."""
    id = _import_and_strip_module(spec.id)
    try:
        registered = gym.spec(id)
    except gym.error.Error as error:
        raise BadConfiguration(
            f"spec.environment.id: there is no environment {spec.id!r}: {_sentence(error)}"
        ) from error
    wrappers = load_wrappers(spec.wrappers)
    if wrappers and registered.entry_point is None:
        raise BadConfiguration(
            f"spec.environment.wrappers: they are around single environments, but {spec.id!r} has a vector_entry_point only; "
            "wrap it there, or register an entry_point too"
        )
    return registered, wrappers


def _options(spec: Environment, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keywords of the environment's constructor."""
    limit = {} if spec.max_episode_steps is None else {"max_episode_steps": spec.max_episode_steps}
    return {**spec.kwargs, **kwargs, **limit}


@contextmanager
def _making(spec: Environment) -> Iterator[None]:
    """Raises what goes wrong inside, where environments are made, as one of our errors."""
    try:
        yield
    except gym.error.DependencyNotInstalled as error:
        raise missing_extra(spec.id, error) or BadConfiguration(
            f"spec.environment.id: {spec.id!r} needs a package: {_sentence(error)}"
        ) from error
    except TrainerError:
        raise
    except BaseException as error:
        # A keyword too many, or one too few.
        if isinstance(error, TypeError) and "argument" in text_of(error):
            raise BadConfiguration(
                f"spec.environment.kwargs: {spec.id!r} does not take them: {_sentence(error)}"
            ) from error
        raise missing_extra(spec.id, error) or user_code_error(
            f"making environment {spec.id!r}", error
        ) from error


def make_spaces(spec: Environment) -> tuple[Space, Space]:
    """Of one observation and of one action, from an environment that is closed again. Raises as ``make_environments``."""
    environments = make_environments(spec.model_copy(update={"stepping": "Serial", "on_error": "Fail"}), 1)
    with user_code(f"environment {spec.id!r}: close"):
        environments.close()
    return environments.single_observation_space, environments.single_action_space


def close_environments(environments: VectorEnv, name: str) -> None:
    """At the end of a work, of which nothing is lost when this fails: that is a warning in the log."""
    try:
        with user_code(f"environment {name!r}: close"):
            environments.close()
    except UserCodeError as error:
        _LOG.warning("%s", error)


def _single_like(batch: VectorEnv, id: str, options: dict[str, Any]) -> VectorEnv | None:
    """Instead of ``batch``, of one environment, the same as a single one, if there is such."""
    if gym.spec(id).entry_point is None:
        return None
    try:
        environment = gym.make(id, **options)
    except (Exception, SystemExit):
        return None
    spaces = environment.observation_space, environment.action_space
    unlike = spaces != (batch.single_observation_space, batch.single_action_space)
    (environment if unlike else batch).close()
    return None if unlike else SingleEnvironment(environment)


def _import_and_strip_module(id: str) -> str:
    """``module:Id`` imports ``module``, which registers ``Id``; a plain id stays as it is."""
    module, separator, name = id.rpartition(":")
    try:
        if not separator:
            register_extra(id)
            return id
        importlib.import_module(module)
    except BaseException as error:
        raise missing_extra(id, error) or user_code_error(
            f"spec.environment.id: importing module {module!r}", error
        ) from error
    if name not in gym.registry:
        raise UserCodeError(
            f"spec.environment.id: module {module!r} was imported but registers no environment {name!r}; "
            f"call gymnasium.register(id={name!r}, ...) in it"
        )
    return name


def _sentence(error: BaseException) -> str:
    return text_of(error).strip().splitlines()[0] if text_of(error).strip() else type(error).__name__
