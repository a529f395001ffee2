"""Runs one pod: its trainer container as a process that is started, watched, restarted, ended and
reported as by a kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rltraining_api.contract import TRAINER_CONTAINER, TerminationMessage

from rltraining_operator.local.backoff import Backoff
from rltraining_operator.local.log_size import watch_log
from rltraining_operator.local.network import Ports, localize
from rltraining_operator.local.runtime import Command, Exit, Process, Runtime, StartError
from rltraining_operator.local.volumes import FILLED, MountError, Volumes
from rltraining_operator.local.watch import parse_quantity, watch_liveness, watch_memory, watch_readiness
from rltraining_operator.pods.build import OUTPUT_VOLUME

MESSAGE_BYTES_MAX = 4096
LOG_MESSAGE_BYTES_MAX, LOG_MESSAGE_LINES_MAX = 2048, 80
"""Kubernetes' bounds of a termination message, and of one that is taken from the log."""

HUNG = TerminationMessage(
    reason="Hung", message="the process hung: it did not answer its liveness probe any more"
)

Json = Mapping[str, Any]
log = logging.getLogger(__name__)


class LocalPod:
    """Runs a pod. `publish` receives the pod's status, in Kubernetes' format, whenever it changes.

    Runs only the trainer container. `left_out` lists the other missing parts.
    """

    def __init__(
        self,
        pod: Json,
        *,
        runtime: Runtime,
        volumes: Volumes,
        ports: Ports,
        workdir: Path,
        publish: Callable[[dict[str, Any]], None],
    ) -> None:
        self.name: str = pod["metadata"]["name"]
        self.process: Process | None = None
        self.volumes = volumes
        self._spec: Json = pod["spec"]
        self._container: Json = next(c for c in self._spec["containers"] if c["name"] == TRAINER_CONTAINER)
        self._runtime = runtime
        self._ports = ports
        self._log = workdir / "logs" / f"{self.name}.log"
        self._log_start = 0
        """Offset in the log at which the current incarnation starts."""
        self._publish = publish
        self._phase = "Pending"
        self._state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
        self._last_state: dict[str, Any] = {}
        self._starts = 0
        self._ready = False
        self._backoff = Backoff()
        self._stopping = False
        self._task = asyncio.create_task(self._run(), name=self.name)

    async def stop(self, grace_seconds: float) -> None:
        """Sends SIGTERM, and SIGKILL after the grace period. Returns when nothing of the pod is
        left."""
        self._stopping = True
        if self.process is None:
            self._task.cancel()
        else:
            self.process.send_signal(signal.SIGTERM)
            done, _ = await asyncio.wait([self._task], timeout=grace_seconds)
            if not done:
                self.process.send_signal(signal.SIGKILL)
        await asyncio.gather(self._task, return_exceptions=True)
        self.volumes.remove()

    async def _run(self) -> None:
        self._show()
        try:
            while not await self._run_once():
                pass
        except Exception as error:  # after a bug in this class the pod must not appear to run
            log.exception("pod %s", self.name)
            self._phase = "Failed"
            self._show(reason="LocalClusterError", message=repr(error))

    async def _run_once(self) -> bool:
        """Runs the container once, and waits before a restart. Returns True if there is none."""
        # Run the process until it ends.
        process = await self._start()
        started = time.monotonic()
        end, oom = await self._watch(process)
        self._ready = False
        # Publish how it ended.
        terminated = self._terminated(end, oom)
        self._state = {"terminated": terminated}
        if self._stopping or not self._restarts_after(end.code):
            self._phase = "Succeeded" if end.code == 0 else "Failed"
            self._show()
            return True
        self._show()
        # Wait before the restart.
        wait = self._backoff.after(end.code, terminated["reason"], time.monotonic() - started)
        self._last_state = self._state
        if wait:
            message = f"back-off {wait:.1f}s restarting failed container"
            self._state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
            self._show()
            await asyncio.sleep(wait)
        return False

    def _restarts_after(self, code: int) -> bool:
        policy = self._spec.get("restartPolicy", "Always")
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    async def _start(self) -> Process:
        """Starts the process, with retries. The status contains the reason while a start fails."""
        delay = Backoff()
        while True:
            try:
                self.volumes.refresh()
                self.volumes.termination_log.write_bytes(b"")
                self._log_start = self._log.stat().st_size if self._log.exists() else 0
                self.process = await self._runtime.start(self._command())
            except (MountError, StartError, OSError) as error:
                reason = (
                    "CreateContainerConfigError" if isinstance(error, MountError) else "RunContainerError"
                )
                self._state = {"waiting": {"reason": reason, "message": str(error)}}
                self._show()
                await asyncio.sleep(delay.after(1, reason, 0))
            else:
                self._starts += 1
                self._phase = "Running"
                self._state = {"running": {"startedAt": _now()}}
                self._show()
                return self.process

    def _command(self) -> Command:
        container = self._container
        env = {variable["name"]: variable.get("value", "") for variable in container.get("env", [])}
        env = localize(self.volumes.localize(env, container), self.name, self._ports)
        argv = [*container.get("command", []), *container.get("args", [])]
        return Command(
            argv=argv,
            env=env,
            cwd=Path(container.get("workingDir") or Path.cwd()),
            log=self._log,
            title=f"{' '.join(argv)} {self.name}",
        )

    async def _watch(self, process: Process) -> tuple[Exit, bool]:
        """Waits until the process ends. Returns its exit, and whether it exceeded its memory
        limit."""
        # Watch probes, memory and the log of the process.
        probe = self._container.get("readinessProbe") or {}
        readiness = asyncio.create_task(watch_readiness(probe, self._ports.of(self.name), self._set_ready))
        limits = (self._container.get("resources") or {}).get("limits") or {}
        limit = parse_quantity(limits.get("memory", ""))
        memory = asyncio.create_task(watch_memory(process.pid, limit) if limit else asyncio.Event().wait())
        probe = self._container.get("livenessProbe") or {}
        liveness = asyncio.create_task(watch_liveness(probe, self._ports.of(self.name)))
        ended = asyncio.create_task(process.wait())
        size = asyncio.create_task(watch_log(self._log, self._on_log_cut))
        try:
            # Kill the process if it hangs or exceeds its memory.
            await asyncio.wait([ended, memory, liveness], return_when=asyncio.FIRST_COMPLETED)
            oom = memory.done() and not ended.done()
            hung = liveness.done() and not ended.done() and not self._stopping
            if hung:
                self.volumes.termination_log.write_text(HUNG.model_dump_json(exclude_none=True))
            if oom or hung:
                process.send_signal(signal.SIGKILL)
            return await ended, oom
        finally:
            if not ended.done():
                process.send_signal(signal.SIGKILL)  # it must not run unwatched
            self.process = None
            for task in (readiness, memory, liveness, ended, size):
                task.cancel()

    def _on_log_cut(self) -> None:
        self._log_start = 0  # the rest is output of the current incarnation, or nearly

    def _terminated(self, end: Exit, oom: bool) -> dict[str, Any]:
        reason = "OOMKilled" if oom else "Error" if end.code else "Completed"
        terminated = {"exitCode": end.code, "reason": reason, "finishedAt": _now()}
        if end.signal:
            terminated["signal"] = end.signal
        if message := self._termination_message(end.code):
            terminated["message"] = message
        return terminated

    def _termination_message(self, code: int) -> str:
        with contextlib.suppress(OSError):
            if content := self.volumes.termination_log.read_bytes()[:MESSAGE_BYTES_MAX]:
                return content.decode(errors="replace")
            if code and self._container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
                with self._log.open("rb") as file:
                    file.seek(max(self._log_start, file.seek(0, 2) - LOG_MESSAGE_BYTES_MAX))
                    lines = file.read().decode(errors="replace").splitlines(keepends=True)
                return "".join(lines[-LOG_MESSAGE_LINES_MAX:])
        return ""

    def _set_ready(self, ready: bool) -> None:
        self._ready = ready
        self._show()

    def _show(self, reason: str = "", message: str = "") -> None:
        running = self.process.pid if self.process else None
        status: dict[str, Any] = {
            "phase": self._phase,
            "podIP": "127.0.0.1",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": str(self._ready)},
            ],
            "containerStatuses": [
                {
                    "name": TRAINER_CONTAINER,
                    # Failed starts do not count, as for a kubelet.
                    "restartCount": max(self._starts - 1, 0),
                    "ready": self._ready,
                    "state": self._state,
                    "lastState": self._last_state,
                }
                | ({"containerID": f"process://{running}"} if running else {})
            ],
        }
        self._publish(status | ({"reason": reason, "message": message} if reason else {}))


def left_out(pod: Json) -> Iterator[str]:
    """Yields a sentence for each requested feature of a pod that is not available locally."""
    spec = pod["spec"]
    for container in (*spec["containers"], *spec.get("initContainers", [])):
        if container["name"] != TRAINER_CONTAINER:
            yield f"container {container['name']} is not run: without a container runtime only the trainer is"
    trainer = next(c for c in spec["containers"] if c["name"] == TRAINER_CONTAINER)
    for variable in trainer.get("env", []):
        if "valueFrom" in variable:
            yield f"variable {variable['name']} of the trainer is empty: valueFrom needs a cluster"
    if trainer.get("envFrom"):
        yield "envFrom of the trainer is left out: it needs a cluster"
    for volume in spec.get("volumes", []):
        if volume["name"] != OUTPUT_VOLUME and volume.keys().isdisjoint(FILLED):
            yield f"volume {volume['name']} is an empty folder: its content exists only in a cluster"


def _now() -> str:
    return datetime.now(UTC).isoformat()
