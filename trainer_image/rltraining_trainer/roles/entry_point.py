"""A user's own algorithm: a module with ``learner(world)`` and ``sampler(world)``, each run in the pods of its role."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from rltraining_api.algorithms import UserAlgorithm
from rltraining_api.contract import ExitCode, LearnerReport

from rltraining_trainer.checkpoint import CheckpointError
from rltraining_trainer.errors import TrainerError, UserCodeError, user_code, user_code_error
from rltraining_trainer.policy import PolicyError
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.termination import write_termination_message
from rltraining_trainer.transport import PeerLost, RemoteError, Stopped, TransportError
from rltraining_trainer.world import World

_LOG = logging.getLogger(__name__)

FUNCTIONS = ("learner", "sampler")


def run_own_algorithm(context: Context, settings: UserAlgorithm) -> tuple[int, LearnerReport | None]:
    """Run this role's function until the run is done: the exit code, and a learner's last report.

    Raises:
        Stopped: the process was asked to end; a learner's checkpoint was written before.
        UserCodeError: the module cannot be imported, lacks a function, or one raised.
    """
    # Handlers run on RPC threads: they must not wait 5 ms for this thread to let go of the interpreter.
    sys.setswitchinterval(0.0005)
    functions = find_functions(settings.module)
    world = World(context, _fail)
    torch.manual_seed(world.seed)
    try:
        _call(functions[world.role], world, f"{world.role}(world) of module {settings.module!r}")
        world.finish()
        report = world.report()
    except Stopped:
        if not world.done:
            world.save()
            raise
        report = world.report()
    finally:
        world.close()
    return ExitCode.DONE, report


def find_functions(name: str) -> dict[str, Callable[[World], Any]]:
    """The functions of the user's module, by role. Raises UserCodeError: one sentence, if there is no such module or it lacks
    one."""
    where = f"spec.algorithm.entryPoint: module {name!r}"
    with user_code(f"spec.algorithm.entryPoint: importing {name!r}"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # another one, that it imports
            remedy = (
                f"write {name.removesuffix('.py')!r}, without .py"
                if name.endswith(".py")
                else "put it beside the manifest, in spec.code, or in the image"
            )
            raise UserCodeError(f"{where} is not there: {remedy}") from None
    found = {role: getattr(module, role, None) for role in FUNCTIONS}
    for role, function in found.items():
        if not callable(function):
            raise UserCodeError(f"{where} has no function {role}(world): it must define learner and sampler")
    return found  # type: ignore[return-value]


def _call(function: Callable[[World], Any], world: World, what: str) -> None:
    """Whatever the function raises is an error of its own, unless it comes from the transport or from storage."""
    try:
        function(world)
    except (PeerLost, RemoteError) as error:  # a time-out that it set itself, a service that is not there
        raise user_code_error(what, error) from error
    except (TransportError, CheckpointError, PolicyError):
        raise
    except BaseException as error:
        raise user_code_error(what, error) from error
    if world.stopping.is_set():
        raise Stopped("asked to end")


def _fail(error: TrainerError) -> None:
    """A handler of the user's raised: this process ends, whatever its main thread does just now."""
    _LOG.error("%s", error)
    write_termination_message(error.reason, str(error))
    logging.shutdown()
    os._exit(error.exit_code)
