"""Who is in the next generation, in which order, and whose state all take: decisions, without clock or network."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Backend: TypeAlias = Literal["gloo", "nccl"]


@dataclass(frozen=True)
class Candidate:
    """A learner that wants to be in the next generation."""

    index: int
    """Its number in the job: learner 0 is the one through which generations form."""
    generation: int
    """The last one that it was in; 0: none."""
    updates: int
    """How far its state is."""
    device: str
    """Where its gradients are: "cpu", or the UUID of a GPU."""


@dataclass(frozen=True)
class RendezvousRound:
    """One set of learners that update together."""

    number: int
    """Grows by each formation, also when learner 0 is another one than before."""
    members: tuple[int, ...]
    """Their indices, in the order of their ranks; learner 0 is first."""
    source: int
    """The rank of the member whose state all take."""
    backend: Backend
    """What sums the gradients."""


def is_complete(joined: Collection[int], expected: Collection[int], now: float, deadline: float) -> bool:
    """Whether to form a generation of those who have `joined`: all who are `expected` have, or it is late."""
    return now >= deadline or set(expected) <= set(joined)


def next_generation(candidates: Sequence[Candidate]) -> RendezvousRound:
    """The generation of `candidates`, of different indices.

    Its state is that of the member with the most updates, the first of them if there are several: no update
    that anybody has applied is lost while one of those who have it lives.
    """
    members = sorted(candidates, key=lambda candidate: candidate.index)
    source = max(range(len(members)), key=lambda rank: members[rank].updates)
    return RendezvousRound(
        number=1 + max(candidate.generation for candidate in members),
        members=tuple(candidate.index for candidate in members),
        source=source,
        backend=choose_backend([candidate.device for candidate in members]),
    )


def choose_backend(devices: Sequence[str]) -> Backend:
    """NCCL if each learner has a GPU of its own, gloo otherwise: NCCL refuses two ranks on one GPU."""
    own_gpus = "cpu" not in devices and len(set(devices)) == len(devices)
    return "nccl" if own_gpus else "gloo"
