"""Implements `rltrain chaos --cluster`: deletes pods of a job in a cluster at random times."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import LABEL_ROLE

from rltraining.commands import INTERRUPTED
from rltraining.errors import Exit, UsageError
from rltraining.printable import say
from rltraining.sdk.client import RLTrainingClient
from rltraining.sdk.errors import JobFailedError
from rltraining.trust.disturbances import Disturbance, Occurrence, duration, parse, table
from rltraining.units import clock

PAUSE_SECONDS = 0.5
"""Time between two looks at the job and its pods."""

Pod = dict[str, Any]


def chaos(
    client: RLTrainingClient,
    file: str,
    changes: Sequence[str],
    kills: Sequence[str],
    freezes: Sequence[str],
    seconds: str | None,
) -> int:
    """Creates the job, disturbs it until it is over, and prints what happened. Returns the exit code.

    Raises UsageError before anything is created."""
    if freezes:
        raise UsageError("--freeze: the pods of a cluster cannot be frozen: use --kill alone with --cluster")
    disturbances = parse(kills, ())
    if seconds is not None:
        changes = (*changes, f"stop.seconds={duration('--for', seconds):g}")
    created = client.create(file, overrides=changes)
    name = created.metadata.name
    say(f"created job {name}")
    disturbing = Disturbing(client.in_namespace(created.metadata.namespace or client.namespace), name)
    try:
        job = disturbing.run(disturbances)
    except KeyboardInterrupt:
        say(f"The job continues without further kills; see it with: rltrain watch {name}", err=True)
        return INTERRUPTED

    # Report.
    status = job.status
    say("")
    for line in table(disturbing.occurrences):
        say(line)
    say(f"the status counts {status.restarts} restarts: {status.message}")
    say(f"{status.phase} at step {status.progress.environment_steps:,}")
    return Exit.OK if status.phase == "Succeeded" else Exit.FAILED


class Disturbing:
    """Deletes pods of a job."""

    def __init__(self, client: RLTrainingClient, name: str) -> None:
        self.occurrences: list[Occurrence] = []
        self._client, self._name = client, name
        self._waits: dict[str, tuple[Occurrence, str]] = {}  # by pod: its last kill and the uid before it
        self._began = time.monotonic()

    def run(self, disturbances: Sequence[Disturbance]) -> RLTrainingJob:
        """Waits until the job learns, then deletes pods until it is over. Returns the job."""
        # A job that fails is reported like one that succeeds.
        try:
            job = self._client.wait(self._name, lambda job: job.status.progress.environment_steps > 0)
        except JobFailedError:
            return self._client.get(self._name)
        chances = [random.Random(f"{job.spec.seed} {number}") for number in range(len(disturbances))]
        now = time.monotonic()
        due = [now + each.next_in(chance) for each, chance in zip(disturbances, chances, strict=True)]

        while job.status.completion_time is None:
            pods = {pod["metadata"]["name"]: pod for pod in self._client.jobs.pods(self._name)}
            now = time.monotonic()
            self._note_recoveries(pods, now)
            for number, (disturbance, chance) in enumerate(zip(disturbances, chances, strict=True)):
                if now >= due[number]:
                    due[number] = now + disturbance.next_in(chance)
                    self._kill(disturbance.role, pods, chance)
            time.sleep(PAUSE_SECONDS)
            job = self._client.get(self._name)
        return job

    def _kill(self, role: str, pods: dict[str, Pod], chance: random.Random) -> None:
        """Deletes a random pod that is ready, without a grace period."""
        names = [
            name
            for name, pod in pods.items()
            if pod["metadata"]["labels"][LABEL_ROLE] == role and _ready(pod)
        ]
        if not names:
            return
        name = chance.choice(sorted(names))
        if not self._client.jobs.delete_pod(name):
            return
        occurrence = Occurrence(time.monotonic() - self._began, time.time(), "kill", role, name)
        self.occurrences.append(occurrence)
        self._waits[name] = occurrence, pods[name]["metadata"]["uid"]
        self._say(f"deleted {name}")

    def _note_recoveries(self, pods: dict[str, Pod], now: float) -> None:
        for name, (occurrence, uid) in list(self._waits.items()):
            pod = pods.get(name)
            if pod is not None and pod["metadata"]["uid"] != uid and _ready(pod):
                occurrence.recovery_seconds = now - self._began - occurrence.seconds
                del self._waits[name]
                self._say(f"{name} is ready again after {occurrence.recovery_seconds:.1f} s")

    def _say(self, text: str) -> None:
        say(f"{clock(time.monotonic() - self._began)}  chaos: {text}")


def _ready(pod: Pod) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
