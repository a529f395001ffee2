"""Implements `rltrain chaos --cluster`: deletes pods of a job in a cluster at random times."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rltraining_api.job import RLTrainingJob
from rltraining_operator.observe.observed import Pod

from rltraining.cluster.observer import member_pods
from rltraining.commands import INTERRUPTED
from rltraining.errors import Exit, UsageError
from rltraining.printable import say
from rltraining.sdk.api import Json
from rltraining.sdk.client import RLTrainingClient
from rltraining.sdk.errors import ClusterUnreachableError, JobDeletedError, ServerError
from rltraining.sdk.timing import Patience
from rltraining.trust.disturbances import Disturbance, Occurrence, duration, parse, table
from rltraining.units import clock

PAUSE_SECONDS = 1.0
"""Time between two looks at the job."""


@dataclass
class _Timer:
    """When a disturbance is due next."""

    disturbance: Disturbance
    chance: random.Random
    due: float = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.due = time.monotonic() + self.disturbance.next_in(self.chance)


def chaos(
    client: RLTrainingClient, name: str, kills: Sequence[str], freezes: Sequence[str], seconds: str | None
) -> int:
    """Disturbs a job until it is over, or for a time, and prints what happened. Returns the exit code.

    Raises ClientError, after it has printed what happened until then.
    """
    if freezes:
        raise UsageError("--freeze: the pods of a cluster cannot be frozen: use --kill alone with --cluster")
    disturbances = parse(kills, ())
    limit = None if seconds is None else duration("--for", seconds)
    disturbing = Disturbing(client, name)
    try:
        job = disturbing.run(disturbances, limit)
    except KeyboardInterrupt:
        say("The job continues without further kills.", err=True)
        return INTERRUPTED
    finally:
        for line in table(disturbing.occurrences):
            say(line)
    status = job.status
    say(f"{status.phase} at step {status.progress.environment_steps:,}, {status.restarts} restarts")
    return Exit.FAILED if status.phase == "Failed" else Exit.OK


class Disturbing:
    """Deletes pods of one job. Tolerates an API server that does not answer for some minutes."""

    def __init__(self, client: RLTrainingClient, name: str) -> None:
        self.occurrences: list[Occurrence] = []
        self._client, self._name = client, name
        self._uid = client.get(name).metadata.uid
        self._patience = Patience(client.jobs.api.timing)
        self._waits: dict[str, tuple[Occurrence, str]] = {}
        """Deleted pods with their uids, by name, until their successors are ready."""
        self._began = time.monotonic()

    def run(self, disturbances: Sequence[Disturbance], limit: float | None) -> RLTrainingJob:
        """Waits until the job learns, then deletes pods for ``limit`` seconds, or until it is over. Returns the job.

        Raises JobDeletedError, and the error of an API server that does not answer for too long.
        """
        timers: list[_Timer] = []
        end: float | None = None
        while True:
            try:
                job = self._job()
                if job.status.completion_time is not None:
                    return job
                now = time.monotonic()
                # End when all pods are ready again, and the status shows it.
                recovered = not self._waits and job.status.phase != "Restarting"
                if end is not None and now >= end and recovered:
                    return job
                # Begin when the job learns.
                if not timers and job.status.progress.environment_steps:
                    chances = (random.Random(f"{job.spec.seed} {n}") for n in range(len(disturbances)))
                    timers = list(map(_Timer, disturbances, chances))
                    end = None if limit is None else now + limit
                self._disturb([timer for timer in timers if timer.due <= now and (end is None or now < end)])
                self._patience.succeeded()
            except (ServerError, ClusterUnreachableError) as error:
                self._patience.failed(error)
            time.sleep(PAUSE_SECONDS)

    def _job(self) -> RLTrainingJob:
        job = self._client.get(self._name)
        if job.metadata.uid != self._uid:
            raise JobDeletedError(f"job {self._name} was deleted, and created again")
        return job

    def _disturb(self, due: Sequence[_Timer]) -> None:
        """Deletes a pod for each of these timers, and notes which pods are ready again."""
        if not self._waits and not due:
            return
        pods = {pod.name: pod for pod in member_pods(filter(self._owns, self._client.jobs.pods(self._name)))}
        self._note_recoveries(pods)
        for timer in due:
            timer.restart()
            self._kill(timer.disturbance.role, pods, timer.chance)

    def _owns(self, pod: Json) -> bool:
        return any(owner["uid"] == self._uid for owner in pod["metadata"].get("ownerReferences") or ())

    def _kill(self, role: str, pods: Mapping[str, Pod], chance: random.Random) -> None:
        """Deletes a random pod that is ready, without a grace period."""
        names = sorted(name for name, pod in pods.items() if pod.role == role and pod.ready)
        if not names:
            return
        name = chance.choice(names)
        if not self._client.jobs.delete_pod(name, pods[name].uid):
            return
        occurrence = Occurrence(time.monotonic() - self._began, time.time(), "kill", role, name)
        self.occurrences.append(occurrence)
        self._waits[name] = occurrence, pods[name].uid
        self._say(f"deleted {name}")

    def _note_recoveries(self, pods: Mapping[str, Pod]) -> None:
        for name, (occurrence, uid) in list(self._waits.items()):
            pod = pods.get(name)
            if pod is not None and pod.uid != uid and pod.ready:
                seconds = occurrence.recovery_seconds = time.monotonic() - self._began - occurrence.seconds
                del self._waits[name]
                self._say(f"{name} is ready again after {seconds:.1f} s")

    def _say(self, text: str) -> None:
        say(f"{clock(time.monotonic() - self._began)}  chaos: {text}")
