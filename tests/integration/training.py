"""Helpers of the survival tests: the real trainer in real processes, and a report of the job when a test fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from rltraining.trust.rules import ACCOUNTS
from rltraining_api.contract import RENDEZVOUS_PATH, STACKS_SIGNAL
from rltraining_api.job import RLTrainingJob
from rltraining_api.status import Condition
from rltraining_operator import http
from rltraining_operator.cluster import Key
from rltraining_operator.errors import NotFoundError
from rltraining_operator.local import LOCAL_SETTINGS, Engine, LocalCluster, WarmRuntime
from rltraining_operator.local.runtime import Command, Process
from rltraining_operator.observe.observed import Pod
from transport_processes import is_frozen

TRAINER = "training_program:main"
HELD = "an environment is held\n"
"""What a sampler logs when a step blocks."""
SETTINGS = replace(LOCAL_SETTINGS, progress_seconds=0.1)
SECONDS = 120.0
"""A wait that takes longer hangs, however busy the machine is."""
LOG_TAIL, STACKS_TAIL = 1500, 12_000
"""Characters of a log that the report of a failure shows, without and with the stacks of all threads."""
STACKS_SECONDS = 1.0
"""Time in which processes write their stacks."""

LEARNER, OTHER_LEARNER = LEARNERS = ("demo-learner-0", "demo-learner-1")
SAMPLER, OTHER_SAMPLER = SAMPLERS = ("demo-sampler-0", "demo-sampler-1")


class KeptWarm(WarmRuntime):
    """A runtime that outlives the clusters that use it: importing torch once is enough for all tests.

    While `starts` is cleared, no process is started: a pod that was killed stays down.
    """

    def __init__(self, entry: str) -> None:
        super().__init__(entry)
        self.starts = asyncio.Event()

    async def warm_up(self) -> None:
        """Returns when the template has imported the trainer."""
        self.starts.set()
        await (await self.start(Command(["true"], {}, Path.cwd(), Path(os.devnull), "true"))).wait()

    async def open(self, log: Path) -> None:
        self.starts.set()
        await super().open(log)

    async def start(self, command: Command) -> Process:
        await self.starts.wait()
        return await super().start(command)

    async def close(self) -> None:
        """Keeps the runtime open for the next job."""

    async def end(self) -> None:
        await super().close()


class Run:
    """A running job."""

    def __init__(self, cluster: LocalCluster, key: Key, runtime: WarmRuntime) -> None:
        self.cluster, self.key, self.runtime = cluster, key, runtime
        self.pids: dict[str, list[int]] = {}
        """All processes that each pod has had."""
        cluster.subscribe(self._look)

    @property
    def job(self) -> RLTrainingJob:
        return self.cluster.job(self.key)

    @property
    def steps(self) -> int:
        return self.job.status.progress.environment_steps

    @property
    def points(self) -> list[dict[str, Any]]:
        """The points in progress.jsonl, without a last line that is only half written."""
        path = self.cluster.workdir / "progress.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def point(self) -> dict[str, Any]:
        """The newest point. Empty while there is none, as after a rollback to a checkpoint."""
        return next(reversed(self.points), {})

    def curve(self, name: str) -> list[Any]:
        """The values of a metric. Fails while there is no point, or where a point lacks the metric."""
        points = self.points
        assert points, f"the curves have no point, and so no {name}"
        assert all(name in point for point in points), f"points without {name}: {points}"
        return [point[name] for point in points]

    def check_never_falls(self, *names: str) -> None:
        for name in names:
            assert (values := self.curve(name)) == sorted(values), name

    def log(self, pod: str) -> str:
        path = self.cluster.workdir / "logs" / f"{pod}.log"
        return path.read_text() if path.exists() else ""

    def running(self, *pods: str) -> list[int | None]:
        """Returns the process ids of the pods."""
        return [self.cluster.pid(pod) for pod in pods]

    def checkpoints(self, storage: Path | None = None) -> list[Path]:
        """Returns the complete checkpoints, oldest first."""
        found = (storage or self.cluster.workdir).glob("checkpoints/step-*/complete.json")
        return sorted((path.parent for path in found), key=_written_order)

    async def hold(self, sampler: str) -> None:
        """Block the sampler's environment in the middle of a step."""
        before = self.log(sampler).count(HELD)
        (self.cluster.workdir / f"hold-{sampler}").touch()
        await eventually(lambda: self.log(sampler).count(HELD) > before)

    def release(self, sampler: str) -> None:
        (self.cluster.workdir / f"hold-{sampler}").unlink()

    def pod(self, name: str) -> Pod:
        return next(pod for pod in self.cluster.pods(self.key) if pod.name == name)

    def process(self, pod: str) -> psutil.Process:
        pid = self.cluster.pid(pod)
        assert pid is not None, f"{pod} has no process"
        return psutil.Process(pid)

    def kill(self, pod: str, number: signal.Signals = signal.SIGKILL) -> psutil.Process:
        """Sends a signal to the pod's process, which may be gone afterwards."""
        process = self.process(pod)
        os.kill(process.pid, number)
        return process

    async def freeze(self, *pods: str) -> None:
        """Sends SIGSTOP. Returns when all threads have stopped."""
        for pod in pods:
            process = self.kill(pod, signal.SIGSTOP)
            while not is_frozen(process.pid):
                await asyncio.sleep(0.001)

    def thaw(self, *pods: str) -> None:
        for pod in pods:
            self.kill(pod, signal.SIGCONT)

    def condition(self, kind: str) -> Condition | None:
        return next((found for found in self.job.status.conditions if found.type == kind), None)

    def reasons(self) -> list[str]:
        """Returns the reasons of all events."""
        return [known.event.reason for known in self.cluster.events]

    def event(self, reason: str) -> str | None:
        """The message of the first event of this reason."""
        messages = (known.event.message for known in self.cluster.events if known.event.reason == reason)
        return next(messages, None)

    async def until(self, holds: Callable[[RLTrainingJob], Any], seconds: float = SECONDS) -> RLTrainingJob:
        """Waits until a condition holds for the job."""
        async with asyncio.timeout(seconds):
            return await self.cluster.until(self.key, lambda job: bool(holds(job)))

    async def until_ready(self) -> None:
        """Waits until all members are ready and the job is Running."""
        await self.until(
            lambda job: (
                (found := self.condition("Ready"))
                and found.status == "True"
                and job.status.phase == "Running"
            )
        )

    async def until_steps(self, more: int = 1) -> int:
        """Waits for `more` further environment steps. Returns their total."""
        goal = self.steps + more
        return (
            await self.until(lambda job: job.status.progress.environment_steps >= goal)
        ).status.progress.environment_steps

    async def until_phase(self, phase: str) -> RLTrainingJob:
        return await self.until(lambda job: job.status.phase == phase)

    async def until_size(self, learners: int, samplers: int) -> None:
        """Waits until the job has these numbers of ready members, and wants no others."""
        wanted = f"{learners}/{learners}", f"{samplers}/{samplers}"
        await self.until(lambda job: (job.status.learner.summary, job.status.sampler.summary) == wanted)

    async def until_learning(self) -> None:
        await self.until_ready()
        await eventually(lambda: self.point.get("updates", 0) > 0)

    async def until_updates(self, more: int) -> None:
        """Waits for at least `more` updates after the newest point of the curves."""
        goal = self.point.get("updates", 0) + more
        await eventually(lambda: self.point.get("updates", 0) >= goal)

    async def until_checkpoint(self) -> int:
        """Waits for a checkpoint after step 0. Returns the step of the newest."""
        await self.until(lambda job: job.status.checkpoint is not None and job.status.checkpoint.step > 0)
        return step_of(self.checkpoints()[-1])

    async def until_newer_checkpoint(self) -> int:
        """Waits for a checkpoint after the newest point of the curves. Returns the step of the newest."""
        steps = self.point["environmentSteps"]
        await self.until(lambda job: job.status.checkpoint is not None and job.status.checkpoint.step > steps)
        return step_of(self.checkpoints()[-1])

    async def until_another_life(self, life: str) -> dict[str, Any]:
        """Waits until a restarted learner has begun its curves. Returns their first point."""
        await eventually(lambda: self.point.get("run", life) != life)
        return next(point for point in self.points if point["run"] != life)

    async def until_ended(self) -> RLTrainingJob:
        return await self.until(lambda job: job.status.completion_time is not None)

    async def until_succeeded(self) -> RLTrainingJob:
        """Waits for the end of the job, and checks that the job succeeds."""
        job = await self.until_ended()
        assert job.status.phase == "Succeeded", job.status.message
        return job

    async def until_failed(self) -> tuple[RLTrainingJob, Condition]:
        """Waits for the end of the job, and checks that the job fails. Returns also the condition Failed."""
        job, failed = await self.until_ended(), self.condition("Failed")
        assert job.status.phase == "Failed"
        assert failed is not None
        return job, failed

    async def finish(self) -> RLTrainingJob:
        """Makes the job meet its stop rule, and checks that the job succeeds."""
        await self.cluster.update_spec(self.key, {"stop": {"environmentSteps": max(1, self.steps)}})
        return await self.until_succeeded()

    async def rendezvous(self, token: str | None = None) -> dict[str, Any] | None:
        """Returns the learner's rendezvous document, or None while there is none."""
        token = self.token if token is None else token
        answer = await self.get(RENDEZVOUS_PATH, token)
        return json.loads(answer.body) if answer is not None and answer.status == 200 else None

    async def get(self, path: str, token: str, pod: str = LEARNER) -> http.Response | None:
        """Sends a GET request to a member."""
        headers = {"Authorization": f"Bearer {token}"}
        return await http.get("127.0.0.1", self.port(pod), path, headers=headers, timeout_seconds=SECONDS)

    def port(self, pod: str) -> int:
        """Returns the pod's HTTP port, which only members of the job receive."""
        return self.cluster._ports.of(pod)

    @property
    def token(self) -> str:
        return (self.cluster.workdir / ".pods" / LEARNER / "token" / "token").read_text()

    def check_accounts(self) -> None:
        """Checks the invariants of ACCOUNTS at every point of the curves."""
        for point in self.points:
            for total, parts in ACCOUNTS.items():
                if total in point:
                    assert point[total] == sum(point[part] for part in parts), (total, point)

    async def explain(self) -> str:
        """Returns the job's status, events, logs and the stacks of its processes, to explain a failure."""
        # Ask all processes for their stacks, which they write to their logs.
        for pid in filter(None, self.running(*self.pids)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.Signals[STACKS_SIGNAL])
        await asyncio.sleep(STACKS_SECONDS)
        status = self.job.status.model_dump_json(
            by_alias=True, exclude_none=True, exclude={"conditions", "ledger"}
        )
        parts = [f"status: {status}"]
        parts += [
            f"condition {c.type} {c.status}: {c.reason}: {c.message}" for c in self.job.status.conditions
        ]
        parts += [f"event {known.event.reason}: {known.event.message}" for known in self.cluster.events]
        for path in sorted((self.cluster.workdir / "logs").glob("*.log")):
            text = path.read_text(errors="replace")
            parts += [f"--- {path.name}\n{text[-(STACKS_TAIL if 'Thread 0x' in text else LOG_TAIL) :]}"]
        return "\n".join(parts)

    def _look(self, _: Key) -> None:
        with suppress(NotFoundError):  # the job was deleted
            for pod in self.cluster.pods(self.key):
                pid, known = self.cluster.pid(pod.name), self.pids.setdefault(pod.name, [])
                if pid is not None and pid not in known:
                    known.append(pid)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.split("-")[1])


def _written_order(checkpoint: Path) -> tuple[int, int]:
    """Returns the step and the attempt. A second checkpoint at a step, after more updates, is `step-000000001710-2`."""
    _, step, *attempt = checkpoint.name.split("-")
    return int(step), int(attempt[0]) if attempt else 1


async def eventually(holds: Callable[[], Any], seconds: float = SECONDS) -> None:
    """Polls until a condition holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def training(
    workdir: Path, runtime: WarmRuntime, job: RLTrainingJob, config_maps: tuple[Mapping[str, Any], ...] = ()
) -> AsyncIterator[Run]:
    """Runs the job with an engine. At the end of the block, checks the invariants and stops all processes."""
    async with LocalCluster(workdir, runtime) as cluster:
        for config_map in config_maps:
            cluster.put(dict(config_map))
        engine = Engine(cluster, settings=SETTINGS)
        cluster.subscribe(engine.mark)
        work = asyncio.create_task(engine.run())
        run = Run(cluster, await cluster.submit(job), runtime)
        try:
            yield run
            run.check_accounts()
        except (Exception, asyncio.CancelledError) as error:
            error.add_note(await run.explain())
            raise
        finally:
            engine.stop()
            await work


class Train:
    """`train(job, scenario)` runs a job and a scenario that acts on it, on one warm runtime in one event loop."""

    def __init__(self, runner: asyncio.Runner, runtime: KeptWarm, workdir: Path) -> None:
        self.workdir = workdir
        self._runner, self._runtime = runner, runtime

    def __call__(
        self, job: RLTrainingJob, scenario: Callable[[Run], Awaitable[None]], *config_maps: Mapping[str, Any]
    ) -> None:
        async def live() -> None:
            async with training(self.workdir, self._runtime, job, config_maps) as run:
                await scenario(run)

        self._runner.run(live())
