"""Many samplers on one learner: cost per sampler for the learner, age of their data, and fairness.

Each sampler is a process with a separate connection that pushes unrolls of zeros. It sleeps for the
time in which a real sampler would collect an unroll, and the learner sleeps for the time of an
update, so that two cores carry hundreds of samplers.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import psutil
import torch
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.roles.main import keep_memory
from rltraining_trainer.transport import Endpoint
from rltraining_trainer.world.trajectories import PATH, LearnerTrajectories

from tests.bench.table import print_table

TOKEN = "bench"
SAMPLERS = (1, 10, 100, 300, 1000)
COLLECT_SECONDS, UPDATE_SECONDS = 0.005, 0.002
MAX_LAG = 8
SECONDS = 10.0
PARAMETERS = 10_000
STEPS, ENVIRONMENTS = 16, 4
CALL_SECONDS = 120.0


def run(seeds: int) -> None:
    rows = []
    for samplers in SAMPLERS:
        command = [sys.executable, "-m", "tests.bench.samplers", str(samplers)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{samplers} samplers: {done.stderr.strip().splitlines()[-1]}")
            continue
        rows.append(json.loads(done.stdout)["row"])
    print(
        f"An unroll takes {COLLECT_SECONDS * 1e3:g} ms, an update of one unroll {UPDATE_SECONDS * 1e3:g} ms; "
        f"maxPolicyLag {MAX_LAG}; {SECONDS:g} s each.\n"
    )
    heads = ("samplers", "unrolls/s", "learner CPU µs an unroll", "KiB a sampler", "descriptors a sampler")
    print_table((*heads, "lag p50/p99/max", "s for a credit p50/p99", "dropped", "fairness (Jain)"), rows)


def row(samplers: int, found: dict[str, Any]) -> tuple[str, ...]:
    """Formats a measurement for the table."""
    return (
        f"{samplers:,}",
        f"{found['pushes'] / SECONDS:,.0f}",
        f"{found['cpu'] / found['pushes'] * 1e6:,.0f}",
        f"{found['kilobytes'] / samplers:,.0f}",
        f"{found['descriptors'] / samplers:.1f}",
        "/".join(f"{quantile(found['lags'], share)}" for share in (0.5, 0.99, 1.0)),
        "/".join(f"{quantile(found['waits'], share):.2f}" for share in (0.5, 0.99)),
        f"{found['dropped'] / found['pushes']:.1%}",
        f"{found['fairness']:.3f}",
    )


def quantile(values: Sequence[float], share: float) -> float:
    """Returns a quantile of sorted values."""
    return values[int(share * (len(values) - 1))]


def measure(samplers: int) -> dict[str, Any]:
    """Runs the learner, and its samplers as forks that wait for its address."""
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    read, write = os.pipe()
    children = [_fork(index, read, write) for index in range(samplers)]

    keep_memory()  # as every learner does
    models, stopping = ModelServer(), threading.Event()
    queue = LearnerTrajectories(1, models, stopping, max_lag=MAX_LAG)
    pushed: dict[str, int] = {}
    waits: list[float] = []
    services = dict(queue.services)

    def push(sender: str, payload: Any) -> Any:
        pushed[sender] = pushed.get(sender, 0) + 1
        waits.append(payload.pop("waited"))
        return services[f"{PATH}/push"](sender, payload)

    parameters = torch.zeros(PARAMETERS)
    models.publish(parameters)
    endpoint = Endpoint("learner", TOKEN, {**services, f"{PATH}/push": push})
    endpoint.start()
    process = psutil.Process()
    memory, descriptors = process.memory_info().rss, process.num_fds()
    os.write(write, endpoint.url.encode().ljust(64) * samplers)

    def update() -> None:
        if queue.get(1):
            time.sleep(UPDATE_SECONDS)
            models.publish(parameters)

    # Start measuring when all samplers are connected and have had a turn.
    deadline = time.monotonic() + CALL_SECONDS
    while len(pushed) < samplers and time.monotonic() < deadline:
        update()
    pushed.clear()
    waits.clear()
    begin, cpu, lags, before = time.monotonic(), time.process_time(), list[int](), queue.counts()
    while time.monotonic() - begin < SECONDS:
        update()
        lags += queue.lags
    cpu = time.process_time() - cpu
    counts, turns = queue.counts(), list(pushed.values())
    found = {
        "pushes": counts.pushed - before.pushed,
        "dropped": counts.dropped - before.dropped,
        "cpu": cpu,
        "kilobytes": (process.memory_info().rss - memory) / 1024,
        "descriptors": process.num_fds() - descriptors,
        "lags": sorted(lags),
        "waits": sorted(waits),
        "fairness": sum(turns) ** 2 / (samplers * sum(turn**2 for turn in turns)),
    }
    for child in children:
        os.kill(child, 9)
    return found


def _fork(index: int, read: int, write: int) -> int:
    child = os.fork()
    if not child:
        try:
            os.close(write)
            _push(f"sampler-{index}", os.read(read, 64).decode().strip())
        finally:
            os._exit(1)
    return child


def _push(name: str, url: str) -> None:
    """Pushes one unroll after the other, as `SamplerTrajectories` does."""
    endpoint = Endpoint(name, TOKEN, threads=1)
    endpoint.start()
    peer = endpoint.dial(url)
    unroll = {
        "observation": torch.zeros(STEPS + 1, ENVIRONMENTS, 4),
        **{field: torch.zeros(STEPS, ENVIRONMENTS) for field in ("action", "reward", "log_prob", "ended")},
    }
    answer: Any = {"credit": False, "version": 0}
    sequence, pending, began = 0, None, time.monotonic()
    while True:
        while not answer["credit"]:
            request = {"version": answer["version"]}
            answer = peer.call(f"{PATH}/credit", request, timeout=CALL_SECONDS).result()
        version, waited = answer["version"], time.monotonic() - began
        time.sleep(COLLECT_SECONDS)
        began = time.monotonic()
        if pending is not None:
            answer = pending.result()
        sequence += 1
        push = {"incarnation": endpoint.incarnation, "sequence": sequence, "version": version, "item": unroll}
        push["waited"] = waited
        pending = peer.call(f"{PATH}/push", push, timeout=CALL_SECONDS)
        if not answer["ahead"]:
            answer, pending = pending.result(), None


if __name__ == "__main__":
    samplers = int(sys.argv[1])
    found = measure(samplers)
    result = {
        "row": row(samplers, found),
        "lag": [quantile(found["lags"], share) for share in (0.5, 0.99)],
        "microseconds": found["cpu"] / found["pushes"] * 1e6,
    }
    print(json.dumps(result))
    sys.stdout.flush()
    os._exit(0)
