"""A learner and samplers in one process: real runs, services, reporters and shards, with calls instead of RPC."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rltraining_api.algorithms.replay import Replay as Settings
from rltraining_trainer.roles.context import Context
from rltraining_trainer.transport import Call, DeferredReply, PeerLost, Stopped
from rltraining_trainer.world.replay import LearnerReplay, SamplerReplay
from rltraining_trainer.world.reporter import Reporter
from rltraining_trainer.world.run import Run
from rltraining_trainer.world.services import Services
from rltraining_trainer.world.trajectories import LearnerTrajectories, SamplerTrajectories
from test_own_run import Begin, make_context

LEARNER = "pole-learner-0"


class Job:
    """Members by name. A restarted learner replaces the previous learner."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        self.context: Context = make_context(folder, checkpoint={"everySeconds": 3600}, **spec)
        self.services: dict[str, Services] = {}
        self.learner: Learner | None = None

    def ask(self, sender: str, receiver: str, service: str, payload: Any) -> Any:
        """Returns the receiver's answer, or `DeferredReply`. Raises PeerLost if the receiver is down."""
        services = self.services.get(receiver)
        if services is None:
            raise PeerLost(f"{receiver} is not there")
        return services.answer(sender, (receiver, service, payload))

    def dial(self, url: str) -> Any:
        """Returns the peer of a sampler. Its URL is its name and its incarnation number."""

        def call(_: str, message: Any, timeout: float | None = None) -> Call:
            made = Call(url, 0.0)
            if url.split()[0] in self.services:
                made.settle(("ok", self.ask(LEARNER, *message)))
            else:
                made.settle(("lost", "connection reset"))
            return made

        return SimpleNamespace(call=call)


class Learner:
    """Its run, with a replay and a queue."""

    def __init__(self, job: Job, *, capacity: int = 1, **settings: Any) -> None:
        begin = Begin(job.context)
        self.job, self.stopping = job, job.context.stopping
        endpoint: Any = SimpleNamespace(incarnation="a life", url="learner", dial=job.dial)
        self.run: Run = begin.make(endpoint)
        batch = settings.pop("batch_size", 4)
        self.replay = LearnerReplay(
            Settings(**{"capacity": 1000, "minimum": 4} | settings),
            batch,
            seed=0,
            item_bytes=0,
            endpoint=lambda: endpoint,
            reports=self.run.reports,
            stopping=self.stopping,
        )
        self.queue = LearnerTrajectories(capacity, self.stopping)
        self.run.add_path("replay", self.replay)
        self.run.add_path("trajectories", self.queue)
        self.run.begin(None, {}, begin.spaces)
        for service, handler in self.queue.services.items():
            begin.services.add(service, handler)
        job.services[LEARNER] = begin.services

    def die(self, *, checkpoint: bool) -> None:
        if checkpoint:
            self.run.save()
        del self.job.services[LEARNER]
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
    """One life of a sampler, with its thread that reports."""

    lives = 0

    def __init__(self, job: Job, index: int = 0, capacity: int = 1000, **settings: Any) -> None:
        Sampler.lives += 1
        self.job, self.name, self.life = job, f"pole-sampler-{index}", f"life {Sampler.lives}"
        self.stopping = threading.Event()
        self.services = Services(self.name, lambda error: None)
        self.reporter = Reporter(self, lambda: (self.life, f"{self.name} {self.life}"), self.stopping)  # type: ignore[arg-type]
        self.replay = SamplerReplay(
            Settings(**settings), capacity, seed=index, services=self.services, reporter=self.reporter
        )
        self.queue = SamplerTrajectories(self, self.life)  # type: ignore[arg-type]
        job.services[self.name] = self.services
        self.reporter.start()

    def call(self, service: str, payload: Any) -> Any:
        """As `Member.call` to the learner: through all of its deaths."""
        return self.start(service, payload).result()

    def start(self, service: str, payload: Any) -> Any:
        return SimpleNamespace(result=lambda: self._result(service, payload))

    def die(self) -> None:
        self.job.services.pop(self.name)
        self.stopping.set()
        self.reporter.close()

    def _result(self, service: str, payload: Any) -> Any:
        while not self.stopping.is_set():
            try:
                answer = self.job.ask(self.name, LEARNER, service, payload)
            except PeerLost:
                self.stopping.wait(0.002)
                continue
            if not isinstance(answer, DeferredReply):
                return answer
            call = Call(LEARNER, 0.0)
            answer.attach(call.settle)
            while not self.stopping.is_set():
                if call.done():
                    return call.result()
                self.stopping.wait(0.002)
        raise Stopped("asked to end")
