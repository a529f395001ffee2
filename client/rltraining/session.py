"""Runs a job from start to end in this process, with the operator's engine and a local cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rltraining_api.contract import ENV_MANIFEST_DIR
from rltraining_api.job import RLTrainingJob
from rltraining_operator.cluster import Key
from rltraining_operator.local import LOCAL_SETTINGS, Engine, LocalCluster, Runtime, WarmRuntime

from rltraining.display import Display
from rltraining.errors import UsageError
from rltraining.jobfile import JOB_NAME, JobFile, load
from rltraining.run_events import from_log, rows
from rltraining.snapshot import Eta, Snapshot, pod_row

TRAINER = "rltraining_trainer.roles.main:main"
"""Entry point of the trainer. Not imported here, because importing torch is slow and takes
memory."""
PERIOD = 0.25
"""Seconds between two snapshots."""
REPEAT_SECONDS = 1.0
"""Time in which a second SIGTERM or SIGHUP is the same request as the first."""
STOPPING = (
    "Stopping: the learner writes a last checkpoint. Press Ctrl-C again to end all processes immediately."
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


log = logging.getLogger(__name__)

Beside = Callable[[LocalCluster, Key], Coroutine[Any, Any, None]]
"""A task that runs beside a job."""


async def train(
    file: JobFile, folder: Path, display: Display, nice: int = 0, beside: Beside | None = None
) -> Snapshot:
    """Runs a job until it is over, or stopped in order. Returns its last snapshot.

    `nice` lowers the CPU priority of its processes. `beside` is called once the job is submitted, and
    cancelled at its end."""
    name_code_folder(file.code_folder)
    runtime, interrupt = WarmRuntime(TRAINER, nice), Interrupt(display.close)
    return await train_on(runtime, interrupt, file, folder, display.show, beside)


async def train_on(
    runtime: Runtime,
    interrupt: StopRequest,
    file: JobFile,
    folder: Path,
    show: Callable[[Snapshot], None],
    beside: Beside | None = None,
) -> Snapshot:
    """Runs a job like `train`, with processes of this runtime. Several runs may be active.
    `name_code_folder` must be called before the runtime is opened.

    Returns the last snapshot, after the job is over or interrupted.
    """
    async with LocalCluster(folder, runtime) as cluster:
        # Submit the job with its ConfigMaps.
        for document in file.config_maps:
            cluster.put(document)
        key = await cluster.submit(_without_expiry(file.job))
        # Start the engine.
        observer = Observer(cluster, key, datetime.now(UTC))
        engine = Engine(cluster, settings=LOCAL_SETTINGS)
        cluster.subscribe(engine.mark)
        working = asyncio.create_task(engine.run())
        over = asyncio.create_task(cluster.until(key, lambda job: _is_over(job, cluster, key)))
        others = [
            asyncio.create_task(_suspend(cluster, key, interrupt)),
            asyncio.create_task(_follow_replicas(cluster, key, folder / JOB_NAME)),
        ]
        if beside is not None:
            others.append(asyncio.create_task(beside(cluster, key)))
        # Show snapshots until the job is over.
        while not over.done():
            show(observer.snapshot(datetime.now(UTC), interrupt.number))
            await asyncio.wait([over, working], timeout=PERIOD, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        # Stop the tasks that ran beside it, and raise their errors.
        over.result()
        for task in others:
            task.cancel()
        for outcome in await asyncio.gather(*others, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        # Show the last snapshot and stop the engine.
        last = observer.snapshot(datetime.now(UTC), interrupt.number)
        show(last)
        engine.stop()
        await working
        return last


class Observer:
    """Creates snapshots of a job."""

    def __init__(self, cluster: LocalCluster, key: Key, started: datetime) -> None:
        self._cluster, self._key, self._started = cluster, key, started
        self._eta = Eta()

    def snapshot(self, now: datetime, signal: int | None = None) -> Snapshot:
        """Returns the current state of the job. `signal`: the signal that requested a stop."""
        elapsed = (now - self._started).total_seconds()
        pods = self._cluster.pods(self._key)
        notice = STOPPING if signal is not None and pods else ""
        job = self._cluster.job(self._key)
        eta = self._eta.update(elapsed, job.status.progress.percent)
        events = rows(from_log(self._cluster.events), self._started)
        return Snapshot(job, elapsed, tuple(map(pod_row, pods)), events, eta, notice, signal)


class StopRequest:
    """Asks a run to stop in order. Belongs to one event loop."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal that requested the stop."""
        self.asked = asyncio.Event()

    def ask(self, number: int) -> None:
        """Requests a stop on behalf of a signal. Only the first signal counts."""
        if self.number is None:
            self.number = number
        self.asked.set()


class Interrupt(StopRequest):
    """Handles signals: the first SIGINT, SIGTERM or SIGHUP stops all runs in order, the second ends
    this process and its children immediately.

    `timeout` and shells send a signal to the command and to its process group, which is one request."""

    def __init__(self, leave: Callable[[], None]) -> None:
        """Installs the signal handlers. `leave` restores the terminal."""
        super().__init__()
        self._leave = leave
        self._asked_at = 0.0
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._handle, number)

    def _handle(self, number: int) -> None:
        now = time.monotonic()
        if self.number is not None:
            if number == self.number != signal.SIGINT and now - self._asked_at < REPEAT_SECONDS:
                return
            self._leave()
            with suppress(OSError):  # the terminal may be gone
                sys.stdout.flush()
            os._exit(128 + number)  # the template of the processes detects this exit and kills them
        self._asked_at = now
        self.ask(number)


async def _suspend(cluster: LocalCluster, key: Key, interrupt: StopRequest) -> None:
    """Suspends the job on a signal, like `runPolicy.suspend` in a cluster."""
    await interrupt.asked.wait()
    await cluster.update_spec(key, {"runPolicy": {"suspend": True}})


async def _follow_replicas(cluster: LocalCluster, key: Key, path: Path) -> None:
    """Gives the job the number of samplers in its saved manifest, which `rltrain scale` changes."""
    before = _written(path)
    while True:
        await asyncio.sleep(PERIOD)
        if (now := _written(path)) == before:
            continue
        before = now
        try:
            replicas = load(str(path)).job.spec.sampler.replicas
        except UsageError as error:
            log.warning("the number of samplers stays, since the manifest cannot be read: %s", error)
            continue
        if replicas != cluster.job(key).spec.sampler.replicas:
            await cluster.update_spec(key, {"sampler": {"replicas": replicas}})


def _written(path: Path) -> int | None:
    """Returns when a file was written, in nanoseconds, or None if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _is_over(job: RLTrainingJob, cluster: LocalCluster, key: Key) -> bool:
    if job.status.completion_time is not None:
        return True
    return job.spec.run_policy.suspend and not cluster.pods(key)


def _without_expiry(job: RLTrainingJob) -> RLTrainingJob:
    """Returns the job without a TTL, because its end must be reported and nothing is cleaned up on
    this machine."""
    policy = job.spec.run_policy.model_copy(update={"ttl_seconds_after_finished": None})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"run_policy": policy})})


def name_code_folder(folder: Path | None) -> None:
    """Sets the environment variable with which trainer processes find user modules beside the
    manifest. They inherit the environment when their runtime is opened."""
    if folder is not None:
        os.environ[ENV_MANIFEST_DIR] = str(folder)
