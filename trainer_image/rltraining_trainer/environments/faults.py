"""What happens when one of the environments that are stepped together fails: ``spec.environment.onError``.

A vector environment that outlives a failure reports it in its infos: ``info[FAILED]`` is a dictionary from the numbers of
environments to their errors, and all else that it returns of these environments is finite and has no meaning. The ``Stepper``
then calls ``reset`` with the options ``reset_mask`` ``[B]`` (which environments to reset, as in gymnasium) and ``REMAKE``
``[B]`` (which of them to make anew first). ``RESETS_ALONE`` in the metadata: others are left alone by that.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from rltraining_api.environment import Environment

FAILED = "rltraining/failed"
"""In infos."""
REMAKE = "rltraining/remake"
"""In options of ``reset``."""
RESETS_ALONE = "rltraining/resetsAlone"
"""In ``metadata``."""

HOUR_SECONDS = 3600.0


class Faults:
    """Decides whether an environment that failed is reset, or its error ends the job.

    Args:
        resets: environments that fail are reset; else each error is raised.
        max_per_hour: errors within an hour; the one after them is raised all the same.
        clock: seconds.
    """

    def __init__(
        self, resets: bool = False, max_per_hour: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.resets = resets
        self._max_per_hour = max_per_hour
        self._clock = clock
        self._times: deque[float] = deque(maxlen=max_per_hour + 1)

    @classmethod
    def of(cls, spec: Environment) -> Faults:
        """As ``spec.onError`` and ``spec.maxErrorsPerHour`` have it."""
        return cls(spec.on_error == "Reset", spec.max_errors_per_hour)

    def add(self, errors: Iterable[Exception]) -> None:
        """Counts errors. Raises the one that is not survived."""
        for error in errors:
            if not self.resets:
                raise error
            now = self._clock()
            self._times.append(now)
            if len(self._times) > self._max_per_hour and now - self._times[0] <= HOUR_SECONDS:
                raise type(error)(
                    f"more than {self._max_per_hour} errors of environments within an hour "
                    f"(spec.environment.maxErrorsPerHour); the last: {error}"
                )
