"""Learners in threads that sum tensors as a group of learners does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from rltraining_trainer.dataflow.reduce import Reduce
from torch import Tensor

R = TypeVar("R")


class Group:
    """A group of ``size`` learners.

    An all-reduce that not all learners make fails in the others after a minute, as do tensors of unequal sizes.
    """

    def __init__(self, size: int) -> None:
        self.calls: list[list[int]] = [[] for _ in range(size)]
        """For each learner: the sizes of the tensors that it summed."""
        self._parts: list[Any] = [None] * size
        self._barrier = threading.Barrier(size, timeout=60)

    def reduce_at(self, index: int) -> Reduce:
        def reduce(values: Tensor, count: float) -> float:
            self._parts[index] = (values.clone(), count)
            self.calls[index].append(values.numel())
            self._barrier.wait()
            tensors, counts = zip(*self._parts, strict=True)
            total = torch.stack(tensors).sum(0)
            self._barrier.wait()
            values.copy_(total)
            return float(sum(counts))

        return reduce

    def run(self, learners: Sequence[Callable[[Reduce], R]]) -> list[R]:
        """Runs what each learner does in a thread, if there are several. Returns their results."""
        if len(learners) == 1:
            return [learners[0](self.reduce_at(0))]
        with ThreadPoolExecutor(len(learners)) as pool:
            futures = [pool.submit(learner, self.reduce_at(index)) for index, learner in enumerate(learners)]
        return [future.result() for future in futures]


def run_together(learners: Sequence[Callable[[Reduce], R]]) -> list[R]:
    """Runs what each learner of a new group does in a thread. Returns their results."""
    return Group(len(learners)).run(learners)
