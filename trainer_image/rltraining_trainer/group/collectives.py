"""The only file that knows torch's process groups: what the members of one generation do together.

torch's own bookkeeping (`init_process_group`) is not used: a group is an object here, made for one generation
and gone with it.

gloo connects all members with each other and notices within milliseconds when one dies: its sockets close. So
every round goes through gloo, also where NCCL sums the gradients: NCCL would wait for a dead member for ever.

But for one case: when a member dies that was just being sent something, gloo (torch 2.13) closes the connection and
forgets to tell the collective that waits for it, which then waits until its time is over. Whoever waits for long
looks at the connections itself, and leaves that collective to a thread to wait for.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed.distributed_c10d
from torch import Tensor

from rltraining_trainer.group.rendezvous import Backend, RendezvousStore
from rltraining_trainer.transport import PeerLost, RemoteError

c10d: Any = torch.distributed.distributed_c10d  # Any: stubs lack NCCL on the CPU, and options of gloo

_PIECE = 2**24
"""Bytes of one broadcast: a state of any size then fails within the time-out of one piece."""
_NCCL = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # its watchdog would end the process
    "TORCH_NCCL_ENABLE_MONITORING": "0",  # its threads would use the store when the generation is over
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}
_GLANCE = 0.0002
_LOOK = timedelta(seconds=0.25)
"""Of waiting, after which to look whether all members are still connected."""
_AT_ONCE = timedelta(milliseconds=1)
_FORGOTTEN_GLANCE = 0.1


class GroupChanged(Exception):
    """A member was lost, or another one wants to come in: discard the update under way and form again."""


class Collectives:
    """The process group of one generation. After GroupChanged only `close` may be called."""

    def __init__(
        self,
        store: RendezvousStore,
        rank: int,
        size: int,
        *,
        host: str,
        backend: Backend,
        device: torch.device,
        connect_seconds: float,
        seconds: float,
    ) -> None:
        """Connects all members with each other.

        Args:
            host: this process' address; the others connect to it.
            device: where gradients are.
            connect_seconds: how long to wait for the others now.
            seconds: how long to wait for them in each collective.

        Raises:
            GroupChanged: not all members came.
        """
        self._seconds = seconds
        self._others = [other for other in range(size) if other != rank]
        self._buffer = torch.empty(0)
        self._nccl: Any = None
        self._forgotten: Any = None  # a collective that gloo does not end, though a member is gone
        self._store = store  # torch keeps no Python object alive
        options = c10d.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=connect_seconds)
        options._threads = 1
        options._devices = [c10d.ProcessGroupGloo.create_device(hostname=host)]
        try:
            self._gloo = c10d.ProcessGroupGloo(c10d.PrefixStore("gloo", store), rank, size, options)
            self._gloo.set_timeout(timedelta(seconds=seconds))
            if backend == "nccl":
                self._nccl = _make_nccl(c10d.PrefixStore("nccl", store), rank, size, seconds)
                self._sum_by_nccl(torch.zeros(1, device=device))  # the first one connects
        except (RuntimeError, PeerLost, RemoteError) as error:
            raise GroupChanged(f"the learners could not be connected: {_tidy(error)}") from error

    def maximum(self, values: Sequence[float]) -> list[float]:
        """The element-wise maximum over all members. Raises GroupChanged."""
        largest = torch.tensor(values, dtype=torch.float64)
        self._reduce(largest, c10d.ReduceOp.MAX)
        return largest.tolist()

    def sum(self, gradient: Tensor, count: float) -> float:
        """The sum over all members: of `gradient` [N] in place, and of `count`. Raises GroupChanged; `gradient` is of
        no use then.
        """
        flat = gradient.detach()
        if self._nccl is not None:
            # All have arrived when this is done: NCCL, which cannot tell a late member from a dead one, waits for
            # nobody.
            total = torch.tensor([count], dtype=torch.float64)
            self._reduce(total, c10d.ReduceOp.SUM)
            self._sum_by_nccl(flat)
            return total.item()
        if self._buffer.numel() != flat.numel() + 1 or self._buffer.dtype != flat.dtype:
            self._buffer = torch.empty(flat.numel() + 1, dtype=flat.dtype, pin_memory=flat.is_cuda)
        self._buffer[:-1].copy_(flat)
        self._buffer[-1] = count
        self._reduce(self._buffer, c10d.ReduceOp.SUM)
        flat.copy_(self._buffer[:-1])
        return self._buffer[-1].item()

    def broadcast(self, values: Tensor, source: int) -> None:
        """Make contiguous `values`, on the CPU, those of rank `source`, in place. Raises GroupChanged."""
        options = c10d.BroadcastOptions()
        options.rootRank = source
        for piece in values.reshape(-1).view(torch.uint8).split(_PIECE):
            self._wait(self._gloo.broadcast, [piece], options)

    def close(self) -> None:
        """End all connections: the others notice at once. Takes milliseconds."""
        if self._nccl is not None:
            self._nccl.abort()
        if self._forgotten is not None:
            self._disconnect()
            threading.Thread(target=_outwait, args=[self._forgotten, self._gloo]).start()
        self._nccl = self._gloo = self._forgotten = None

    def _reduce(self, values: Tensor, operation: Any) -> None:
        options = c10d.AllreduceOptions()
        options.reduceOp = operation
        self._wait(self._gloo.allreduce, [values], options)

    def _wait(self, start: Any, *arguments: Any) -> None:
        try:
            work = start(*arguments)
            while not _is_over(work):
                self._look(work)
        except RuntimeError as error:
            raise GroupChanged(f"a learner was lost: {_tidy(error)}") from error

    def _look(self, work: Any) -> None:
        """Raises RuntimeError: a connection is closed, by which `work` should have ended."""
        try:
            for other in self._others:
                self._ask(other)
        except RuntimeError:
            if _is_over(work):  # the other was done with it, or it tells itself why it failed
                return
            self._forgotten = work
            raise

    def _disconnect(self) -> None:
        """A time-out is what makes gloo close all connections; its `abort` does nothing."""
        for other in self._others:
            with suppress(RuntimeError):
                self._ask(other).wait(_AT_ONCE)

    def _ask(self, other: int) -> Any:
        """Ask `other` for what it never sends. Raises RuntimeError: the connection is closed."""
        return self._gloo.recv([torch.empty(1)], other, 0)

    def _sum_by_nccl(self, flat: Tensor) -> None:
        deadline = time.monotonic() + self._seconds
        try:
            work = self._nccl.allreduce([flat])
            while not work.is_completed():
                if time.monotonic() > deadline:
                    raise GroupChanged(f"a learner was lost: no sum within {self._seconds} s")
                time.sleep(_GLANCE)
            work.wait()
        except RuntimeError as error:
            raise GroupChanged(f"a learner was lost: {_tidy(error)}") from error


def device_name(device: torch.device) -> str:
    """What tells `device` from those of other learners: "cpu", or a GPU's UUID."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else "cpu"


def _is_over(work: Any) -> bool:
    """Whether `work` is, after a while of waiting for it. Raises RuntimeError: it has failed."""
    try:
        work.wait(_LOOK)
    except RuntimeError:  # also when the while is over
        if not work.is_completed():
            return False
        work.wait()
    return True


def _outwait(work: Any, gloo: Any) -> None:
    """Keep `gloo`, whose end waits for `work`, until that is over; for good if this process ends first."""
    while not work.is_completed():
        if not threading.main_thread().is_alive():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(gloo))
            return
        time.sleep(_FORGOTTEN_GLANCE)


def _make_nccl(store: Any, rank: int, size: int, seconds: float) -> Any:
    for name, value in _NCCL.items():
        os.environ.setdefault(name, value)
    options = c10d.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=seconds)
    return c10d.ProcessGroupNCCL(store, rank, size, options)


def _tidy(error: Exception) -> str:
    """The first sentence of torch's message, without where in its source it comes from."""
    return re.sub(r"^\[[^\]]*\] ", "", str(error)).split("\n", 1)[0].split(". This is typically", 1)[0]
