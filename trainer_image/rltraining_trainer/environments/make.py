"""Makes the gymnasium vector environment that ``spec.environment`` describes."""

from __future__ import annotations

import importlib
import logging
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import VectorEnv
from rltraining_api.environment import Environment

from rltraining_trainer.environments.batch import (
    EnvironmentBatch,
    InThreads,
    InTurn,
    SerialEnvironments,
    Slots,
    WholeBatch,
)
from rltraining_trainer.environments.checked_batch import check_batch
from rltraining_trainer.environments.extras import NotInstalled, missing_extra, register_extra
from rltraining_trainer.environments.lookup import find_registered, sentence_of
from rltraining_trainer.environments.mistakes import rejects_keywords
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
from rltraining_trainer.time_limit import TimeLimitExceeded, time_limit
from rltraining_trainer.user_trace import user_trace

CLOSE_SECONDS = 30.0
"""Time limit of an environment's ``close``."""

_LOG = logging.getLogger(__name__)


def make_environments(spec: Environment, num_envs: int, **kwargs: Any) -> VectorEnv:
    """Makes ``num_envs`` copies of ``spec.id`` as one vector environment.

    Composite observations and masks of valid actions are packed into one array (see
    ``packed_space``). The class depends on the spec, first match wins:

    - Games of the Arcade Learning Environment: ``AtariGames``.
    - A ``vector_entry_point``, no wrappers, stepping Serial: the user's vector environment, which
      computes the whole batch at once. A single environment is then made by the ``entry_point`` if
      that has the same spaces and keywords, since stepping it is faster.
    - onError Reset, or stepping Threads or Processes: ``EnvironmentBatch``.
    - One environment: ``SingleEnvironment``.
    - Otherwise ``SerialEnvironments``, a ``SyncVectorEnv`` of gymnasium.

    With onError Reset the first two are wrapped in a ``WholeBatch``, so that all classes report
    errors instead of raising them (see ``faults``). Wrappers are applied to each single
    environment.

    Args:
        spec: What to make.
        num_envs: Number of environments.
        kwargs: Keywords of the constructor, such as ``render_mode``, in addition to
            ``spec.kwargs``.

    Raises:
        BadConfiguration: There is no environment with that id, or a wrapper does not fit it.
        UserCodeError: The environment's module, its constructor or a user's wrapper raised, or changed
            torch's default type.
    """
    # A simulator may disable gradients, which the trainer needs, or change the type of all new tensors.
    default = torch.get_default_dtype()
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        environments = _make(spec, num_envs, kwargs)
    if (changed := torch.get_default_dtype()) is not default:
        raise UserCodeError(
            f"environment {spec.id!r}: it has called torch.set_default_dtype({changed}), which changes the networks too; "
            "pass dtype to the functions of torch in the environment instead"
        )
    if spec.preprocessing is not None:
        return environments  # a game's observation is one array, and all its actions are valid
    try:
        return pack_environments(environments, spec.id)
    except BaseException:
        close_environments(environments, spec.id)
        raise


def _make(spec: Environment, num_envs: int, kwargs: dict[str, Any]) -> VectorEnv:
    registered, wrappers = find(spec)
    if spec.stepping != "Serial" and registered.entry_point is None:
        raise BadConfiguration(
            f"spec.environment.stepping: {spec.stepping} needs single environments, but {spec.id!r} "
            "has only a vector_entry_point; leave stepping out, or register an entry_point too"
        )
    atari = spec.preprocessing
    wrapped = bool(wrappers or registered.additional_wrappers)
    vectorised = registered.vector_entry_point is not None and not wrapped
    options = constructor_options(spec, kwargs)
    resets = spec.on_error == "Reset"

    def make() -> VectorEnv:
        with making(spec):
            if atari is not None:
                # Imported lazily: the import takes a tenth of a second.
                from rltraining_trainer.environments.atari import AtariGames

                return AtariGames(registered.kwargs["game"], num_envs, atari, **options)
            batch = gym.make_vec(
                registered.id, num_envs=num_envs, vectorization_mode="vector_entry_point", **options
            )
            return check_batch(batch, spec.id, num_envs)

    if atari is not None or (vectorised and spec.stepping == "Serial"):
        batch: VectorEnv = WholeBatch(make, spec.id) if resets else make()
        single = num_envs == 1 and atari is None and not resets
        return (single and _single_like(batch, registered.id, options)) or batch
    if resets or spec.stepping != "Serial":
        return EnvironmentBatch(_slots(spec, num_envs, kwargs), num_envs)
    if num_envs == 1:
        return SingleEnvironment(make_environment(spec, **kwargs))
    with making(spec):
        return SerialEnvironments([partial(make_environment, spec, **kwargs)] * num_envs)


def make_environment(spec: Environment, **kwargs: Any) -> gym.Env:
    """Makes one wrapped environment by its ``entry_point``. Raises like ``make_environments``."""
    registered, wrappers = find(spec)
    with making(spec):
        environment = gym.make(registered.id, **constructor_options(spec, kwargs))
        for wrap in wrappers:
            environment = wrap(environment)
        return environment


def preload(spec: Environment) -> None:
    """Imports the modules that ``make_environment`` needs. Raises the errors of their import."""
    registered, _ = find(spec)
    if isinstance(registered.entry_point, str):
        load_env_creator(registered.entry_point)


def _slots(spec: Environment, num_envs: int, kwargs: dict[str, Any]) -> Slots:
    make = partial(make_environment, spec, **kwargs)
    if spec.stepping == "Processes":
        return InProcesses(make, spec.id, num_envs, partial(preload, spec))
    slots = [Slot(make, spec.id) for _ in range(num_envs)]
    return InThreads(slots) if spec.stepping == "Threads" else InTurn(slots)


def find(spec: Environment) -> tuple[EnvSpec, tuple[Wrapping, ...]]:
    """Returns the registration of ``spec.id``, after importing its module, and its wrappers."""
    registered = find_registered(_import_and_strip_module(spec.id), spec.id)
    wrappers = load_wrappers(spec.wrappers)
    if wrappers and registered.entry_point is None:
        raise BadConfiguration(
            f"spec.environment.wrappers: wrappers need single environments, but {spec.id!r} has only "
            "a vector_entry_point; wrap the environments there, or register an entry_point too"
        )
    return registered, wrappers


def constructor_options(spec: Environment, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the keywords of the environment's constructor."""
    limit = {} if spec.max_episode_steps is None else {"max_episode_steps": spec.max_episode_steps}
    return {**spec.kwargs, **kwargs, **limit}


@contextmanager
def making(spec: Environment) -> Iterator[None]:
    """Converts errors raised while an environment is made into TrainerErrors."""
    try:
        yield
    except gym.error.DependencyNotInstalled as error:
        raise missing_extra(spec.id, error) or NotInstalled(
            f"spec.environment.id: {spec.id!r} needs a package: {sentence_of(error)}"
        ) from error
    except TrainerError:
        raise
    except BaseException as error:
        raised = _raised_by_constructor(error)
        # An unexpected or a missing keyword argument.
        if rejects_keywords(raised, spec.kwargs):
            raise BadConfiguration(
                f"spec.environment.kwargs: {spec.id!r} does not take them: {sentence_of(raised)}"
            ) from error
        raise missing_extra(spec.id, error) or user_code_error(
            f"making environment {spec.id!r}", raised
        ) from error


def _raised_by_constructor(error: BaseException) -> BaseException:
    """Returns the TypeError of an environment's constructor, to which gymnasium adds its kwargs in a
    new TypeError, or ``error`` itself."""
    cause = error.__cause__
    is_wrapped = type(cause) is type(error) and " was raised from the environment creator" in text_of(error)
    return cause if cause is not None and is_wrapped else error


def make_spaces(spec: Environment) -> tuple[Space, Space]:
    """Returns the spaces of one observation and one action.

    Makes an environment for that and closes it. Raises like ``make_environments``, or if ``close``
    raises. With stepping Processes the environment has a process here as well, since its constructor
    may crash.
    """
    stepping = "Processes" if spec.stepping == "Processes" else "Serial"
    environments = make_environments(spec.model_copy(update={"stepping": stepping, "on_error": "Fail"}), 1)
    _close(environments, spec.id)
    return environments.single_observation_space, environments.single_action_space


def close_environments(environments: VectorEnv, name: str) -> None:
    """Closes environments. Logs an error as a warning, since all results are complete by then."""
    try:
        _close(environments, name)
    except UserCodeError as error:
        _LOG.warning("%s", error)


def _close(environments: VectorEnv | gym.Env, name: str) -> None:
    """Closes environments. Interrupts a ``close`` that takes too long, with a warning.

    Without that, an environment that waits for its simulator in vain would keep a job from starting.
    """
    with user_code(f"environment {name!r}: close"):
        try:
            with time_limit(CLOSE_SECONDS):
                environments.close()
        except TimeLimitExceeded as error:
            where, _ = user_trace(error)
            message = "environment %r: close was interrupted after %.0f s (%s)"
            _LOG.warning(message, name, CLOSE_SECONDS, where)


def _single_like(batch: VectorEnv, id: str, options: dict[str, Any]) -> VectorEnv | None:
    """Replaces ``batch``, a vector environment of one, by its single environment, which is faster.

    Returns None if there is no ``entry_point`` that accepts the same keywords and has the same
    spaces. Closes whichever of the two environments is not used.
    """
    if gym.spec(id).entry_point is None:
        return None
    try:
        environment = gym.make(id, **options)
    except (Exception, SystemExit):
        return None
    spaces = environment.observation_space, environment.action_space
    unlike = spaces != (batch.single_observation_space, batch.single_action_space)
    _close(environment if unlike else batch, id)
    return None if unlike else SingleEnvironment(environment)


def _import_and_strip_module(id: str) -> str:
    """Imports ``module`` of ``module:Id`` and returns ``Id``. A plain id is returned unchanged."""
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
            f"spec.environment.id: module {module!r}{_place_of(module)} was imported but registers no "
            f"environment {name!r}; call gymnasium.register(id={name!r}, ...) in it"
        )
    return name


def _place_of(module: str) -> str:
    """Returns the file of a module of Python's standard library, which hides a user's file of the same name."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    is_standard = file.startswith(sysconfig.get_path("stdlib")) and "-packages" not in file
    return f" ({file}, which hides a file of yours with this name)" if is_standard else ""
