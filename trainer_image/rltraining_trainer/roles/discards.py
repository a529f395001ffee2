"""Collects the number of episodes that samplers discarded because their environments failed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from rltraining_api.contract import Warning

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.environments import StepperStats
from rltraining_trainer.transport import DeferredReply, Handler, Payload

COUNTS, FIRST_ERROR = "discarded", "first_error"
"""Optional fields of every message to a learner, left out until an episode is discarded."""


def discard_fields(member: str, incarnation: str, stats: StepperStats) -> dict[str, Any]:
    """Returns the fields that report all episodes discarded by this process of a sampler."""
    if not stats.first_error:
        return {}
    return {
        COUNTS: {f"{member}/{incarnation}": stats.discarded},
        FIRST_ERROR: f"{member}: {stats.first_error}",
    }


class Discards:
    """Collects the reports of samplers. Thread-safe.

    Each report contains the total of the sampler's process, so lost and repeated reports do no
    harm.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}  # by "sampler/incarnation"
        self._first_error = ""
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        with self._lock:
            return sum(self._counts.values())

    def watched(self, services: Mapping[str, Handler]) -> dict[str, Handler]:
        """Returns ``services`` with handlers of `watch`."""
        return {name: self.watch(handler) for name, handler in services.items()}

    def watch(self, handler: Handler) -> Handler:
        """Returns a handler that first collects the report in a message."""

        def watching(sender: str, payload: Payload) -> Payload | DeferredReply:
            if isinstance(payload, dict) and COUNTS in payload:
                self._merge(field(payload, COUNTS, dict), field(payload, FIRST_ERROR, str))
            return handler(sender, payload)

        return watching

    def fields(self) -> dict[str, Any]:
        """Returns the fields with which a learner forwards its samplers' reports to learner 0."""
        with self._lock:
            return {COUNTS: self._counts.copy(), FIRST_ERROR: self._first_error} if self._first_error else {}

    def warnings(self) -> Iterator[Warning]:
        """Yields a constant warning, since every change of a warning creates an Event."""
        if self._first_error:
            yield Warning(
                reason="EnvironmentsReset",
                message="environments failed and were reset; the metric episodes/discarded counts their episodes. "
                f"The first error: {self._first_error}",
            )

    def get_state(self) -> dict[str, Any]:
        with self._lock:
            return {"counts": self._counts.copy(), "first_error": self._first_error}

    def set_state(self, state: dict[str, Any]) -> None:
        """Merges a checkpoint's state. Running samplers report their totals again."""
        self._merge(state["counts"], state["first_error"])

    def _merge(self, counts: Mapping[str, int], first_error: str) -> None:
        with self._lock:
            for life, count in counts.items():
                self._counts[life] = max(count, self._counts.get(life, 0))
            self._first_error = self._first_error or first_error
