"""Computes two independent parts of a loss at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch
from torch import nn

from rltraining_trainer.networks import parameter_count
from rltraining_trainer.networks.user_torso import UserTorso

A = TypeVar("A")
B = TypeVar("B")


LEAST_WORK = 10_000_000
"""Smallest number of parameters times transitions for which a second thread is faster. One update of SAC on two cores, with
one and with two threads: 7.25 and 6.69 ms at 15 M (networks of 128-128), 13.8 and 9.3 ms at 56 M (256-256), but 4.6 and 6.5 ms
at 5 M (64-64)."""


def can_be_parallel(network: nn.Module, batch_size: int) -> bool:
    """Returns whether two threads should use the network: on the CPU, if it is large and has no part made by the user.

    The user's part may be random, for example with dropout. The order in which two threads draw random numbers varies. On
    a GPU both threads would wait for the same stream. With `learner.threads` both would use that many cores.
    """
    if 2 * torch.get_num_threads() > (os.cpu_count() or 1):
        return False
    if any(isinstance(module, UserTorso) for module in network.modules()):
        return False
    if any(parameter.device.type != "cpu" for parameter in network.parameters()):
        return False
    return batch_size * parameter_count(network) >= LEAST_WORK


def both(one: Callable[[], A], other: Callable[[], B], *, parallel: bool) -> tuple[A, B]:
    """Returns the results of both functions. The second one runs in another thread if ``parallel``, otherwise afterwards.

    The results are the same, bit for bit, either way: the functions must not change the same tensors, and only one of them may
    draw random numbers.
    """
    if not parallel:
        return one(), other()
    beside = _worker().submit(other)
    try:
        return one(), beside.result()
    finally:
        beside.exception()  # waits for the other function if the first one has raised


@cache
def _worker() -> ThreadPoolExecutor:
    """Returns the only other thread. It is kept, since torch prepares each new thread for milliseconds."""
    return ThreadPoolExecutor(1, "loss")
