"""The interface between a run and the data paths of a custom algorithm."""

from __future__ import annotations

from typing import Any, Protocol


class DataPath(Protocol):
    """A learner's side of a data path, for the run's record and the end of the run."""

    def metrics(self) -> dict[str, float | None]:
        """Returns the counters of the path, for the curves."""

    def tick(self) -> None:
        """Answers samplers that may continue. Called at the start of each round."""

    def finish(self) -> None:
        """Answers all waiting samplers at the end of the run."""

    def close(self) -> None:
        """Ends the threads and connections of the path. May be called twice."""

    def get_state(self) -> dict[str, Any]:
        """Returns the counters, for a checkpoint. Queued or stored data is not included."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues the counters of a learner that ended.

        Its queued data counts as dropped or lost.
        """
