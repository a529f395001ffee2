"""How a run keeps the data paths of a user's algorithm."""

from __future__ import annotations

from typing import Any, Protocol


class DataPath(Protocol):
    """A learner's side of a data path, as the run's record and its end need it."""

    def metrics(self) -> dict[str, float | None]:
        """Returns its counters, for the curves."""

    def tick(self) -> None:
        """Answers samplers that may continue. Called at the head of each round."""

    def finish(self) -> None:
        """The run is over: answers all samplers that wait."""

    def close(self) -> None:
        """Ends what the path has started. May be called twice."""

    def get_state(self) -> dict[str, Any]:
        """Returns the counters, for a checkpoint. Data that is queued or stored is not part of it."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues the counters of a learner that ended. What had been queued counts as dropped or lost."""
