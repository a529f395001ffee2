"""Watches and waits across connection failures. No test sleeps: each waits for the tested event."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import yaml
from fake_api import END, FAST, FakeApi, failure, forbidden
from rltraining import (
    AccessDeniedError,
    ClusterUnreachableError,
    JobDeletedError,
    JobFailedError,
    JobNotFoundError,
    JobOverError,
    RLTrainingClient,
    WaitTimeoutError,
)
from rltraining.sdk.timing import Timing
from rltraining_api.job import RLTrainingJob

Phases = Callable[..., list[str]]


@pytest.fixture
def phases(client: RLTrainingClient, job: dict[str, Any]) -> Phases:
    """``phases()`` returns the phases that on_status has received by the end of the job."""

    def seen() -> list[str]:
        told: list[str] = []
        client.wait("cartpole", on_status=lambda job: told.append(job.status.phase), timeout=60)
        return told

    return seen


def test_a_wait_tells_each_change(phases: Phases, api: FakeApi) -> None:
    api.after(1, lambda: (api.status(phase="Starting"), api.status(phase="Running"), api.finish()))
    assert phases() == ["Pending", "Starting", "Running", "Succeeded"]
    watches = [path for _, path in api.requests if "watch=true" in path]
    assert len(watches) == 1, "one watch, no polling"


EXPIRED = failure(410, "Expired", "too old resource version")
JUST_BEGUN = [
    failure(403, "Forbidden", "RBAC: role not found"),
    failure(404, "NotFound", "could not find it"),
]
FAULTS: dict[str, tuple[str, list[Any], int]] = {
    "a dropped connection": ("", [], 0),
    "an expired version, as an answer": ("watch=true", [EXPIRED], 1),
    "an API server that is unavailable for a while": ("rltrainingjobs", [None], 7),
    "an API server that errs for a while": ("rltrainingjobs", [failure(500, "InternalError", "etcd")], 7),
    "an API server that has just begun": ("rltrainingjobs", JUST_BEGUN, 2),
    "an expired version, in the stream": ("expire", [], 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wait_survives(fault: str, phases: Phases, api: FakeApi) -> None:
    path, answers, times = FAULTS[fault]

    def happen() -> None:
        api.status(phase="Running")
        for answer in answers:
            api.fail("GET", path, answer, times=times)
        api.expire() if path == "expire" else api.break_streams()

    api.after(1, happen, api.finish)
    assert phases()[-1] == "Succeeded"


def test_what_happens_while_the_connection_is_gone_is_not_missed(phases: Phases, api: FakeApi) -> None:
    def away() -> None:
        with api.changed:  # no client can watch before the job has finished
            api.fail("GET", "watch=true", None, times=2)
            api.break_streams()
            api.finish()

    api.after(1, away)
    assert phases() == ["Pending", "Succeeded"]


@pytest.mark.parametrize(
    "timing", [replace(FAST, silence=0.05), replace(FAST, watch=0.01)], ids=["silent", "short"]
)
def test_a_watch_that_is_silent_or_over_is_made_again(
    timing: Timing, kubeconfig: Any, api: FakeApi, job: Any
) -> None:
    if timing.watch < FAST.watch:
        api.second = 0.05
    api.after(3, api.finish)
    assert RLTrainingClient(timing=timing).wait("cartpole", timeout=60).status.phase == "Succeeded"


def test_quiet_connections_that_are_cut_do_not_end_the_wait(kubeconfig: Any, api: FakeApi, job: Any) -> None:
    """Load balancers cut connections that are silent for less than the time between bookmarks."""
    timing = replace(FAST, patience=20.0, clock=count(0.0, 2.0).__next__)
    api.after(1, *[api.break_streams] * 8, api.finish)
    assert RLTrainingClient(timing=timing).wait("cartpole").status.phase == "Succeeded"


def test_a_server_that_takes_connections_and_never_answers_ends_the_wait(kubeconfig: Any, job: Any) -> None:
    timing = replace(FAST, silence=0.05, patience=20.0, clock=count(0.0, 2.0).__next__)
    client = RLTrainingClient(timing=timing)
    updates = client.jobs.watched("cartpole").updates(until=1000.0)
    next(updates)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        configuration = client.jobs.api.access.configuration
        configuration.refresh_api_key_hook = None  # loading would set the kubeconfig's host again
        configuration.host = "http://{}:{}".format(*mute.getsockname())
        with pytest.raises(ClusterUnreachableError, match="no response in time"):
            next(updates)


def test_a_cluster_that_stays_away_ends_the_wait(kubeconfig: Any, api: FakeApi, job: Any) -> None:
    api.after(1, lambda: (api.fail("GET", "rltrainingjobs", None, times=10**6), api.break_streams()))
    with pytest.raises(ClusterUnreachableError, match="does not answer"):
        RLTrainingClient(timing=replace(FAST, patience=0.1)).wait("cartpole", timeout=60)


def test_rights_that_are_taken_away_end_the_wait(client: RLTrainingClient, api: FakeApi, job: Any) -> None:
    fault = forbidden("watch", "rltrainingjobs")
    api.after(1, lambda: (api.fail("GET", "watch", fault, times=99), api.break_streams()))
    with pytest.raises(AccessDeniedError, match=r"ann may not watch rltrainingjobs in namespace default"):
        client.wait("cartpole", timeout=60)


def test_a_job_that_fails(client: RLTrainingClient, api: FakeApi, job: Any) -> None:
    words = {"reason": "UserCodeError", "message": "cartpole-learner-0: ValueError: no such key"}
    condition = {"type": "Failed", "status": "True", "lastTransitionTime": END, **words}
    api.finish(phase="Failed", message="failed", conditions=[condition])
    with pytest.raises(
        JobFailedError, match=r"^job cartpole failed: cartpole-learner-0: ValueError"
    ) as caught:
        client.wait("cartpole")
    assert caught.value.job.status.phase == "Failed"
    assert client.wait("cartpole", until="Failed").status.phase == "Failed"


def test_a_job_that_is_deleted_and_made_anew(
    client: RLTrainingClient, api: FakeApi, job: Any, manifest: str
) -> None:
    def again() -> None:
        with api.changed:
            api.remove("rltrainingjobs", "cartpole")
            api.put("rltrainingjobs", yaml.safe_load(manifest))

    api.after(1, again)
    with pytest.raises(JobDeletedError, match=r"was deleted during the wait; it was Pending"):
        client.wait("cartpole", timeout=60)


@pytest.mark.parametrize(
    ("until", "status", "reached"),
    [
        ("Running", {"phase": "Running"}, True),
        ("Running", {"phase": "Starting"}, False),
        ("Running", {"phase": "Succeeded", "completionTime": END}, True),
        ("Suspended", {"phase": "Suspended", "observedGeneration": 2}, True),
        ("Suspended", {"phase": "Suspended", "observedGeneration": 1}, False),
        (lambda job: job.status.restarts >= 5, {"restarts": 5}, True),
        (lambda job: job.status.restarts >= 5, {"restarts": 4}, False),
    ],
)
def test_what_can_be_waited_for(
    until: str | Callable[[RLTrainingJob], bool],
    status: dict[str, Any],
    reached: bool,
    client: RLTrainingClient,
    api: FakeApi,
    job: dict[str, Any],
) -> None:
    """A phase that was judged by an older spec does not count."""
    api.put("rltrainingjobs", {**job, "metadata": {**job["metadata"], "generation": 2}, "status": status})
    if reached:
        client.wait("cartpole", until, timeout=60)
    else:
        with pytest.raises(WaitTimeoutError, match=r"^job cartpole is not .* after 0.1 s: it is"):
            client.wait("cartpole", until, timeout=0.1)


def test_what_cannot_come_any_more(client: RLTrainingClient, api: FakeApi, job: Any) -> None:
    api.finish()
    with pytest.raises(JobOverError, match="job cartpole is Succeeded, and cannot become Suspended"):
        client.wait("cartpole", "Suspended")
    with pytest.raises(ValueError, match="until: must be a function or one of finished, Pending"):
        client.wait("cartpole", "finnished")


def test_a_wait_and_a_watch_end_at_their_timeout(client: RLTrainingClient, api: FakeApi, job: Any) -> None:
    api.status(phase="Pending", message="0/1 nodes are available")
    with pytest.raises(TimeoutError, match=r"is not finished after 0.1 s: it is Pending: 0/1 nodes are"):
        client.wait("cartpole", timeout=0.1)
    assert [change.type for change in client.watch(timeout=0.1)] == ["ADDED"]


def test_watching_tells_what_has_become_of_each(
    client: RLTrainingClient, api: FakeApi, job: Any, manifest: str
) -> None:
    def add(name: str) -> None:
        api.put("rltrainingjobs", {**yaml.safe_load(manifest), "metadata": {"name": name}})

    def gap() -> None:
        with api.changed:
            api.remove("rltrainingjobs", "second")
            api.expire()

    running = lambda: api.status(phase="Running")  # noqa: E731
    steps = [lambda: add("second"), running, gap, lambda: add("third"), lambda: None]
    seen = []
    for step, change in zip(steps, client.watch(timeout=60), strict=False):
        seen.append((change.type, change.job.metadata.name, change.job.status.phase))
        step()
    assert seen == [
        ("ADDED", "cartpole", "Pending"),
        ("ADDED", "second", "Pending"),
        ("MODIFIED", "cartpole", "Running"),
        ("DELETED", "second", "Pending"),
        ("ADDED", "third", "Pending"),
    ]


def test_deleting_waits_for_the_pods(client: RLTrainingClient, api: FakeApi, job: dict[str, Any]) -> None:
    labels = {"rltraining.dev/job-name": "cartpole"}
    owner = {"uid": job["metadata"]["uid"], "controller": True}
    pod = {"metadata": {"name": "cartpole-learner-0", "labels": labels, "ownerReferences": [owner]}}
    api.put("pods", pod)
    api.put("pods", {"metadata": {"name": "of-another-job", "labels": labels}})
    with pytest.raises(WaitTimeoutError, match=r"^after 0.1 s these still exist: cartpole-learner-0$"):
        client.delete("cartpole", wait=True, timeout=0.1)
    again = api.put("rltrainingjobs", job | {"metadata": {"name": "cartpole"}})
    owner["uid"] = again["metadata"]["uid"]
    api.put("pods", pod)
    opened = api.streams
    api.after(opened + 1, lambda: api.remove("pods", "cartpole-learner-0"))
    client.delete("cartpole", wait=True, timeout=60)
    assert api.streams == opened + 1
    with pytest.raises(JobNotFoundError):
        client.delete("cartpole", wait=True)
