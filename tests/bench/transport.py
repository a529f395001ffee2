"""One sampler's pushes to one learner over RPC, without learning: the throughput of the transport alone."""

from __future__ import annotations

import multiprocessing as mp
import os
import threading
import time
from multiprocessing.connection import Connection

import torch
from rltraining_trainer.dataflow import ModelServer, TrajectoryQueue, TrajectoryServer
from rltraining_trainer.transport import Endpoint

from tests.bench.table import print_table

TOKEN = "bench"
SECONDS = 3.0
PARAMETERS = 10_000


def run(seeds: int) -> None:
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    models = ModelServer()
    queue = TrajectoryQueue(1)
    server = TrajectoryServer(queue, models)
    endpoint = Endpoint("learner", TOKEN, {"push": server.push, "pull": server.pull})
    endpoint.start()
    threading.Thread(target=_use, args=(queue, models), daemon=True).start()
    rows = []
    for kilobytes in (1, 30, 300, 3000):
        here, there = mp.Pipe()
        sampler = mp.get_context("spawn").Process(target=_push, args=(endpoint.url, kilobytes, there))
        sampler.start()
        here.recv()  # the connection is open
        before = time.process_time()
        pushes, seconds, sampler_cpu = here.recv()
        learner_cpu = time.process_time() - before
        sampler.join()
        rows.append(
            (
                f"{kilobytes:,}",
                f"{pushes / seconds:,.0f}",
                f"{pushes * kilobytes / seconds / 1e6:.2f}",
                f"{sampler_cpu / pushes * 1e6:,.0f}",
                f"{learner_cpu / pushes * 1e6:,.0f}",
            )
        )
    print_table(("KB a push", "pushes/s", "GB/s", "sampler CPU µs", "learner CPU µs"), rows)
    endpoint.stop()


def _use(queue: TrajectoryQueue, models: ModelServer) -> None:
    parameters = torch.zeros(PARAMETERS)
    while True:
        queue.get()
        models.publish(parameters)


def _push(url: str, kilobytes: int, pipe: Connection) -> None:
    """Runs in a separate process: pushes one message after the other. Each reply has new parameters."""
    torch.set_num_threads(1)
    endpoint = Endpoint("sampler", TOKEN, threads=2)
    endpoint.start()
    peer = endpoint.dial(url)
    item = {"observation": torch.zeros(kilobytes * 250)}
    message = {"incarnation": endpoint.incarnation, "sequence": 1, "version": 0, "item": item}
    peer.call("push", message).result()
    pipe.send("ready")
    start, cpu, pushes = time.monotonic(), time.process_time(), 0
    while time.monotonic() - start < SECONDS:
        pushes += 1
        peer.call("push", {**message, "sequence": pushes + 1}).result()
    pipe.send((pushes, time.monotonic() - start, time.process_time() - cpu))
    endpoint.stop()
