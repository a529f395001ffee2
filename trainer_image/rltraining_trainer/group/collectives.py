"""Collective operations of the members of one round, based on torch's process groups.

`init_process_group` is not used, because its group is global. Here the process group of a round is
an object that is closed with the round.

gloo connects all members with each other and detects a death within milliseconds, because the
sockets close. Therefore each step first goes through gloo, even if NCCL sums the gradients: NCCL
would block on a dead member without end.

gloo (torch 2.13) misses one case. If a member dies while data is sent to it, gloo closes the
connection but does not fail the collective, which then blocks until its time-out. A collective that
takes long therefore checks the connections itself. A stuck collective is left to a thread.
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

# Any: the stubs lack NCCL on the CPU, and options of gloo.
c10d: Any = torch.distributed.distributed_c10d

_BROADCAST_BYTES = 2**24
"""Size of one broadcast, which must take less time than the time-out of a collective."""
_NCCL_ENVIRONMENT = {
    # NCCL's watchdog would end the process.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    # NCCL's threads would use the store after the round has ended.
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}
_NCCL_POLL_SECONDS = 0.0002
_CHECK_INTERVAL = timedelta(seconds=0.25)
"""Time between two checks of the connections while a collective is pending."""
_IMMEDIATELY = timedelta(milliseconds=1)
_STUCK_POLL_SECONDS = 0.1


class GroupChanged(Exception):
    """A member was lost, or another learner joins. Discard the update and form the group again."""


class Collectives:
    """The process group of one round. After GroupChanged only `close` may be called."""

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
            host: Address of this process, to which the others connect.
            device: Location of the gradients.
            connect_seconds: Time-out for connecting. In torch 2.8 at least `seconds`.
            seconds: Time-out of each collective.

        Raises:
            GroupChanged: A member is missing.
        """
        self._seconds = seconds
        self._others = [other for other in range(size) if other != rank]
        self._buffer = torch.empty(0)
        self._nccl: Any = None
        # A collective that gloo does not end although a member is lost.
        self._stuck: Any = None
        # torch does not keep the Python object alive.
        self._store = store
        options = c10d.ProcessGroupGloo._Options()
        # In torch 2.8 the time-out for connecting is also that of collectives: `_wait` ends these
        # earlier.
        self._has_two_timeouts = hasattr(c10d.ProcessGroupGloo, "set_timeout")
        options._timeout = timedelta(
            seconds=connect_seconds if self._has_two_timeouts else max(connect_seconds, seconds)
        )
        options._threads = 1
        options._devices = [c10d.ProcessGroupGloo.create_device(hostname=host)]
        try:
            self._gloo = c10d.ProcessGroupGloo(c10d.PrefixStore("gloo", store), rank, size, options)
            if self._has_two_timeouts:
                self._gloo.set_timeout(timedelta(seconds=seconds))
            if backend == "nccl":
                self._nccl = _make_nccl(c10d.PrefixStore("nccl", store), rank, size, seconds)
                # The first collective connects.
                self._sum_by_nccl(torch.zeros(1, device=device))
        except (RuntimeError, PeerLost, RemoteError) as error:
            raise GroupChanged(f"the learners could not be connected: {_tidy(error)}") from error

    def maximum(self, values: Sequence[float]) -> list[float]:
        """Returns the element-wise maximum over all members. Raises GroupChanged."""
        largest = torch.tensor(values, dtype=torch.float64)
        self._reduce(largest, c10d.ReduceOp.MAX)
        return largest.tolist()

    def sum(self, gradient: Tensor, count: float) -> float:
        """Sums `gradient` ``[N]`` over all members in place, and returns the sum of `count`.

        Raises:
            GroupChanged: A member was lost. `gradient` is undefined.
        """
        flat = gradient.detach()
        if self._nccl is not None:
            # Synchronize with gloo first: NCCL cannot distinguish a late member from a dead one.
            total = torch.tensor([count], dtype=torch.float64)
            self._reduce(total, c10d.ReduceOp.SUM)
            self._sum_by_nccl(flat)
            return total.item()
        # Sum the gradient and the count in one buffer.
        if self._buffer.numel() != flat.numel() + 1 or self._buffer.dtype != flat.dtype:
            self._buffer = torch.empty(flat.numel() + 1, dtype=flat.dtype, pin_memory=flat.is_cuda)
        self._buffer[:-1].copy_(flat)
        self._buffer[-1] = count
        self._reduce(self._buffer, c10d.ReduceOp.SUM)
        flat.copy_(self._buffer[:-1])
        return self._buffer[-1].item()

    def broadcast(self, values: Tensor, source: int) -> None:
        """Overwrites contiguous CPU `values` with those of rank `source`. Raises GroupChanged."""
        options = c10d.BroadcastOptions()
        options.rootRank = source
        for part in values.reshape(-1).view(torch.uint8).split(_BROADCAST_BYTES):
            self._wait(self._gloo.broadcast, [part], options)

    def close(self) -> None:
        """Closes all connections within milliseconds. The other members detect that immediately."""
        if self._nccl is not None:
            self._nccl.abort()
        if self._stuck is not None:
            self._disconnect()
            threading.Thread(target=_release_when_done, args=[self._stuck, self._gloo]).start()
        self._nccl = self._gloo = self._stuck = None

    def _reduce(self, values: Tensor, operation: Any) -> None:
        options = c10d.AllreduceOptions()
        options.reduceOp = operation
        self._wait(self._gloo.allreduce, [values], options)

    def _wait(self, start: Any, *arguments: Any) -> None:
        """Runs a collective and checks the connections meanwhile. Raises GroupChanged."""
        try:
            work, deadline = start(*arguments), time.monotonic() + self._seconds
            while not _is_over(work, self._check_interval(deadline)):
                self._check_connections(work)
                if not self._has_two_timeouts and time.monotonic() >= deadline:
                    self._stuck = work
                    raise GroupChanged(f"a learner was lost: Timed out waiting for {self._seconds} s")
        except RuntimeError as error:
            raise GroupChanged(f"a learner was lost: {_tidy(error)}") from error

    def _check_interval(self, deadline: float) -> timedelta:
        """Returns how long to wait for a collective before the next check of the connections."""
        if self._has_two_timeouts:
            return _CHECK_INTERVAL
        remaining = timedelta(seconds=deadline - time.monotonic())
        return min(_CHECK_INTERVAL, max(remaining, _IMMEDIATELY))

    def _check_connections(self, work: Any) -> None:
        """Raises RuntimeError if a connection is closed and `work` is still pending."""
        try:
            for other in self._others:
                self._receive(other)
        except RuntimeError:
            # The member may have left after the collective.
            if _is_over(work, _CHECK_INTERVAL):
                return
            self._stuck = work
            raise

    def _disconnect(self) -> None:
        """Makes gloo close all connections by a time-out. Its `abort` has no effect."""
        for other in self._others:
            with suppress(RuntimeError):
                self._receive(other).wait(_IMMEDIATELY)

    def _receive(self, other: int) -> Any:
        """Receives a message that is never sent. Raises RuntimeError if disconnected."""
        return self._gloo.recv([torch.empty(1)], other, 0)

    def _sum_by_nccl(self, flat: Tensor) -> None:
        deadline = time.monotonic() + self._seconds
        try:
            work = self._nccl.allreduce([flat])
            while not work.is_completed():
                if time.monotonic() > deadline:
                    raise GroupChanged(f"a learner was lost: no sum within {self._seconds} s")
                time.sleep(_NCCL_POLL_SECONDS)
            work.wait()
        except RuntimeError as error:
            raise GroupChanged(f"a learner was lost: {_tidy(error)}") from error


def device_name(device: torch.device) -> str:
    """Returns a name that no other device in the cluster has: "cpu", or the UUID of a GPU."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else "cpu"


def _is_over(work: Any, interval: timedelta) -> bool:
    """Waits up to `interval` and returns whether `work` is done. Raises RuntimeError on failure."""
    try:
        work.wait(interval)
    except RuntimeError:
        # A time-out is a RuntimeError, too.
        if not work.is_completed():
            return False
        work.wait()
    return True


def _release_when_done(work: Any, gloo: Any) -> None:
    """Keeps a reference to `gloo` until `work` is done, because its destructor would block on
    `work`.

    If the process ends first, the reference is leaked.
    """
    while not work.is_completed():
        if not threading.main_thread().is_alive():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(gloo))
            return
        time.sleep(_STUCK_POLL_SECONDS)


def _make_nccl(store: Any, rank: int, size: int, seconds: float) -> Any:
    for name, value in _NCCL_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    options = c10d.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=seconds)
    return c10d.ProcessGroupNCCL(store, rank, size, options)


def _tidy(error: Exception) -> str:
    """Returns the first sentence of torch's message, without the location in torch's source."""
    return re.sub(r"^\[[^\]]*\] ", "", str(error)).split("\n", 1)[0].split(". This is typically", 1)[0]
