"""Gradients come in, parameters go out: the learner's side of the gradient dataflow, as RPC services.

A sampler pushes the gradient of a rollout with the version of the parameters that it was computed with; the answer is parked
until it has been applied, and then brings newer parameters: one round trip a rollout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.dataflow.gradients.accounts import GradientPush, GradientSource, Place
from rltraining_trainer.dataflow.gradients.in_step import GradientsInStep
from rltraining_trainer.dataflow.model_server import ModelServer
from rltraining_trainer.dataflow.moments import moments_field
from rltraining_trainer.dataflow.trajectory_queue import Source
from rltraining_trainer.transport import Handler, Parked, Payload

_STATISTICS = 3
"""Numbers that samplers add up: count, sum and sum of squares of their advantages."""


class GradientServer:
    """Answers the services "push", "pull" and, for samplers that learn in step, "sum".

    push: ``{"incarnation": str, "sequence": int, "version": int, "place": (epoch, iteration, position), "gradient": Tensor
        [n], "weight": float, "steps": int, "returns": Tensor [K], "terms": {str: float}, "moments": Tensor
        [U, 1 + 2·d]}``; pull: ``{"version": int}``,
        and the "place" of the rollout that is to go on, if there is one. Both are answered with ``{"version": int,
        "parameters": Tensor [n] | None, "done": bool, "place": (...), "used": bool}``: parameters only when the sampler's
        version is not the current one; used: the gradient was.
    sum: ``{"place": (...), "part": Tensor float64 [3]}``, answered with the sum over all samplers of this iteration, or None.
    """

    def __init__(self, gradients: GradientSource, models: ModelServer, size: int) -> None:
        """``size``: n, of the gradients that are taken."""
        self._gradients, self._models, self._size = gradients, models, size
        self._done = False

    @property
    def services(self) -> Mapping[str, Handler]:
        in_step = {"sum": self.sum} if isinstance(self._gradients, GradientsInStep) else {}
        return {"push": self.push, "pull": self.pull, **in_step}

    def push(self, sender: str, payload: Payload) -> Parked:
        """Raises TypeError or ValueError, naming the field, if ``payload`` is not a push."""
        gradient = field(payload, "gradient", Tensor)
        if gradient.shape != (self._size,) or gradient.dtype != torch.float32:
            raise ValueError(
                f"the field gradient must be {self._size} numbers (float32), not {list(gradient.shape)} "
                f"({gradient.dtype}): both sides need the same environment and network"
            )
        version = field(payload, "version", int)
        push = GradientPush(
            source=Source(sender, field(payload, "incarnation", str), field(payload, "sequence", int)),
            place=_place(payload),
            version=version,
            gradient=gradient,
            weight=_at_least_0(payload, "weight", float),
            steps=_at_least_0(payload, "steps", int),
            returns=_vector(payload, "returns", torch.float32),
            terms=_terms(payload),
            moments=moments_field(payload),
        )
        parked = Parked()
        self._gradients.push(push, lambda used: parked.resolve(self._answer(version, used)))
        return parked

    def pull(self, sender: str, payload: Payload) -> Parked:
        """Raises TypeError, naming the field, if ``payload`` is not a pull."""
        version = field(payload, "version", int)
        rollout = _place(payload) if isinstance(payload, dict) and "place" in payload else None
        parked = Parked()
        self._gradients.join(sender, lambda: parked.resolve(self._answer(version, False)), rollout)
        return parked

    def sum(self, sender: str, payload: Payload) -> Parked:
        """Raises TypeError or ValueError, naming the field, if ``payload`` is not a part of a sum."""
        assert isinstance(self._gradients, GradientsInStep)
        parked = Parked()
        part = _vector(payload, "part", torch.float64, _STATISTICS)
        self._gradients.add(sender, _place(payload), part, parked.resolve)
        return parked

    def finish(self) -> None:
        """The run is over: every answer says so from now on, and the parked ones are given at once."""
        self._done = True
        self._gradients.close()

    def _answer(self, version: int, used: bool) -> Payload:
        place = self._gradients.place  # first: it never is one of newer parameters
        newest, parameters = self._models.newer_than(version)
        return {
            "version": newest,
            "parameters": parameters,
            "done": self._done,
            "place": tuple(place),
            "used": used,
        }


def _vector(payload: Payload, name: str, dtype: torch.dtype, size: int | None = None) -> Tensor:
    values: Tensor = field(payload, name, Tensor)
    if values.dim() != 1 or values.dtype != dtype or size not in (None, len(values)):
        raise ValueError(
            f"the field {name} must be a vector ({dtype}), not {list(values.shape)} ({values.dtype})"
        )
    return values


def _at_least_0(payload: Payload, name: str, kind: type) -> Any:
    value = field(payload, name, kind)
    if not 0 <= value < math.inf:
        raise ValueError(f"the field {name} must be a number from 0 on, not {value}")
    return value


def _terms(payload: Payload) -> dict[str, float]:
    terms: dict[str, float] = field(payload, "terms", dict)
    if not all(isinstance(name, str) and isinstance(term, float) for name, term in terms.items()):
        raise TypeError("the field terms must be numbers by name")
    return terms


def _place(payload: Payload) -> Place:
    values = field(payload, "place", tuple)
    if len(values) != 3 or not all(
        isinstance(value, kind) for value, kind in zip(values, (str, int, int), strict=True)
    ):
        raise TypeError("the field place must be an epoch, an iteration and a position")
    return Place(*values)
