"""Learners of a toy problem, in processes that tests disturb: synchronous gradient descent on a quadratic."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from typing import Any

import torch
from rltraining_api.contract import RENDEZVOUS_PATH
from rltraining_trainer.group import GroupChanged, LearnerGroup, Timeouts
from rltraining_trainer.transport import Endpoint, MemberServer, Stopped, on_stop_signal
from transport_members import TOKEN, Say

PACE = 0.002
"""Seconds of computing a gradient."""
EVERY = 20
"""Updates between two reports."""
RATE = 0.01


class ToyLearner:
    """Parameters that follow the mean of the learners' targets, and a momentum."""

    def __init__(self, index: int, parameters: int) -> None:
        self.parameters = torch.full((parameters,), float(index))  # not the others': they must take one's
        self.momentum = torch.zeros(parameters)
        self.updates = 0
        self._generator = torch.Generator().manual_seed(index)
        self.gradient = torch.zeros(parameters)

    def compute(self) -> float:
        """Computes the gradient over a few items, which differ per learner. Returns the number of items."""
        count = int(torch.randint(0, 5, (), generator=self._generator))
        target = torch.randn(1, generator=self._generator)
        torch.mul(self.parameters - target, count, out=self.gradient)
        return count

    def step(self, total: float) -> None:
        if total:
            self.momentum.mul_(0.9).add_(self.gradient, alpha=1 / total)
            self.parameters.sub_(self.momentum, alpha=RATE)
        self.updates += 1

    def get_state(self) -> dict[str, Any]:
        return {"parameters": self.parameters, "momentum": self.momentum, "updates": self.updates}

    def set_state(self, state: dict[str, Any]) -> None:
        self.parameters.copy_(state["parameters"])
        self.momentum.copy_(state["momentum"])
        self.updates = state["updates"]

    def digest(self) -> str:
        content = torch.cat([self.parameters, self.momentum]).numpy().tobytes()
        return f"{self.updates} {hashlib.sha256(content).hexdigest()[:16]}"


def open_group(
    index: int, replicas: int, url: str, learner: ToyLearner, options: dict[str, Any]
) -> tuple[LearnerGroup, Endpoint, MemberServer]:
    endpoint = Endpoint(f"learner-{index}", TOKEN)
    group = LearnerGroup(
        index,
        replicas,
        endpoint=endpoint,
        first_learner=url,
        token=TOKEN,
        device=torch.device("cpu"),
        updates=lambda: learner.updates,
        get_state=learner.get_state,
        set_state=learner.set_state,
        timeouts=Timeouts(**options.get("timeouts", {})),
    )
    endpoint.serve(group.services or {"echo": lambda sender, payload: payload})
    endpoint.start()
    server = MemberServer(
        options.get("port", 0),
        TOKEN,
        ready=lambda: True,
        documents={RENDEZVOUS_PATH: lambda: {"url": endpoint.url, "incarnation": endpoint.incarnation}},
    )
    server.start()
    return group, endpoint, server


def broadcaster(say: Say, index: int, replicas: int, url: str, timeouts: dict[str, float]) -> None:
    """Reports the base URL of learner 0; ``broadcasts`` before the first of two broadcasts, which learner 0 begins at
    SIGUSR1; and ``changed <why>``.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    group, endpoint, server = open_group(index, replicas, url, ToyLearner(index, 1), {"timeouts": timeouts})
    say(url or f"http://127.0.0.1:{server.port}")
    group.form(threading.Event())
    say("broadcasts")
    if index == 0:
        signal.sigwait({signal.SIGUSR1})
    try:
        for _ in range(2):
            group.broadcast(torch.zeros(4_000_000), 0)  # 16 MB, more than a socket's buffer holds
    except GroupChanged as change:
        say(f"changed {change}")
    group.close()
    endpoint.stop()
    server.stop()


def toy_learner(say: Say, index: int, replicas: int, url: str, options: dict[str, Any] | None = None) -> None:
    """Trains until stopped, or until learner 0 announces the last round.

    Reports ``at <base URL>``; ``formed <generation> <updates> <digest> <rank> <size> <threads> <file descriptors>``;
    ``updated <generation> <updates> <digest>`` every 20 updates; ``changed <why>``; ``done`` or ``stopped``; and
    ``closed``. `options`: port, parameters, updates (initial count), last (update), linger (until
    stopped), generations (to reach by leaving the group), pace (seconds per step), timeouts.
    """
    options = options or {}
    torch.set_num_threads(1)
    stopping = threading.Event()
    on_stop_signal(stopping.set)
    learner = ToyLearner(index, options.get("parameters", 1000))
    learner.updates = options.get("updates", 0)
    group, endpoint, server = open_group(index, replicas, url, learner, options)
    say(f"at http://127.0.0.1:{server.port}")
    try:
        train(say, group, learner, stopping, options)
        say("done")
    except Stopped:
        say("stopped")
    group.close()
    say("closed")
    if options.get("linger"):
        stopping.wait()
    endpoint.stop()
    server.stop()


def train(
    say: Say,
    group: LearnerGroup,
    learner: ToyLearner,
    stopping: threading.Event,
    options: dict[str, Any],
) -> None:
    last, generations, pace = options.get("last"), options.get("generations", 0), options.get("pace", PACE)

    def form() -> None:
        group.form(stopping)
        resources = f"{len(os.listdir('/proc/self/task'))} {len(os.listdir('/proc/self/fd'))}"  # noqa: PTH208
        say(f"formed {group.generation} {learner.digest()} {group.rank} {group.size} {resources}")

    form()
    while True:
        if stopping.is_set():
            raise Stopped("asked to end")
        if group.generation < generations:
            group.close()
            form()
        try:
            if group.begin(done=last is not None and group.rank == 0 and learner.updates >= last).done:
                return
            count = learner.compute()
            time.sleep(pace)
            learner.step(group.sum(learner.gradient, count))
        except GroupChanged as change:
            say(f"changed {change}")
            if group.warning:
                say(f"trouble {group.warning}")
            form()
        else:
            if learner.updates % EVERY == 0:
                say(f"updated {group.generation} {learner.digest()}")


ROLES = {"toy_learner": toy_learner, "broadcaster": broadcaster}
