"""A learner and samplers in one process: real runs, sessions, reporters and shards, with calls instead of RPC."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from own_runs import Begin, make_context
from rltraining_api.algorithms.replay import Replay as Settings
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.spec_watcher import SpecWatcher
from rltraining_trainer.transport import Call, DeferredReply, Handler, PeerLost, Traffic
from rltraining_trainer.world.replay import LearnerReplay, SamplerReplay
from rltraining_trainer.world.reporter import Reporter
from rltraining_trainer.world.run import Run
from rltraining_trainer.world.session import Connections
from rltraining_trainer.world.shards import LocalShard
from rltraining_trainer.world.trajectories import LearnerTrajectories, SamplerTrajectories

LEARNER = "pole-learner-0"


class Network:
    """Live members by name. Install `discover` in place of that of ``world.session``."""

    def __init__(self) -> None:
        self.live: dict[str, FakeEndpoint] = {}
        self.lives = 0
        self.fate: Callable[[str], str] = lambda service: "arrives"
        """Returns the fate of a call of a service: "arrives", "request lost" or "answer lost"."""

    def discover(
        self, url: str, token: str, stopping: threading.Event | None = None, tls_port: int | None = None
    ) -> dict[str, str]:
        """Returns the peer at a base URL, which is the member's name."""
        if url not in self.live:
            raise PeerLost(f"{url} is not there")
        return {"url": self.live[url].url}

    def call(self, sender: str, url: str, service: str, payload: Any) -> Call:
        call, receiver = Call(url, 60.0), self.live.get(url.split()[0])
        fate = self.fate(service)
        if receiver is None or receiver.url != url or fate == "request lost":
            call.settle(("lost", "connection reset"))
            return call
        try:
            answer = receiver.handlers[service](sender, payload)
        except (TypeError, ValueError) as error:
            answer = DeferredReply()
            answer.settle(("error", str(error)))
        if fate == "answer lost":
            call.settle(("lost", "connection reset"))
        elif isinstance(answer, DeferredReply):
            receiver.owed.append(answer)
            answer.attach(call.settle)
        else:
            call.settle(("ok", answer))
        return call


class FakeEndpoint:
    """The endpoint of one incarnation of a member."""

    def __init__(self, network: Network, name: str) -> None:
        network.lives += 1
        self.network, self.name = network, name
        self.incarnation = self.url = f"{name} {network.lives}"
        self.traffic = Traffic()
        self.handlers: dict[str, Handler] = {}
        self.owed: list[DeferredReply] = []

    def serve(self, handlers: Mapping[str, Handler]) -> None:
        self.handlers |= handlers

    def start(self) -> None:
        self.network.live[self.name] = self

    def stop(self) -> None:
        del self.network.live[self.name]
        for answer in self.owed:
            answer.settle(("lost", "connection reset"))

    def dial(self, url: str) -> Any:
        def call(service: str, payload: Any, *, timeout: float | None = None) -> Call:
            return self.network.call(self.name, url, service, payload)

        return SimpleNamespace(url=url, call=call)


class Job(Network):
    """Members of one job. A restarted learner replaces the previous learner."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        super().__init__()
        context = make_context(folder, checkpoint={"everySeconds": 3600}, **spec)
        self.context: Context = replace(context, learners=(LEARNER,))


class Learner:
    """A learner's run, with a replay and a queue."""

    def __init__(self, job: Job, *, capacity: int = 1, **settings: Any) -> None:
        begin = Begin(job.context)
        self.stopping = job.context.stopping
        self.endpoint: Any = FakeEndpoint(job, LEARNER)
        self.run: Run = begin.make(self.endpoint)
        batch = settings.pop("batch_size", 4)
        self.replay = LearnerReplay(
            Settings(**{"capacity": 1000, "minimum": 4} | settings),
            batch,
            name=LEARNER,
            seed=0,
            item_bytes=0,
            endpoint=self.endpoint,
            reports=self.run.paths.reports,
            stopping=self.stopping,
        )
        self.queue = LearnerTrajectories(capacity, self.run.models, self.stopping)
        self.run.add_path("replay", self.replay)
        self.run.add_path("trajectories", self.queue)
        self.run.begin(None, {}, begin.spaces)
        self.endpoint.serve({**self.queue.services, **self.run.paths.reports.services})
        self.endpoint.start()

    def die(self, *, checkpoint: bool) -> None:
        if checkpoint:
            self.run.save()
        self.endpoint.stop()
        self.run.close()

    def counters(self) -> dict[str, Any]:
        """Returns the counters after checking their invariants."""
        found = self.replay.metrics() | self.queue.metrics()
        assert found["replay/inserted"] == sum(found[f"replay/{n}"] or 0 for n in ("evicted", "size", "lost"))
        assert found["unrolls/pushed"] == sum(
            found[f"unrolls/{n}"] or 0 for n in ("used", "dropped", "queued")
        )
        return found


class Sampler:
    """One incarnation of a sampler, with its reporting thread."""

    def __init__(
        self, job: Job, index: int = 0, parameters: torch.Tensor | None = None, **settings: Any
    ) -> None:
        self.name, self.stopping = f"pole-sampler-{index}", threading.Event()
        context = replace(job.context, pod=self.name, index=index, stopping=self.stopping)
        self.endpoint: Any = FakeEndpoint(job, self.name)
        self.endpoint.start()
        connections = Connections(context, self.endpoint)
        self.reporter = Reporter(connections)
        found = Settings(**{"capacity": 1000} | settings)
        live = SpecWatcher(context.job_file, context.job.spec)
        self.replay = SamplerReplay(
            connections,
            self.reporter,
            None,
            lambda columns: LocalShard(context, live, found, columns, 1, self.endpoint),
        )
        self.queue = SamplerTrajectories(connections)
        if parameters is not None:
            self.replay.attach(parameters)
        self.reporter.start()

    def die(self) -> None:
        self.endpoint.stop()
        self.close()

    def close(self) -> None:
        self.stopping.set()
        self.reporter.close()
