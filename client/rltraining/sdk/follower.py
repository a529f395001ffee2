"""Follows a member's log through restarts of its container, replacements of its pod and broken
connections."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rltraining.sdk import errors
from rltraining.sdk.api import PASSING, ConnectionLost, Json, Refused, Silence
from rltraining.sdk.pod_logs import NO_LOG, PodLog
from rltraining.sdk.timing import Patience
from rltraining.sdk.waiting import typed
from rltraining.sdk.watching import LEAST_LIFE


@dataclass(frozen=True)
class Run:
    """One incarnation of a container."""

    id: str
    ended: bool
    previous: bool = False
    """Whether this is the incarnation before the current or next one."""


@dataclass
class Cursor:
    """The position up to which the log of an incarnation was read."""

    time: str = ""
    """The latest timestamp, as the kubelet writes it."""
    count: int = 0
    """Number of lines with this timestamp. CRI-O assigns one timestamp to all lines that it reads
    together."""
    _since: str = ""
    _known: int = 0

    def begin(self) -> None:
        """Prepares for reading the log again, starting with lines that were read before."""
        self._since, self._known = self.time, self.count

    def text(self, line: bytes) -> str | None:
        """Returns a line without its timestamp, or None if it was read before."""
        time, _, text = line.decode("utf-8", "replace").partition(" ")
        if time < self._since or (time == self._since and self._known):
            self._known -= time == self._since
            return None
        self._since = ""
        if time >= self.time:
            self.count = self.count + 1 if time == self.time else 1
            self.time = time
        return text


class Follower:
    """Yields each line once, in order, until the job is over or deleted, or no longer has this
    member."""

    def __init__(self, log: PodLog) -> None:
        self._log = log
        self._jobs = log.jobs
        self._timing = log.jobs.api.timing
        self._patience = Patience(self._timing)

    def lines(self, tail: int | None = None) -> Iterator[str]:
        """Yields the lines. `tail` applies to the first container. Raises JobNotFoundError and,
        after `timing.patience` seconds of errors, the last error."""
        self._jobs.get(self._log.job)
        followed = ""
        while (run := self._next(followed)) is not None:
            yield from self._whole(run, tail)
            followed, tail = run.id, None

    def _next(self, followed: str) -> Run | None:
        """Waits for the incarnation after the last followed one and returns it, or None if there
        will be none."""
        while True:
            try:
                pod = self._jobs.pod(self._log.pod)
                run = newest(pod, self._log.container)
                if run is not None and run.id != followed:
                    return run
                if self._is_over(pod):
                    return None
                self._await_change(followed)
            except (ConnectionLost, errors.ServerError) as error:
                self._patience.failed(error)

    def _whole(self, run: Run, tail: int | None) -> Iterator[str]:
        """Yields all lines of a container until its end. Reads the log once more after the end,
        since the last lines often explain it."""
        cursor = Cursor()
        now: Run | None = run
        while now is not None and not now.ended:
            yield from self._read(cursor, follow=True, tail=tail)
            now = self._look(run.id)
        if now is not None:
            yield from self._read(cursor, previous=now.previous, tail=tail)

    def _read(
        self, cursor: Cursor, *, follow: bool = False, previous: bool = False, tail: int | None = None
    ) -> Iterator[str]:
        """Yields new lines, until the log or the connection ends."""
        cursor.begin()
        before = cursor.time, cursor.count
        query = {**self._log.query(previous=previous), "timestamps": "true"}
        if cursor.time:
            query["sinceTime"] = cursor.time
        elif tail is not None:
            query["tailLines"] = tail
        if follow:
            query["follow"] = "true"
        failure: errors.ClusterError | None = None
        opened = math.inf
        try:
            with self._jobs.log(self._log.pod, query, silence=self._timing.watch) as lines:
                opened = self._timing.clock()
                for line in lines:
                    if (text := cursor.text(line)) is not None:
                        yield text
        except Silence:
            return  # a silent container may be alive on a broken connection
        except ConnectionLost as error:
            failure = error
        except Refused as refused:
            failure = self._jobs.translate_error(refused, self._log.job)
            if refused.code not in (*NO_LOG, *PASSING):
                raise failure from None
        if (cursor.time, cursor.count) != before or self._timing.clock() - opened >= LEAST_LIFE:
            self._patience.succeeded()
        elif follow:
            self._patience.failed(
                failure or errors.ServerError(f"the log of pod {self._log.pod} ends immediately")
            )

    def _look(self, run: str) -> Run | None:
        """Returns the current state of an incarnation, or None if its log is gone."""
        while True:
            try:
                pod = self._jobs.pod(self._log.pod)
            except (ConnectionLost, errors.ServerError) as error:
                self._patience.failed(error)
                continue
            return next((known for known in runs(pod, self._log.container) if known.id == run), None)

    def _is_over(self, pod: Json | None) -> bool:
        """Returns whether no further container will start."""
        if pod is not None and (pod.get("status") or {}).get("phase") == "Succeeded":
            return True
        try:
            job = typed(self._jobs.get(self._log.job))
        except errors.JobNotFoundError:
            return True
        count = job.replicas(self._log.role)
        return job.status.completion_time is not None or self._log.index >= count

    def _await_change(self, followed: str) -> None:
        """Waits until the pod changes, for at most the interval at which the job is checked."""
        watched = self._jobs.watched_pod(self._log.pod)
        with self._jobs.translate_errors(self._log.job):
            for number, update in enumerate(watched.updates(self._timing.clock() + self._timing.look)):
                run = newest(next(iter(update.objects.values()), None), self._log.container)
                if number > 0 or (run is not None and run.id != followed):
                    return


def newest(pod: Json | None, container: str) -> Run | None:
    """Returns the newest incarnation that has started, or None."""
    return next(iter(runs(pod, container)), None)


def runs(pod: Json | None, container: str) -> list[Run]:
    """Returns the incarnations whose logs can be read, newest first."""
    status = (pod or {}).get("status") or {}
    every = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    mine: dict[str, Any] = next((one for one in every if one.get("name") == container), {})
    state, last = mine.get("state") or {}, (mine.get("lastState") or {}).get("terminated")
    found: list[Run] = []
    if state.get("running") is not None:
        found.append(Run(str(mine.get("containerID") or ""), ended=False))
    if (ended := state.get("terminated")) is not None:
        found.append(Run(str(ended.get("containerID") or mine.get("containerID") or ""), ended=True))
    if last is not None:
        found.append(Run(str(last.get("containerID") or ""), ended=True, previous=True))
    return [run for run in found if run.id]
