"""The learners' group as the learner's loop sees it.

group.form(stopping)
while not done:
    try:
        normalizer, done, update = group.begin(own_normalizer, own_done, update=has_data)
        gradient, count = ...
        total = group.sum(gradient, count)
    except GroupChanged:
        group.form(stopping)   # the state may be another one afterwards
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from rltraining_trainer.group.collectives import Collectives, GroupChanged, device_name
from rltraining_trainer.group.rendezvous import Candidate, Rendezvous, RendezvousRound, RendezvousStore
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
)

_LOG = logging.getLogger(__name__)

Result = TypeVar("Result")

_LONGEST_DELAY = 0.5
"""Seconds between two tries to find learner 0."""
_WORTH_TELLING = 3
"""Fruitless generations in a row after which it is no mere restart of a learner."""
_MOST_DOUBLINGS = 5
"""Of a time-out, by fruitless generations."""
_JOIN_TIMEOUT = 30.0
"""Seconds in learner 0's rendezvous after which to ask again: its machine may be gone without a word."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds."""

    join: float = 5.0
    """For which learner 0 waits for all others when it starts; then it goes on with those who are there."""
    rejoin: float = 1.0
    """For which it waits for those who were there before when a generation has ended."""
    connect: float = 5.0
    """In which the members of a new generation must have connected with each other."""
    collective: float = 10.0
    """After which a learner that does not come to a collective is lost. Twice as long with each generation that ends so
    before there was an update: where one learner takes longer than this, it would be lost for ever."""


class GroupDecision(NamedTuple):
    """What all learners have in common in one round."""

    normalizer: float
    """The largest of all."""
    done: bool
    """Whether this was the last round."""
    update: bool = True
    """Whether there is to be an update: a learner had what that takes, and none held it back."""
    checkpoint: bool = False
    """Whether a checkpoint is to be taken: a learner wants one."""
    total_steps: int | None = None
    """Environment steps at which schedules end, sent by learner 0."""


class SingleLearnerGroup:
    """The group of the only learner: everything is as it is."""

    rank = 0
    size = 1
    generation = 1
    warning = ""
    services: Mapping[str, Handler] = {}

    def form(self, stopping: threading.Event) -> None:
        """Nothing to wait for."""

    def begin(
        self,
        normalizer: float,
        done: bool,
        *,
        update: bool = True,
        hold: bool = False,
        checkpoint: bool = False,
        total_steps: int | None = None,
    ) -> GroupDecision:
        return GroupDecision(normalizer, done, update and not hold, checkpoint, total_steps)

    def sum(self, gradient: Tensor, count: float) -> float:
        return count

    def maximum(self, values: Sequence[float]) -> list[float]:
        return [float(value) for value in values]

    def broadcast(self, values: Tensor, source: int) -> None:
        """They are its own."""

    def barrier(self) -> None:
        """Nobody to wait for."""

    def close(self) -> None:
        """Nothing to end."""


class LearnerGroup:
    """This learner's membership in the group. `form`, `begin`, `sum` and `close` are called by one thread.

    A generation forms through learner 0: the others find it by HTTP and wait in its rendezvous. While it is dead they
    wait for the next one, and bring it the newest state.
    """

    def __init__(
        self,
        index: int,
        replicas: int,
        *,
        endpoint: Callable[[], Endpoint],
        first_learner: str,
        token: str,
        device: torch.device,
        updates: Callable[[], int],
        get_state: Callable[[], dict[str, Any]],
        set_state: Callable[[dict[str, Any]], None],
        timeouts: Timeouts | None = None,
    ) -> None:
        """
        Args:
            index: this learner's number.
            replicas: how many learners there are when all live.
            endpoint: this process' endpoint, which serves `services`. Started before `form` is called.
            first_learner: base URL of learner 0, which serves its rendezvous document from before `form` on.
            device: where gradients are.
            updates: how many updates the state has seen.
            get_state: all that learners have in common: tensors and plain values.
            set_state: takes what `get_state` returned elsewhere, with all tensors on the CPU.
        """
        self.rank = index
        self.size = 0
        """How many learners there are in this generation; 0 while there is none."""
        self.generation = 0
        self._index = index
        self._endpoint = endpoint
        self._first_learner = first_learner
        self._token = token
        self._device = device
        self._updates = updates
        self._get_state = get_state
        self._set_state = set_state
        self._timeouts = timeouts or Timeouts()
        self._rendezvous = Rendezvous() if index == 0 else None
        self._expected: Collection[int] = range(1, replicas)  # those for whom learner 0 waits
        self._patience = self._timeouts.join
        self._collectives: Collectives | None = None
        self._first: Peer | None = None  # learner 0, as long as the connection is of use
        self._done = False
        self._begun = 0  # updates, in this generation
        self._fruitless = 0  # generations of several in a row that ended before an update
        self._reason = ""  # of the end of the last one

    @property
    def warning(self) -> str:
        """Why the learners do not stay together; empty if there is nothing to tell."""
        return self._reason if self._fruitless >= _WORTH_TELLING and not self._is_fruitful else ""

    @property
    def services(self) -> Mapping[str, Handler]:
        """What this learner's endpoint has to serve."""
        return self._rendezvous.services if self._rendezvous is not None else {}

    def form(self, stopping: threading.Event) -> None:
        """Be in a new generation, however long that takes. The state may be another member's afterwards, the newest.

        Raises:
            Stopped: `stopping` was set. Refused: the token is wrong.
        """
        backoff = Backoff(cap=_LONGEST_DELAY)
        self._leave()
        while not self._try_to_form(stopping):
            self._leave()
            if backoff.wait(stopping):
                raise Stopped("stopped while the learners' group forms")

    def begin(
        self,
        normalizer: float,
        done: bool,
        *,
        update: bool = True,
        hold: bool = False,
        checkpoint: bool = False,
        total_steps: int | None = None,
    ) -> GroupDecision:
        """Begin a round, which all learners do together.

        Args:
            normalizer: this learner's.
            done: only learner 0 ever says so.
            update: whether this learner has what an update of all takes; one is enough.
            hold: whether all are to wait for this learner with the update.
            checkpoint: whether this learner wants one of all.
            total_steps: environment steps at which schedules end, given by learner 0 only. The
                others may not have read a change of the job yet, but must make the same update.

        Raises:
            GroupChanged: a learner was lost, or one wants to come in.
        """
        if self._done:
            return GroupDecision(normalizer, done=True, update=False, total_steps=total_steps)
        join = self._rendezvous is not None and self._rendezvous.occupied
        flags = [float(flag) for flag in (done, join, update, hold, checkpoint)]
        own = [normalizer, float(total_steps or 0), *flags]
        largest, total, last, changing, updates, held, saves = self._together(
            lambda collectives: collectives.maximum(own), alone=own
        )
        if last:
            self._done = True
            if self._rendezvous is not None:
                self._rendezvous.finish()
        elif changing:
            self._leave()
            raise GroupChanged("a learner wants to come in")
        if not updates and self.size > 1:
            self._fruitless = 0  # they are together, and wait for data
        update = bool(updates) and not held
        self._begun += update
        return GroupDecision(largest, bool(last), update, bool(saves), int(total) or None)

    def sum(self, gradient: Tensor, count: float) -> float:
        """Sum the flat `gradient` [N] over all learners, in place.

        Args:
            count: of how many items it is the sum; 0 if this learner had none, with a gradient of zeros.

        Returns:
            The sum of the counts, in the precision of `gradient`.

        Raises:
            GroupChanged: a learner was lost; `gradient` is of no use.
        """
        return self._together(lambda collectives: collectives.sum(gradient, count), alone=count)

    def maximum(self, values: Sequence[float]) -> list[float]:
        """The element-wise maximum of `values` over all learners. Raises GroupChanged: a learner was lost."""
        own = [float(value) for value in values]
        return self._together(lambda collectives: collectives.maximum(own), alone=own)

    def broadcast(self, values: Tensor, source: int) -> None:
        """Make contiguous `values`, on the CPU, those of rank `source`, in place. Raises GroupChanged: a learner was lost;
        `values` are of no use then.
        """
        self._together(lambda collectives: collectives.broadcast(values, source), alone=None)

    def barrier(self) -> None:
        """Wait until all learners are here. Raises GroupChanged: one was lost."""
        self.maximum([0.0])

    def close(self) -> None:
        """Leave the group: the others go on at once. May be called twice."""
        self._leave()

    def _together(self, act: Callable[[Collectives], Result], alone: Result) -> Result:
        """What `act` returns, or `alone`. Whoever notices that one is gone leaves at once, which tells the others."""
        if not self.size:
            raise GroupChanged("this learner is in no group: form one")
        if self._collectives is None:
            return alone
        try:
            return act(self._collectives)
        except GroupChanged as change:
            reason = str(change)
        self._fail(reason)
        self._leave()
        raise GroupChanged(reason)  # a new one: the frames of the first hold the connections open

    def _fail(self, reason: str) -> None:
        """A generation has come to an end, or did not come about."""
        self._fruitless = 0 if self._is_fruitful else self._fruitless + 1
        self._reason = reason

    @property
    def _is_fruitful(self) -> bool:
        """Whether this generation is of several, and has updated: the next update has begun."""
        return self.size > 1 and self._begun > 1

    def _leave(self) -> None:
        collectives, self._collectives = self._collectives, None
        self.size = 0
        if collectives is not None:
            collectives.close()

    def _try_to_form(self, stopping: threading.Event) -> bool:
        try:
            self._form(stopping)
        except (GroupChanged, PeerLost, RemoteError) as error:
            _LOG.info("no group of learners yet: %s", error)
            if isinstance(error, GroupChanged):
                self._fail(str(error))
            if isinstance(error, PeerLost):
                self._first = None
            return False
        return True

    def _form(self, stopping: threading.Event) -> None:
        first, generation = self._gather(stopping) if self._rendezvous is not None else self._join(stopping)
        if generation is None:
            self._done, self.rank, self.size = True, 0, 1
            return
        rank = generation.members.index(self._index)
        if len(generation.members) > 1:
            store = RendezvousStore(first, generation.number, self._timeouts.connect)
            self._collectives = Collectives(
                store,
                rank,
                len(generation.members),
                host=_host(self._own_url()),
                backend=generation.backend,
                device=self._device,
                connect_seconds=self._timeouts.connect,
                seconds=self._timeouts.collective * 2 ** min(self._fruitless, _MOST_DOUBLINGS),
            )
            if rank == generation.source:
                send_state(self._collectives, rank, self._get_state())
            else:
                self._set_state(receive_state(self._collectives, generation.source))
        self.rank, self.size, self.generation = rank, len(generation.members), generation.number
        self._begun = 0
        _LOG.info(
            "generation %d of the group: learners %s, summing with %s; the state is that of learner %d, at update %d",
            generation.number,
            ", ".join(map(str, generation.members)),
            generation.backend,
            generation.members[generation.source],
            self._updates(),
        )

    def _gather(self, stopping: threading.Event) -> tuple[Peer, RendezvousRound | None]:
        """Learner 0: take those who wait in the rendezvous."""
        assert self._rendezvous is not None
        generation = self._rendezvous.form(self._candidate(), self._expected, self._patience, stopping)
        self._expected = generation.members[1:]
        self._patience = self._timeouts.rejoin
        return self._dial(self._own_url()), generation

    def _join(self, stopping: threading.Event) -> tuple[Peer, RendezvousRound | None]:
        """The others: wait in learner 0's rendezvous. No generation: the run is done."""
        document = discover(self._first_learner, self._token, stopping=stopping)
        first = self._dial(document["url"])
        call = first.call("join", asdict(self._candidate()), timeout=_JOIN_TIMEOUT)
        answer: Any = call.result(stopping)
        if answer["done"]:
            return first, None
        return first, RendezvousRound(**answer["generation"])

    def _dial(self, url: str) -> Peer:
        """Learner 0 at `url`. The connection is used again: until its endpoint stops, torch closes none."""
        if self._first is None or self._first.url != url:
            self._first = self._endpoint().dial(url)
        return self._first

    def _own_url(self) -> str:
        url = self._endpoint().url
        if not url:
            raise PeerLost("this learner's endpoint is just being opened anew")
        return url

    def _candidate(self) -> Candidate:
        return Candidate(self._index, self.generation, self._updates(), device_name(self._device))


def _host(url: str) -> str:
    """``10.0.0.1`` from ``uv://10.0.0.1:4711``."""
    return url.split("://", 1)[1].rsplit(":", 1)[0].strip("[]")
