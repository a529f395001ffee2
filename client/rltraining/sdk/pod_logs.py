"""Reads the log of one member of a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rltraining_api.contract import TRAINER_CONTAINER
from rltraining_api.names import Role, pod_name

from rltraining.sdk import errors
from rltraining.sdk.api import Json, Query, Refused
from rltraining.sdk.jobs import Jobs
from rltraining.sdk.waiting import typed

NO_LOG = (400, 404)
"""Status codes of the API server for a container without a log, and for a missing pod."""


@dataclass(frozen=True)
class PodLog:
    """The log of a member. `follower.py` follows it."""

    jobs: Jobs
    job: str
    role: Role = "learner"
    index: int = 0
    container: str = TRAINER_CONTAINER

    @property
    def pod(self) -> str:
        return pod_name(self.job, self.role, self.index)

    def query(self, *, tail: int | None = None, previous: bool = False) -> Query:
        """Returns the query of the log subresource."""
        query: dict[str, str | int] = {"container": self.container}
        if tail is not None:
            query["tailLines"] = tail
        if previous:
            query["previous"] = "true"
        return query

    def lines(self, *, previous: bool = False, tail: int | None = None) -> Iterator[str]:
        """Yields the lines that were written so far, with `previous` those of the previous
        container.

        Raises JobNotFoundError with the reason if there is no log.
        """
        query, empty = self.query(tail=tail, previous=previous), True
        try:
            with self.jobs.log(self.pod, query, silence=self.jobs.api.timing.answer) as lines:
                for line in lines:
                    empty = False
                    yield line.decode("utf-8", "replace")
        except Refused as refused:
            raise self._explained(refused, previous=previous) from None
        if empty and (why := unscheduled(self.jobs.pod(self.pod))):
            raise errors.JobNotFoundError(f"pod {self.pod} has no log yet: {why}")

    def _explained(self, refused: Refused, *, previous: bool) -> errors.ClusterError:
        """Returns an error with the reason why there is no log."""
        if refused.code not in NO_LOG:
            return self.jobs.translate_error(refused, self.job)
        job = typed(self.jobs.get(self.job))  # raises an error if the job does not exist
        if refused.code == 400:
            if previous and "previous" in refused.message:
                return errors.JobNotFoundError(
                    f"pod {self.pod} has not restarted since it was created: it has no previous log"
                )
            why = f"; the job is {job.status.phase}: {job.status.message}" if job.status.message else ""
            return errors.JobNotFoundError(f"pod {self.pod} has no log yet: {refused.message}{why}")
        if job.status.completion_time is not None:
            policy = job.spec.run_policy.clean_pod_policy
            return errors.JobNotFoundError(
                f"pod {self.pod} is gone: the job is {job.status.phase}, "
                f"and runPolicy.cleanPodPolicy {policy} has deleted its pods"
            )
        indices = job.status.of_role(self.role).indices
        return errors.JobNotFoundError(
            f"there is no pod {self.pod}: job {self.job} is {job.status.phase}, "
            f"and of its {self.role}s there {f'are: {indices}' if indices else 'is none'}"
        )


def unscheduled(pod: Json | None) -> str:
    """Returns why a pod has no node, or an empty string. The API server returns an empty log for
    such a pod."""
    if pod is None or pod["spec"].get("nodeName"):
        return ""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    said = next((one.get("message") for one in conditions if one.get("type") == "PodScheduled"), "")
    return f"it is not scheduled{f': {said}' if said else ''}"
