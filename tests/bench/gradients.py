"""The gradient server alone: gradients that are made up, applied as they come, answered with the parameters they led to.

In its own process it is called by as many threads as it has senders; over RPC they are two other processes, each of which has
several pushes under way, as several samplers would. SGD, so that what is measured is the way of a gradient, not the optimizer.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch
from rltraining_trainer.algorithms.optimizers import Sgd
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.dataflow.gradients import GradientQueue, GradientServer, reduce_gradients
from rltraining_trainer.roles.main import keep_memory
from rltraining_trainer.transport import Endpoint

from tests.bench.table import print_table

TOKEN = "bench"
SECONDS = 4.0
SENDERS, UNDER_WAY = 2, 4
SIZES = {"10 KB": (2_500, "5,000 pushes/s"), "20 MB": (5_000_000, "1.5 GB/s")}


def run(seeds: int) -> None:
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    keep_memory()
    rows = []
    for name, (size, wanted) in SIZES.items():
        for where, push in (("in process", _push_here), ("over RPC", _push_over_rpc)):
            with _Holder(size) as holder:
                before = time.process_time()
                pushes, seconds = push(holder, size)
                cpu = (time.process_time() - before) / pushes
            rate = pushes / seconds
            rows.append(
                (name, where, f"{rate:,.0f}", f"{rate * size * 4 / 1e9:.2f}", wanted, f"{cpu * 1e6:,.0f}")
            )
    print_table(("a gradient", "", "pushes/s", "GB/s", "wanted", "CPU µs a push, this process"), rows)


class _Holder:
    """A learner's loop with nothing but the server and an optimizer."""

    def __init__(self, size: int) -> None:
        self.models = ModelServer()
        self._parameters = torch.zeros(size)
        self._optimizer = Sgd(size, torch.device("cpu"), momentum=0.0)
        self._gradients = GradientQueue(lambda: 1, 1.0, lambda: self.models.version)
        self.server = GradientServer(self._gradients, self.models, size)
        self.endpoint = Endpoint("learner", TOKEN, self.server.services, direct=size * 4 >= 1 << 20)
        self._done = False
        self._thread = threading.Thread(target=self._run)

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
            "returns": returns,
            "terms": {},
        }


def _push_here(holder: _Holder, size: int) -> tuple[int, float]:
    """(pushes, seconds) of threads of this process, each of which waits for its answers."""
    counts = [0] * SENDERS
    start = time.monotonic()

    def send(number: int) -> None:
        for message in _messages(str(number), size):
            if time.monotonic() - start > SECONDS:
                return
            answered = threading.Event()
            holder.server.push(str(number), message).attach(lambda answer: answered.set())  # noqa: B023
            answered.wait()
            counts[number] += 1

    threads = [threading.Thread(target=send, args=(number,)) for number in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts), time.monotonic() - start


def _push_over_rpc(holder: _Holder, size: int) -> tuple[int, float]:
    """(pushes, seconds) of other processes."""
    context = mp.get_context("spawn")
    pipes, senders = [], []
    for number in range(SENDERS):
        here, there = mp.Pipe()
        sender = context.Process(target=_send, args=(holder.endpoint.url, number, size, there))
        sender.start()
        pipes.append(here)
        senders.append(sender)
    for pipe in pipes:
        pipe.recv()  # it is connected
    start = time.monotonic()
    for pipe in pipes:
        pipe.send("go")
    pushes = sum(pipe.recv() for pipe in pipes)
    seconds = time.monotonic() - start
    for sender in senders:
        sender.join()
    return pushes, seconds


def _send(url: str, number: int, size: int, pipe: Connection) -> None:
    torch.set_num_threads(1)
    keep_memory()
    endpoint = Endpoint(str(number), TOKEN, threads=2, direct=size * 4 >= 1 << 20)
    endpoint.start()
    peer = endpoint.dial(url)
    messages = [_messages(f"{number}.{sender}", size) for sender in range(UNDER_WAY)]
    call: Callable[[int], Any] = lambda sender: peer.call("push", next(messages[sender]))  # noqa: E731
    call(0).result()
    pipe.send("ready")
    pipe.recv()
    under_way = deque((sender, call(sender)) for sender in range(UNDER_WAY))
    pushes, start = 0, time.monotonic()
    while time.monotonic() - start < SECONDS:
        sender, pending = under_way.popleft()
        pending.result()
        pushes += 1
        under_way.append((sender, call(sender)))
    for _, pending in under_way:
        pending.result()
    pipe.send(pushes)
    endpoint.stop()
