"""A trainer. Its samplers act with the parameters of ``POLICY_LAG`` versions before, for the benchmark ``lag``.

If a sampler waits for the update by its data, as with ``queueCapacity: 0``, no other lag is added.
"""

from __future__ import annotations

import importlib
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from rltraining_trainer.algorithms.registry import BUILT_IN
from rltraining_trainer.roles import main as trainer
from rltraining_trainer.world import World
from torch import Tensor

ALGORITHMS = ("impala", "a3c", "a2c")
VARIABLE = "POLICY_LAG"
"""The environment variable with the lag in versions, 0 or more."""


class OldPolicy:
    """A `World` in which the sampler's network has the parameters of ``lag`` versions before."""

    def __init__(self, world: World, lag: int) -> None:
        self._world = world
        self._versions: deque[Tensor] = deque(maxlen=lag + 1)
        """Copies of the newest parameters, the oldest first."""
        self._parameters: Tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def start(self, parameters: Tensor) -> Any:
        seed = self._world.start(parameters)
        self._parameters = parameters
        self._versions.append(parameters.detach().clone())
        return seed

    def trajectories(self, *arguments: Any, **options: Any) -> Any:
        path = self._world.trajectories(*arguments, **options)
        path.put = self._with_old_parameters(path.put)
        return path

    def rollouts(self, *arguments: Any, **options: Any) -> Any:
        path = self._world.rollouts(*arguments, **options)
        path.push_rollout = self._with_old_parameters(path.push_rollout)
        return path

    def gradients(self, *arguments: Any, **options: Any) -> Any:
        path = self._world.gradients(*arguments, **options)
        path.push = self._with_old_parameters(path.push)
        return path

    def _with_old_parameters(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """Returns ``send`` followed by an exchange of the parameters that it received for old ones."""

        def send_and_exchange(*data: Any) -> Any:
            answer = send(*data)
            self._versions.append(self._parameters.detach().clone())
            self._parameters.detach().copy_(self._versions[0])
            return answer

        return send_and_exchange


def main(arguments: list[str] | None = None) -> int:
    lag = int(os.environ[VARIABLE])
    for name in ALGORITHMS:
        module: Any = importlib.import_module(BUILT_IN[name].module)
        module.sampler = _with_lag(module.sampler, lag)
    return trainer.main(arguments)


def _with_lag(sampler: Callable[[Any], None], lag: int) -> Callable[[World], None]:
    return lambda world: sampler(OldPolicy(world, lag))
