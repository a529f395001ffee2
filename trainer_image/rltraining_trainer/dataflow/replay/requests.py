"""What is under way between a learner and the shards."""

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
"""A shard that owes an answer, and has given none for so long, leaves the map: the longest that a dying one can hold the
learner up."""
_FORGOTTEN_SECONDS = 60.0
"""When the transport may forget a call. An answer that comes so late has waited behind many others on a slow network."""


@dataclass(eq=False)
class Request:
    """One message to a shard: draw `count` items, and take priorities back. With neither, it only asks for an answer."""

    shard: Shard
    asked: float
    """When, in seconds."""
    count: int = 0
    share: float = 0.0
    """Probability that a draw comes from this shard."""
    update: Tensor | None = None
    """Priorities to take back: float64 [3, k]."""
    peer: ShardPeer = field(init=False)
    call: Call = field(init=False)

    @property
    def returned(self) -> int:
        """How many priorities it takes back."""
        return 0 if self.update is None else self.update.shape[1]

    def send(self, *, smallest: bool) -> None:
        """`smallest`: have the shard's smallest powered priority told, too."""
        assert self.shard.peer is not None, f"shard {self.shard.name} was not dialled"
        self.peer = self.shard.peer
        payload: dict[str, Any] = {"update": self.update, "count": self.count, "smallest": smallest}
        service = "sample" if self.count else "update" if self.update is not None else "stats"
        self.call = self.peer.call(service, payload, timeout=_FORGOTTEN_SECONDS)

    @property
    def deadline(self) -> float:
        """When the shard should have answered; answers to earlier requests put it off."""
        return max(self.asked, self.shard.answered) + CALL_SECONDS

    def is_over(self, now: float) -> bool:
        """Answered, too late, or to a peer by which the shard is no longer reached."""
        return self.call.done() or now >= self.deadline or self.peer is not self.shard.peer

    def answer(self) -> dict[str, Any]:
        """Raises TransportError if there is none."""
        answer = self.call.result(timeout=0.0)
        assert isinstance(answer, dict), f"shard {self.shard.name} answered {type(answer).__name__}"
        return answer


class RequestGroup(NamedTuple):
    """Batches that are under way together."""

    requests: list[Request]
    batches: int
    total: int
    """Transitions in all shards when it was split."""
    shares: list[tuple[Shard, float]]
    """Of all shards that there were to draw from."""

    @property
    def least(self) -> float:
        """Probability of the least likely item in one draw, by what was last heard; infinity if nothing can be drawn."""
        of_each = (
            share * shard.min_priority / shard.priority_sum
            for shard, share in self.shares
            if shard.priority_sum > 0
        )
        return min(of_each, default=math.inf)

    def wait(self, clock: Callable[[], float], deadline: float) -> bool:
        """Until all requests are over; False if that is not before the deadline."""
        for request in self.requests:
            while not request.is_over(now := clock()):
                if now >= deadline:
                    return False
                with contextlib.suppress(TransportError):  # heard when it is settled
                    request.call.result(timeout=min(deadline, request.deadline) - now)
        return True
