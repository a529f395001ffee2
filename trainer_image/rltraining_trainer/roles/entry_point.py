"""Runs an algorithm: a module with ``learner(world)`` and ``sampler(world)``, built in or written by the user."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from typing import Any

import torch
from rltraining_api.algorithms import Algorithm
from rltraining_api.contract import REPORTED_WARNINGS_MAX, ExitCode, LearnerReport, Warning

from rltraining_trainer.algorithms.registry import BUILT_IN
from rltraining_trainer.checkpoint import CheckpointError, UnsupportedValue
from rltraining_trainer.errors import TrainerError, UserCodeError, user_code, user_code_error
from rltraining_trainer.policy import PolicyError
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.termination import write_termination_message
from rltraining_trainer.transport import PeerLost, RemoteError, Stopped, TransportError
from rltraining_trainer.world import World

_LOG = logging.getLogger(__name__)

FUNCTIONS = ("learner", "sampler")


def run_algorithm(context: Context) -> tuple[int, LearnerReport | None]:
    """Runs this role's function until the run is done. Returns the exit code, and a learner's last report.

    Raises:
        Stopped: the process was asked to end. A learner's checkpoint was written before.
        UserCodeError: a user's module cannot be imported, lacks a function, or one raised.
    """
    spec = context.job.spec
    user = spec.algorithm.entry_point
    functions = functions_of(spec.algorithm)

    # Run the function, and write the results of the run.
    world = World(context, _fail)
    torch.manual_seed(world.seed if user is not None else spec.seed)
    try:
        if user is not None:
            _call(functions[world.role], world, f"{world.role}(world) of module {user.module!r}")
        else:
            functions[world.role](world)
        world.finish()
        report = world.report()
    except Stopped:
        if not world.done:
            world.save()
            raise
        report = world.report()
    finally:
        warnings = world.close()
    return ExitCode.DONE, with_warnings(report, warnings)


def with_warnings(report: LearnerReport | None, warnings: tuple[Warning, ...]) -> LearnerReport | None:
    """Adds warnings to a learner's last report. They replace earlier ones of the same reason."""
    if report is None:
        return None
    reasons = {warning.reason for warning in warnings}
    others = (warning for warning in report.warnings if warning.reason not in reasons)
    return report.model_copy(update={"warnings": (*warnings, *others)[:REPORTED_WARNINGS_MAX]})


def functions_of(algorithm: Algorithm) -> dict[str, Callable[[World], Any]]:
    """Returns the functions of an algorithm by role. Raises UserCodeError like ``find_functions``."""
    if algorithm.entry_point is not None:
        return find_functions(algorithm.entry_point.module)
    return vars(importlib.import_module(BUILT_IN[algorithm.name].module))


def find_functions(name: str) -> dict[str, Callable[[World], Any]]:
    """Returns the functions of the user's module, by role.

    Raises UserCodeError, one sentence, if there is no such module or it lacks a function.
    """
    where = f"spec.algorithm.entryPoint: module {name!r}"
    with user_code(f"spec.algorithm.entryPoint: importing {name!r}"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # a module that the user's module imports
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
    """Calls a user's function. Its exceptions become UserCodeError, except those of transport and storage."""
    try:
        function(world)
    # A time-out set by user code, a service that does not exist, or a state that cannot be saved.
    except (PeerLost, RemoteError, UnsupportedValue) as error:
        raise user_code_error(what, error) from error
    except (TransportError, CheckpointError, PolicyError):
        raise
    except BaseException as error:
        raise user_code_error(what, error) from error
    if world.stopping.is_set():
        raise Stopped("asked to end")


def _fail(error: TrainerError) -> None:
    """Ends this process after an exception in a user's handler, even if its main thread is busy."""
    _LOG.error("%s", error)
    write_termination_message(error.reason, str(error))
    logging.shutdown()
    os._exit(error.exit_code)
