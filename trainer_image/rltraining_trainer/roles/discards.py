"""Episodes that samplers discarded, since their environments failed: what members report of them, and what the run shows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from rltraining_api.contract import Warning

from rltraining_trainer.dataflow.fields import field
from rltraining_trainer.environments import Stepped
from rltraining_trainer.transport import Handler, Parked, Payload

COUNTS, FIRST_ERROR = "discarded", "first_error"
"""Fields of any message to a learner; they are left out while nothing was discarded."""


def discard_fields(member: str, incarnation: str, stepped: Stepped) -> dict[str, Any]:
    """The fields with which a sampler reports what it has discarded in its life."""
    if not stepped.first_error:
        return {}
    return {
        COUNTS: {f"{member}/{incarnation}": stepped.discarded},
        FIRST_ERROR: f"{member}: {stepped.first_error}",
    }


class Discards:
    """Collects the reports of samplers. Each is of a whole life, so one that is lost or comes twice changes nothing.

    RPC threads and HTTP threads may call it.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}  # by the sampler and its incarnation
        self._first_error = ""
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        with self._lock:
            return sum(self._counts.values())

    def watched(self, services: Mapping[str, Handler]) -> dict[str, Handler]:
        """``services``, whose messages are looked at for reports before they are answered."""
        return {name: self._watch(handler) for name, handler in services.items()}

    def fields(self) -> dict[str, Any]:
        """The fields with which a learner reports to the first one what its samplers have reported."""
        with self._lock:
            return {COUNTS: self._counts.copy(), FIRST_ERROR: self._first_error} if self._first_error else {}

    def warnings(self) -> Iterator[Warning]:
        """Yields a warning that does not change, since each change of one becomes an Event."""
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
        """Samplers that live report their whole lives again."""
        self._merge(state["counts"], state["first_error"])

    def _watch(self, handler: Handler) -> Handler:
        def watching(sender: str, payload: Payload) -> Payload | Parked:
            if isinstance(payload, dict) and COUNTS in payload:
                self._merge(field(payload, COUNTS, dict), field(payload, FIRST_ERROR, str))
            return handler(sender, payload)

        return watching

    def _merge(self, counts: Mapping[str, int], first_error: str) -> None:
        with self._lock:
            for life, count in counts.items():
                self._counts[life] = max(count, self._counts.get(life, 0))
            self._first_error = self._first_error or first_error
