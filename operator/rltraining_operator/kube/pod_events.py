"""Reads the events of pods that do not start. No other events are read, and none are watched: an API
server has too many of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from rltraining_operator.errors import ClusterError
from rltraining_operator.kube.api import Api
from rltraining_operator.kube.paths import collection
from rltraining_operator.observe.mounts import MountFailure, find_mount_failure
from rltraining_operator.observe.pod_view import Pod
from rltraining_operator.settings import EVENTS_INTERVAL_SECONDS

FRESH_SECONDS = EVENTS_INTERVAL_SECONDS[0] - 0.5
"""Up to this age the last answer is used: other changes trigger passes, too."""
FORGET_SECONDS = 600.0
LIMIT = "500"
"""Maximum number of events that are read. A kubelet merges equal events."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Answer:
    failure: MountFailure | None
    at: float
    """In monotonic seconds."""


class PodEvents:
    """The newest mount failure of each pod without volumes, by the uid of the pod."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._answers: dict[str, _Answer] = {}

    async def mount_failure(self, pod: Pod) -> MountFailure | None:
        """Returns why the volumes of the pod cannot be mounted, or None if no event reports a failure. Keeps
        the last answer if the events cannot be read."""
        known = self._answers.get(pod.uid)
        if known is not None and self._clock() - known.at < FRESH_SECONDS:
            return known.failure
        failure = known.failure if known is not None else None
        try:
            failure = await self._read(pod)
        except ClusterError as error:
            log.warning("the events of pod %s cannot be read: %s", pod.name, error)
        self._forget()
        self._answers[pod.uid] = _Answer(failure, self._clock())
        return failure

    async def _read(self, pod: Pod) -> MountFailure | None:
        query = {"fieldSelector": f"involvedObject.uid={pod.uid}", "limit": LIMIT}
        page = await self._api.get(collection("Event", pod.raw["metadata"]["namespace"]), query)
        return find_mount_failure(pod, page["items"])

    def _forget(self) -> None:
        """Drops the answers about pods that no pass has requested lately."""
        old = self._clock() - FORGET_SECONDS
        for uid in [uid for uid, answer in self._answers.items() if answer.at < old]:
            del self._answers[uid]
