"""Handles environments that fail during training (``spec.environment.onError``).

A vector environment that survives failures reports them in ``info[FAILED]``, a dictionary from
environment indices to errors. Everything else it returns for these environments is finite but
meaningless. The ``Stepper`` then calls ``reset`` with two options: ``reset_mask`` ``[B]`` selects
the environments to reset, as in gymnasium, and ``REMAKE`` ``[B]`` selects those to recreate first.
``RESETS_ALONE`` in the metadata states that such a reset leaves the other environments untouched.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from rltraining_api.environment import Environment

from rltraining_trainer.errors import Diverged, EnvironmentLost, EnvironmentRaised

FAILED = "rltraining/failed"
"""Key in infos."""
REMAKE = "rltraining/remake"
"""Key in the options of ``reset``."""
RESETS_ALONE = "rltraining/resetsAlone"
"""Key in ``metadata``."""

HOUR_SECONDS = 3600.0

REMEDY = "if it happens only now and then, environment.onError: Reset lets training continue"
"""Clause for the message of an exception that ends the job."""
LOST_REMEDY = "environment.onError: Reset replaces this environment instead of restarting its sampler"
"""Clause for the message when the process of an environment has ended."""
FIRST_RESET_REMEDY = (
    "this was the first reset, so fix it: environment.onError: Reset helps only if errors happen now and then"
)
"""Clause for the message of an exception in the first reset."""
FIRST_RESET_LIMIT_REMEDY = "fix the first reset, which keeps failing"
"""Clause for the message of the error that exceeds ``max_per_hour`` in the first reset."""
LIMIT_REMEDY = (
    "fix the environment, or set the limit above a sampler's steps per hour times the rate of errors"
)
"""Clause for the message of the error that exceeds ``max_per_hour``."""


class Faults:
    """Decides whether a failed environment is reset or its error ends the job.

    Args:
        resets: Whether failed environments are reset. If False, every error is raised.
        max_per_hour: Number of errors tolerated within an hour. The next one is raised.
        clock: Returns the current time in seconds.
    """

    def __init__(
        self, resets: bool = False, max_per_hour: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.resets = resets
        self.in_first_reset = False
        """Whether no environment has been stepped yet. Set by the Stepper."""
        self._max_per_hour = max_per_hour
        self._clock = clock
        self._times: deque[float] = deque(maxlen=max_per_hour + 1)

    @classmethod
    def of(cls, spec: Environment) -> Faults:
        """Returns the rules of ``spec.onError`` and ``spec.maxErrorsPerHour``."""
        return cls(spec.on_error == "Reset", spec.max_errors_per_hour)

    def add(self, errors: Iterable[Exception]) -> None:
        """Counts errors and raises the first one that exceeds the rules."""
        for error in errors:
            if not self.resets:
                raise self.advised(error)
            now = self._clock()
            self._times.append(now)
            if len(self._times) > self._max_per_hour and now - self._times[0] <= HOUR_SECONDS:
                plural = "" if self._max_per_hour == 1 else "s"
                remedy = FIRST_RESET_LIMIT_REMEDY if self.in_first_reset else LIMIT_REMEDY
                raise type(error)(
                    f"more than {self._max_per_hour} error{plural} of environments within an hour "
                    f"(spec.environment.maxErrorsPerHour): {remedy}; the last: {error}"
                )

    def advised(self, error: Exception) -> Exception:
        """Adds the remedy to the first line of an error of an environment that is not survived.

        Returns all other errors unchanged.
        """
        if self.resets or not isinstance(error, EnvironmentLost | EnvironmentRaised | Diverged):
            return error
        remedy = LOST_REMEDY if isinstance(error, EnvironmentLost) else REMEDY
        if self.in_first_reset:
            remedy = FIRST_RESET_REMEDY
        sentence, newline, trace = str(error).partition("\n")
        return type(error)(f"{sentence}; {remedy}{newline}{trace}")
