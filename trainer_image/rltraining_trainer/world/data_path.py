"""The interface between a run and its data paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rltraining_api.contract import Warning
from rltraining_api.status import ReplayStatus
from torch import Tensor

from rltraining_trainer.dataflow.reduce import Reduce
from rltraining_trainer.metrics import Numbers
from rltraining_trainer.transport import Handler


class DataPath:
    """A learner's side of a data path. Each method has a default that does nothing."""

    shares_state = True
    """Whether every learner holds the complete state. Otherwise each holds a slice, and all roll back together."""
    sends_large = False
    """Whether messages should use shared memory where possible (see ``Endpoint``)."""
    keeps_batch = True
    """Whether a batch that was not used yet is still valid after a learner was lost or has joined."""
    leads = False
    """Whether only learner 0 decides that there is enough data for an update."""

    @property
    def services(self) -> Mapping[str, Handler]:
        """The RPC services that samplers and other learners call."""
        return {}

    def metrics(self) -> Numbers:
        """Returns the counters of the path, for the curves."""
        return {}

    @property
    def member_services(self) -> Mapping[str, Handler]:
        """The services of learner 0 that other learners call with `Member.call`."""
        return {}

    def announce(self, keeper: str, shard: dict[str, Any], served_before: bool) -> None:
        """Adds the shard of the replay that ``keeper`` reports (see `SamplerReports`)."""

    def insert_limit(self, keeper: str) -> int | None:
        """Returns the number of insertions that a shard may have by now. None: no limit."""
        return None

    def replay(self) -> ReplayStatus | None:
        """Returns the state of the replay, for the job's status."""
        return None

    def facts(self) -> dict[str, Any]:
        """Returns what the next update needs besides its batch, for `Recorder`."""
        return {}

    def warnings(self) -> tuple[Warning, ...]:
        """Returns problems that the user should know."""
        return ()

    def waits_for_data(self, batch: Any) -> bool:
        """Returns whether all learners should delay the update until this learner has a batch."""
        return False

    def on_group_formed(self, rank: int, size: int) -> None:
        """Called when this learner has become learner ``rank`` of a group of ``size`` learners."""

    def leave_group(self) -> None:
        """Called when a learner was lost or joins, before a new group forms."""

    def gather_state(self, reduce: Reduce) -> None:
        """Called in all learners before a checkpoint, if they hold slices. ``reduce`` sums over them."""

    def get_common_state(self) -> dict[str, Any]:
        """Returns state that all learners of a group share."""
        return {}

    def set_common_state(self, state: dict[str, Any]) -> None:
        """Replaces the shared state by that of another learner."""

    def tick(self) -> None:
        """Answers samplers that may continue. Called after each update and at least every 0.25 s."""

    def finish(self) -> None:
        """Answers all waiting samplers at the end of the run."""

    def close(self) -> None:
        """Ends the threads and connections of the path. May be called twice."""

    def get_state(self) -> dict[str, Any]:
        """Returns the counters, for a checkpoint. Queued or stored data is not included."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues the counters of a learner that ended. Its queued data counts as dropped or lost."""


class SamplerPath:
    """A sampler's side of a data path."""

    alone = False
    """Whether the path has one connection, and the sampler serves nothing (see ``MemberSession``)."""

    @property
    def version(self) -> int:
        """Version of the newest parameters that this sampler has loaded."""
        raise NotImplementedError

    def attach(self, parameters: Tensor | None) -> None:
        """Connects to the learner. ``parameters`` ``[N]`` receives its parameters. Raises Stopped."""
        raise NotImplementedError
