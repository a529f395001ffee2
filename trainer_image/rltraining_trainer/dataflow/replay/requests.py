"""Requests of a learner to the shards."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from rltraining_trainer.dataflow.replay.shard import ShardPeer
from rltraining_trainer.dataflow.replay.shard_map import Shard
from rltraining_trainer.transport import Call, TransportError

CALL_SECONDS = 2.0
"""Time without an answer after which a shard counts as lost. It delays the learner by at most this time."""
_RPC_SECONDS = 60.0
"""Time-out of the RPC, which is longer because answers queue on a slow network."""


@dataclass(eq=False)
class Request:
    """One message to a shard, which samples `count` items and returns priorities.

    A request with neither checks whether the shard answers.
    """

    shard: Shard
    asked: float
    """Time of the request in seconds."""
    count: int = 0
    share: float = 0.0
    """Probability of sampling from this shard."""
    update: Tensor | None = None
    """Priorities to return, float64 ``[3, k]``."""
    peer: ShardPeer = field(init=False)
    call: Call = field(init=False)

    @property
    def returned(self) -> int:
        """Number of priorities in the request."""
        return 0 if self.update is None else self.update.shape[1]

    def send(self, *, min_priority: bool) -> None:
        """Sends the request. `min_priority`: whether to request the shard's `min_priority`."""
        assert self.shard.peer is not None, f"shard {self.shard.name} was not dialled"
        self.peer = self.shard.peer
        payload: dict[str, Any] = {"update": self.update, "count": self.count, "smallest": min_priority}
        service = "sample" if self.count else "update" if self.update is not None else "stats"
        self.call = self.peer.call(service, payload, timeout=_RPC_SECONDS)

    @property
    def deadline(self) -> float:
        """Time by which the shard must answer. Extended by answers to earlier requests."""
        return max(self.asked, self.shard.answered) + CALL_SECONDS

    def is_over(self, now: float) -> bool:
        """Returns whether the request was answered or timed out, or the shard was redialled."""
        return self.call.done() or now >= self.deadline or self.peer is not self.shard.peer

    def answer(self) -> dict[str, Any]:
        """Returns the answer. Raises TransportError if there is none."""
        answer = self.call.result(timeout=0.0)
        assert isinstance(answer, dict), f"shard {self.shard.name} answered {type(answer).__name__}"
        return answer


class RequestGroup(NamedTuple):
    """The requests for batches that are sampled together."""

    requests: list[Request]
    batches: int
    total: int
    """Number of items in all shards when the sample was split."""
    shares: list[tuple[Shard, float]]
    """The probability of sampling from each shard that could be sampled."""

    @property
    def least(self) -> float:
        """Probability of the least likely item, by the latest answers, or infinity."""
        least_of_shards = (
            share * shard.min_priority / shard.priority_sum
            for shard, share in self.shares
            if shard.priority_sum > 0
        )
        return min(least_of_shards, default=math.inf)

    def wait(self, clock: Callable[[], float], deadline: float) -> bool:
        """Waits until all requests are over. Returns False at the deadline."""
        for request in self.requests:
            while not request.is_over(now := clock()):
                if now >= deadline:
                    return False
                # The error is handled when the request is settled.
                with contextlib.suppress(TransportError):
                    request.call.result(timeout=min(deadline, request.deadline) - now)
        return True
