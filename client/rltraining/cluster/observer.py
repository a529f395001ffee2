"""Creates snapshots of a job in a cluster from three watches (job, pods, Events), each in a
separate thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import CONTROLLER_NAME, LABEL_INDEX, LABEL_ROLE
from rltraining_operator.observe.observed import Pod

from rltraining.errors import ClientError
from rltraining.run_events import RunEvent, from_api, rows
from rltraining.sdk.api import Json, Refused
from rltraining.sdk.errors import JobDeletedError
from rltraining.sdk.jobs import Jobs
from rltraining.sdk.waiting import typed
from rltraining.sdk.watching import Watched
from rltraining.snapshot import Eta, Snapshot, pod_row

Objects = Mapping[str, Json]
UNSEEN_SECONDS = 20.0
"""Seconds in which an operator handles a new job, and by default another replica if the leader is
down."""
UNSEEN = (
    "No operator has acted on this job yet. Check that an operator is installed and watches this namespace, "
    "then read its log."
)
SILENT_SECONDS = 60.0
"""An operator writes the progress of a running job every 10 s by default."""
SILENT = "No update for over a minute: the job is stalled or the operator is not running."


class _Closed(Exception):
    """The observer was closed."""


class ClusterObserver:
    """Watches a job and creates snapshots of it. After `close`, each thread ends at its next
    change, or when its watch breaks or is restarted."""

    def __init__(self, jobs: Jobs, name: str) -> None:
        """Raises JobNotFoundError."""
        self._jobs = jobs
        self._job = typed(jobs.get(name))
        self._heard = time.monotonic()  # time of the last change of the job
        self._pods: tuple[Pod, ...] = ()
        self._events: list[RunEvent] = []
        self._notices: dict[str, str] = {}
        self._error: ClientError | None = None
        self._closed = threading.Event()
        self._eta = Eta()
        # Kept when the job is resumed, so that all times have the same origin.
        self._began = _start(self._job)
        self._keep("job", jobs.watched(name), self._take_job, vital=True)
        self._keep("pods", jobs.watched_pods(name), self._take_pods)
        self._keep("events", jobs.watched_events(name), self._take_events)

    def close(self) -> None:
        """Stops watching. Returns immediately."""
        self._closed.set()

    @property
    def is_over(self) -> bool:
        return self._job.status.completion_time is not None

    def snapshot(self, now: datetime) -> Snapshot:
        """Returns the current state of the job. Raises JobDeletedError, and errors that prevent
        watching it."""
        if self._error is not None:
            raise self._error
        job = self._job
        elapsed = max(0.0, ((job.status.completion_time or now) - self._began).total_seconds())
        silence = _unseen(job, now) or self._silent()
        notice = next(filter(None, self._notices.values()), silence)
        eta = self._eta.update(elapsed, job.status.progress.percent)
        pods = tuple(map(pod_row, self._pods))
        return Snapshot(job, elapsed, pods, rows(self._events, self._began), eta, notice)

    def _silent(self) -> str:
        """Returns a notice if a running job has not changed for long, or an empty string."""
        running, seconds = self._job.status.phase == "Running", time.monotonic() - self._heard
        return SILENT if running and seconds > SILENT_SECONDS else ""

    def _keep(
        self, what: str, watched: Watched, take: Callable[[Objects], None], *, vital: bool = False
    ) -> None:
        """Applies each update in a thread. Only errors of a `vital` watch are raised. Others cause
        a notice."""

        def note_error(sentence: str) -> None:
            if self._closed.is_set():
                raise _Closed
            self._notices[what] = sentence and f"{sentence}; trying again"

        def follow() -> None:
            try:
                for update in watched.updates():
                    if self._closed.is_set():
                        return
                    take(update.objects)
            except _Closed:
                return
            except (Refused, ClientError) as error:
                translated = (
                    self._jobs.translate_error(error, self._job.metadata.name)
                    if isinstance(error, Refused)
                    else error
                )
                if vital:
                    self._error = translated
                else:
                    self._notices[what] = f"{what} cannot be shown: {translated}"

        watched.on_error = note_error
        threading.Thread(target=follow, name=f"watch-{what}", daemon=True).start()

    def _take_job(self, objects: Objects) -> None:
        name, uid = self._job.metadata.name, self._job.metadata.uid
        raw = next((item for item in objects.values() if item["metadata"].get("uid") == uid), None)
        if raw is None:
            raise JobDeletedError(f"job {name} was deleted; it was {self._job.status.phase}")
        job = typed(raw)
        if job != self._job:
            self._job, self._heard = job, time.monotonic()

    def _take_pods(self, objects: Objects) -> None:
        self._pods = member_pods(objects.values())

    def _take_events(self, objects: Objects) -> None:
        self._events = from_api(objects.values(), self._job.metadata.uid)


def member_pods(objects: Iterable[Json]) -> tuple[Pod, ...]:
    """Returns the pods of members, learners first. Users can create other pods with the job's label."""
    labels = {LABEL_ROLE, LABEL_INDEX}
    pods = [Pod(item) for item in objects if labels <= (item["metadata"].get("labels") or {}).keys()]
    return tuple(sorted(pods, key=lambda pod: (pod.role, pod.index)))


def _start(job: RLTrainingJob) -> datetime:
    return job.status.start_time or job.metadata.creation_timestamp or datetime.now(UTC)


def _unseen(job: RLTrainingJob, now: datetime) -> str:
    """Returns a notice if no operator has handled the job, or an empty string."""
    created, elsewhere = job.metadata.creation_timestamp, job.spec.run_policy.managed_by
    if job.status.observed_generation is not None or elsewhere not in (None, CONTROLLER_NAME) or not created:
        return ""
    return UNSEEN if (now - created).total_seconds() > UNSEEN_SECONDS else ""
