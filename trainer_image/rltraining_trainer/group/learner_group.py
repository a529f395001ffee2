"""The group of learners as used by the learner's loop.

group.form(stopping)
while not done:
    try:
        decision = group.begin(own_done, update=has_data)
        gradient, count = ...
        total = group.sum(gradient, count)
    except GroupChanged:
        group.form(stopping)  # may replace the state by that of another learner
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from rltraining_trainer.group.collectives import Collectives, GroupChanged, device_name
from rltraining_trainer.group.rendezvous import Candidate, Rendezvous, RendezvousRound, RendezvousStore
from rltraining_trainer.group.single_learner_group import GroupDecision
from rltraining_trainer.group.state_transfer import receive_state, send_state
from rltraining_trainer.transport import (
    Backoff,
    Endpoint,
    Handler,
    Peer,
    PeerLost,
    RemoteError,
    Stopped,
    discover,
    host_of,
)

_LOG = logging.getLogger(__name__)

Result = TypeVar("Result")

_MAX_DELAY_SECONDS = 0.5
"""Maximum time between two attempts to form a round."""
_FAILURES_BEFORE_WARNING = 3
"""Failed rounds in a row that are too many to be the restart of a learner."""
_MAX_DOUBLINGS = 5
"""Number of times that the time-out of collectives is doubled, once per failed round."""
_JOIN_SECONDS = 30.0
"""Time after which a learner joins again, in case the machine of learner 0 is lost."""


@dataclass(frozen=True)
class Timeouts:
    """Time-outs in seconds."""

    join: float = 5.0
    """How long learner 0 waits for all other learners when it starts."""
    rejoin: float = 1.0
    """How long learner 0 waits for the previous members when the group forms again."""
    connect: float = 5.0
    """How long members wait for each other to connect."""
    collective: float = 10.0
    """How long a collective waits for a member before the member counts as lost.

    Doubled with each round that fails before its first update. Otherwise a learner that always
    takes longer could never be a member.
    """


class LearnerGroup:
    """The membership of this learner in the group. Its methods must be called by one thread.

    The group forms through learner 0, which the other learners find by HTTP and join by RPC. While
    learner 0 is dead they wait for its restart, and send it the newest state.
    """

    def __init__(
        self,
        index: int,
        replicas: int,
        *,
        endpoint: Endpoint,
        first_learner: str,
        token: str,
        device: torch.device,
        updates: Callable[[], int],
        get_state: Callable[[], dict[str, Any]],
        set_state: Callable[[dict[str, Any]], None],
        timeouts: Timeouts | None = None,
        tls_port: int | None = None,
    ) -> None:
        """
        Args:
            index: Number of this learner.
            replicas: Number of learners in the job.
            endpoint: The endpoint of this process, which serves `services`. It must be started
                before `form` is called.
            first_learner: Base URL of learner 0, which serves its rendezvous document there.
            device: Location of the gradients.
            updates: Returns how many updates the state has seen.
            get_state: Returns the state that all learners share: tensors and plain values.
            set_state: Replaces that state. All tensors are on the CPU.
            tls_port: Port of all members for TLS. None: the job is not encrypted. An encrypted job sums
                gradients by gloo, since NCCL does not use the tunnel.
        """
        self.rank = index
        self.size = 0
        """Number of members of the current round. 0 while there is none."""
        self.generation = 0
        """Number of the last round that this learner was a member of."""
        self._index = index
        self._endpoint = endpoint
        self._first_learner = first_learner
        self._token = token
        self._device = device
        self._tls_port = tls_port
        self._updates = updates
        self._get_state = get_state
        self._set_state = set_state
        self._timeouts = timeouts or Timeouts()
        self._rendezvous = Rendezvous() if index == 0 else None
        # Learners for which learner 0 waits, and for how long.
        self._expected: Collection[int] = range(1, replicas)
        self._wait_seconds = self._timeouts.join
        self._collectives: Collectives | None = None
        # The peer of learner 0 in other learners, while the connection is usable.
        self._first: Peer | None = None
        self._done = False
        # Updates that have begun in this round.
        self._begun = 0
        # Consecutive rounds of several members that ended before an update, and the reason of the last end.
        self._failed_rounds = 0
        self._reason = ""

    @property
    def warning(self) -> str:
        """The reason why rounds repeatedly fail. Empty if they do not."""
        failing = self._failed_rounds >= _FAILURES_BEFORE_WARNING and not self._has_updated
        return self._reason if failing else ""

    @property
    def services(self) -> Mapping[str, Handler]:
        """The services that this learner's endpoint must provide."""
        return self._rendezvous.services if self._rendezvous is not None else {}

    def form(self, stopping: threading.Event) -> None:
        """Blocks until this learner is a member of a new round. May replace the state by a newer
        one.

        Raises:
            Stopped: `stopping` was set.
            Refused: The token is wrong.
        """
        backoff = Backoff(cap=_MAX_DELAY_SECONDS)
        self._leave()
        while not self._try_to_form(stopping):
            self._leave()
            if backoff.wait(stopping):
                raise Stopped("stopped while the learners' group forms")

    def begin(
        self,
        done: bool,
        *,
        update: bool = True,
        hold: bool = False,
        checkpoint: bool = False,
        total_steps: int | None = None,
        values: Sequence[float] = (),
    ) -> GroupDecision:
        """Agrees with all other learners on what to do in this iteration.

        Args:
            done: Whether the run is done. Only learner 0 may set this.
            update: Whether this learner has data for an update. One such learner is enough.
            hold: Whether this learner delays the update of all learners.
            checkpoint: Whether this learner requests a checkpoint.
            total_steps: Environment steps at which schedules end, passed by learner 0 only. The
                others may not have read a change of the job yet, but must make the same update.
            values: Further numbers, as many in all learners. The decision has the largest of each.

        Raises:
            GroupChanged: A learner was lost, or another one joins.
        """
        if self._done:
            return GroupDecision(done=True, update=False, total_steps=total_steps, largest=values)
        # Combine the values of all learners.
        join = self._rendezvous is not None and self._rendezvous.has_candidates
        flags = [float(flag) for flag in (done, join, update, hold, checkpoint)]
        own = [float(total_steps or 0), *flags, *values]
        total, last, changing, updates, held, saves, *largest = self._run(
            lambda collectives: collectives.maximum(own), alone=own
        )
        # End the run, or end the round if another learner joins.
        if last:
            self._done = True
            if self._rendezvous is not None:
                self._rendezvous.finish()
        elif changing:
            self._leave()
            raise GroupChanged("another learner joins the group")
        # A group that waits for data has not failed.
        if not updates and self.size > 1:
            self._failed_rounds = 0
        update = bool(updates) and not held
        self._begun += update
        return GroupDecision(bool(last), update, bool(saves), int(total) or None, tuple(largest))

    def sum(self, gradient: Tensor, count: float) -> float:
        """Sums the flat `gradient` ``[N]`` over all learners in place.

        Args:
            gradient: Sum over the items of this learner. Zeros if it had no items.
            count: Number of these items.

        Returns:
            The sum of the counts, in the precision of `gradient`.

        Raises:
            GroupChanged: A learner was lost. `gradient` is undefined.
        """
        return self._run(lambda collectives: collectives.sum(gradient, count), alone=count)

    def maximum(self, values: Sequence[float]) -> list[float]:
        """Returns the element-wise maximum of `values` over all learners. Raises GroupChanged."""
        own = [float(value) for value in values]
        return self._run(lambda collectives: collectives.maximum(own), alone=own)

    def broadcast(self, values: Tensor, source: int) -> None:
        """Overwrites `values` with those of rank `source`. Requires contiguous CPU memory.

        Raises:
            GroupChanged: A learner was lost. `values` are undefined.
        """
        self._run(lambda collectives: collectives.broadcast(values, source), alone=None)

    def barrier(self) -> None:
        """Blocks until all learners have called it. Raises GroupChanged."""
        self.maximum([0.0])

    def close(self) -> None:
        """Leaves the group, which the other members detect immediately. May be called twice."""
        self._leave()

    def _run(self, operation: Callable[[Collectives], Result], alone: Result) -> Result:
        """Returns the result of a collective operation, or `alone` if this is the only member.

        On failure this learner leaves the round immediately, so that the other members leave it
        too.
        """
        if not self.size:
            raise GroupChanged("this learner is in no group: form one")
        if self._collectives is None:
            return alone
        try:
            return operation(self._collectives)
        except GroupChanged as change:
            reason = str(change)
        self._on_failure(reason)
        self._leave()
        # A new exception: the frames of the caught one would keep the connections open.
        raise GroupChanged(reason)

    def _on_failure(self, reason: str) -> None:
        """Counts a round that has ended by a failure or could not be formed."""
        self._failed_rounds = 0 if self._has_updated else self._failed_rounds + 1
        self._reason = reason

    @property
    def _has_updated(self) -> bool:
        """Whether this round has several members and has completed an update."""
        return self.size > 1 and self._begun > 1

    def _leave(self) -> None:
        collectives, self._collectives = self._collectives, None
        self.size = 0
        if collectives is not None:
            collectives.close()

    def _try_to_form(self, stopping: threading.Event) -> bool:
        """Returns whether this learner is a member of a new round."""
        try:
            self._form(stopping)
        except (GroupChanged, PeerLost, RemoteError) as error:
            _LOG.info("no group of learners yet: %s", error)
            if isinstance(error, GroupChanged):
                self._on_failure(str(error))
            if isinstance(error, PeerLost):
                self._first = None
            return False
        return True

    def _form(self, stopping: threading.Event) -> None:
        # Agree on the members.
        first: Peer | Rendezvous
        new_round: RendezvousRound | None
        if self._rendezvous is not None:
            first, new_round = self._rendezvous, self._form_round(self._rendezvous, stopping)
        else:
            first, new_round = self._join_round(stopping)
        if new_round is None:
            self._done, self.rank, self.size = True, 0, 1
            return
        rank = new_round.members.index(self._index)
        if len(new_round.members) > 1:
            # Connect the members.
            self._collectives = Collectives(
                RendezvousStore(first, new_round.number, self._timeouts.connect),
                rank,
                len(new_round.members),
                host=host_of(self._own_url()),
                backend=new_round.backend,
                device=self._device,
                connect_seconds=self._timeouts.connect,
                seconds=self._timeouts.collective * 2 ** min(self._failed_rounds, _MAX_DOUBLINGS),
            )
            # Send the newest state to all members.
            if rank == new_round.source:
                send_state(self._collectives, rank, self._get_state())
            else:
                self._set_state(receive_state(self._collectives, new_round.source))
        self.rank, self.size, self.generation = rank, len(new_round.members), new_round.number
        self._begun = 0
        _LOG.info(
            "round %d of the group: learners %s sum gradients with %s, from the state of learner %d at update %d",
            new_round.number,
            ", ".join(map(str, new_round.members)),
            new_round.backend,
            new_round.members[new_round.source],
            self._updates(),
        )

    def _form_round(self, rendezvous: Rendezvous, stopping: threading.Event) -> RendezvousRound:
        """Forms a round as learner 0."""
        new_round = rendezvous.form(self._candidate(), self._expected, self._wait_seconds, stopping)
        self._expected = new_round.members[1:]
        self._wait_seconds = self._timeouts.rejoin
        return new_round

    def _join_round(self, stopping: threading.Event) -> tuple[Peer, RendezvousRound | None]:
        """Joins a round of learner 0. Returns None as the round if the run is done."""
        document = discover(self._first_learner, self._token, stopping=stopping, tls_port=self._tls_port)
        first = self._dial(document["url"])
        call = first.call("join", asdict(self._candidate()), timeout=_JOIN_SECONDS)
        answer: Any = call.result(stopping)
        if answer["done"]:
            return first, None
        return first, RendezvousRound(**answer["generation"])

    def _dial(self, url: str) -> Peer:
        """Returns learner 0 at `url`. Reuses the connection, since torch does not close it."""
        if self._first is None or self._first.url != url:
            self._first = self._endpoint.dial(url)
        return self._first

    def _own_url(self) -> str:
        url = self._endpoint.url
        if not url:
            raise PeerLost("this learner's endpoint is being reopened")
        return url

    def _candidate(self) -> Candidate:
        device = "cpu" if self._tls_port is not None else device_name(self._device)
        return Candidate(self._index, self.generation, self._updates(), device)
