"""Measures the gradient server alone.

The server applies synthetic gradients on arrival and answers with the resulting parameters.

In one process, one thread per sender calls the server. Over RPC, two other processes call it, each
with several pushes in flight, as several samplers would. The optimizer is SGD, so that the figure
shows the cost of transferring a gradient and not the optimizer.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier, Event
from typing import Any

import torch
from rltraining_trainer.algorithms.optimizers import Sgd
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.dataflow.gradients import (
    GradientQueue,
    GradientReader,
    GradientServer,
    reduce_gradients,
)
from rltraining_trainer.roles.main import keep_memory
from rltraining_trainer.transport import Endpoint

from tests.bench.table import print_table

TOKEN = "bench"
WARM_UP, SECONDS = 25.0, 5.0
"""Until glibc has allocated the memory that it keeps, each new page costs more than the measured work."""
SENDERS, UNDER_WAY = 2, 4
SIZES = {"10 KB": 2_500, "20 MB": 5_000_000}


def run(seeds: int) -> None:
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    keep_memory()
    rows = []
    for name, size in SIZES.items():
        for where, pushing in (("in process", _pushing_here), ("over RPC", _pushing_over_rpc)):
            with _Holder(size) as holder, pushing(holder, size):
                time.sleep(WARM_UP)
                pushed, start, cpu = holder.pushed, time.monotonic(), time.process_time()
                time.sleep(SECONDS)
                cpu, seconds, pushes = (
                    time.process_time() - cpu,
                    time.monotonic() - start,
                    holder.pushed - pushed,
                )
            rate = pushes / seconds
            gigabytes = f"{rate * size * 4 / 1e9:.2f}"
            rows.append((name, where, f"{rate:,.0f}", gigabytes, f"{cpu / pushes * 1e6:,.0f}"))
    print_table(("a gradient", "", "pushes/s", "GB/s", "CPU µs a push, this process"), rows)


class _Holder:
    """A learner's loop with nothing but the server and an optimizer."""

    def __init__(self, size: int) -> None:
        self.models = ModelServer()
        self._parameters = torch.zeros(size)
        self._optimizer = Sgd(size, torch.device("cpu"), momentum=0.0)
        self._gradients = GradientQueue(lambda: 1, 1.0, lambda: self.models.version)
        self.server = GradientServer(self._gradients, self.models, GradientReader(size))
        self.endpoint = Endpoint("learner", TOKEN, self.server.services, direct=size * 4 >= 1 << 20)
        self._done = False
        self._thread = threading.Thread(target=self._run)

    @property
    def pushed(self) -> int:
        """Returns the number of gradients that were applied and answered."""
        return self._gradients.counts().applied

    def __enter__(self) -> _Holder:
        self.models.publish(self._parameters)
        self._gradients.restart("bench")
        self.endpoint.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done = True
        self._thread.join()
        self._gradients.check_valid()
        self.endpoint.stop()

    def _run(self) -> None:
        while not self._done:
            if self._gradients.is_ready(0.1):
                pushes = self._gradients.take()
                gradient = reduce_gradients([push.gradient for push in pushes], [1.0] * len(pushes), "Mean")
                self._optimizer.step(self._parameters, gradient, 1e-6)
                self.models.publish(self._parameters)
            self._gradients.release()


def _messages(name: str, size: int) -> Iterator[dict[str, Any]]:
    gradient, returns = torch.zeros(size), torch.zeros(0)
    sequence = 0
    while True:
        sequence += 1
        yield {
            "incarnation": name,
            "sequence": sequence,
            "version": 0,
            "place": ("bench", 0, 0),
            "gradient": gradient,
            "weight": 1.0,
            "steps": 20,
            "episodes": 0,
            "returns": returns,
            "terms": {},
            "moments": torch.zeros(0, 0, dtype=torch.float64),
        }


@contextmanager
def _pushing_here(holder: _Holder, size: int) -> Iterator[None]:
    """Pushes from threads of this process. Each thread waits for its answers."""
    done = threading.Event()

    def send(number: int) -> None:
        for message in _messages(str(number), size):
            answered = threading.Event()
            holder.server.push(str(number), message).attach(lambda answer: answered.set())  # noqa: B023
            answered.wait()
            if done.is_set():
                return

    threads = [threading.Thread(target=send, args=(number,)) for number in range(SENDERS)]
    for thread in threads:
        thread.start()
    yield
    done.set()
    for thread in threads:
        thread.join()


@contextmanager
def _pushing_over_rpc(holder: _Holder, size: int) -> Iterator[None]:
    """Pushes from other processes."""
    context = mp.get_context("spawn")
    done = context.Event()
    connected = context.Barrier(SENDERS + 1)
    senders = [
        context.Process(target=_send, args=(holder.endpoint.url, number, size, connected, done))
        for number in range(SENDERS)
    ]
    for sender in senders:
        sender.start()
    connected.wait()
    yield
    done.set()
    for sender in senders:
        sender.join()


def _send(url: str, number: int, size: int, connected: Barrier, done: Event) -> None:
    torch.set_num_threads(1)
    keep_memory()
    endpoint = Endpoint(str(number), TOKEN, threads=2, direct=size * 4 >= 1 << 20)
    endpoint.start()
    peer = endpoint.dial(url)
    messages = [_messages(f"{number}.{sender}", size) for sender in range(UNDER_WAY)]
    call: Callable[[int], Any] = lambda sender: peer.call("push", next(messages[sender]))  # noqa: E731
    connected.wait()
    under_way = deque((sender, call(sender)) for sender in range(UNDER_WAY))
    while not done.is_set():
        sender, pending = under_way.popleft()
        pending.result()
        under_way.append((sender, call(sender)))
    for _, pending in under_way:
        pending.result()
    endpoint.stop()
