"""Logs, and following them across restarts, replacements and broken connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from fake_api import END, FAST, FakeApi, failure, forbidden, running, terminated
from rltraining import AccessDeniedError, JobNotFoundError, RLTrainingClient, ServerError

POD = "cartpole-learner-0"
Follow = Callable[..., Iterator[str]]


@pytest.fixture
def followed(client: RLTrainingClient, job: Any) -> Follow:
    """``followed()`` yields the learner's lines as they are written."""
    return lambda **rest: client.logs("cartpole", follow=True, **rest)


@pytest.fixture
def lines(followed: Follow, api: FakeApi) -> Iterator[str]:
    """The lines of a learner, after the first one was received."""
    api.pod(POD, running("a"))
    api.write("a", "first")
    lines = followed(tail=5)
    assert next(lines) == "first"
    return lines


def test_what_was_written(client: RLTrainingClient, api: FakeApi, job: Any) -> None:
    api.pod(POD, running("b"), last="a")
    api.write("a", "old")
    api.write("b", "one", "two", "three, and Größe")
    assert list(client.logs("cartpole")) == ["one", "two", "three, and Größe"]
    assert list(client.logs("cartpole", tail=1)) == ["three, and Größe"]
    assert list(client.logs("cartpole", previous=True)) == ["old"]


@pytest.mark.parametrize(
    ("state", "status", "asked", "words"),
    [
        (
            None,
            {"phase": "Starting", "message": "image not found"},
            {},
            "has no log yet: .* ContainerCreating; the job is Starting: image not found",
        ),
        (
            running("a"),
            {},
            {"previous": True},
            "pod cartpole-learner-0 has not restarted since it was created",
        ),
        (
            running("a"),
            {"phase": "Running", "sampler": {"indices": "0-5,7"}},
            {"role": "sampler", "index": 9},
            "there is no pod cartpole-sampler-9: job cartpole is Running, and of its samplers there are: 0-5,7",
        ),
        (
            running("a"),
            {"phase": "Failed", "completionTime": END},
            {"role": "sampler"},
            "pod cartpole-sampler-0 is gone: the job is Failed, and runPolicy.cleanPodPolicy Running has deleted",
        ),
    ],
)
def test_why_there_is_no_log(
    state: Any, status: Any, asked: Any, words: str, client: RLTrainingClient, api: FakeApi, job: Any
) -> None:
    api.pod(POD, state)
    api.status(**status)
    with pytest.raises(JobNotFoundError, match=words):
        list(client.logs("cartpole", **asked))


def test_a_pod_that_is_on_no_node(client: RLTrainingClient, api: FakeApi, job: Any) -> None:
    """In this case an API server answers with an empty log."""
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    for conditions, why in (
        ([], "it is not scheduled"),
        ([unscheduled], "it is not scheduled: 0/3 nodes are available"),
    ):
        api.put("pods", {"metadata": {"name": POD}, "spec": {}, "status": {"conditions": conditions}})
        with pytest.raises(JobNotFoundError, match=f"^pod {POD} has no log yet: {why}$"):
            list(client.logs("cartpole"))
    api.pod(POD, running("a"))
    assert list(client.logs("cartpole")) == []


def test_a_job_that_is_not_there_has_no_log(client: RLTrainingClient) -> None:
    for follow in (False, True):
        with pytest.raises(JobNotFoundError, match="there is no job nope"):
            list(client.logs("nope", follow=follow))


def test_a_broken_connection_loses_and_repeats_nothing(lines: Iterator[str], api: FakeApi) -> None:
    for number in range(10):
        api.break_streams()
        api.write("a", f"line {number}")
        assert next(lines) == f"line {number}"


def write_at(api: FakeApi, second: int, *lines: str) -> None:
    """Writes lines with the same timestamp, as CRI-O does for lines that it reads together."""
    with api.changed:
        api.logs["a"] += [(f"2026-11-21T10:00:0{second}.000000000Z", line) for line in lines]
        api.changed.notify_all()


def end_all(api: FakeApi) -> None:
    api.pod(POD, terminated("a"))
    api.finish()
    api.end("a")


def test_quiet_connections_that_are_cut_do_not_end_it(kubeconfig: Any, api: FakeApi, job: Any) -> None:
    """Load balancers that allow little silence cut such connections."""
    timing = replace(FAST, patience=10.0, clock=count(0.0, 2.0).__next__)
    api.pod(POD, running("a"))
    api.write("a", "first")
    lines = RLTrainingClient(timing=timing).logs("cartpole", follow=True)
    assert next(lines) == "first"
    again = [api.break_streams] * 8
    api.after(api.streams, *again, lambda: api.write("a", "second"))
    assert next(lines) == "second"


def test_lines_of_one_moment_are_all_told_once(followed: Follow, api: FakeApi) -> None:
    api.pod(POD, running("a"))
    write_at(api, 1, "one", "two")
    lines = followed()
    assert next(lines) == "one"
    api.break_streams()
    write_at(api, 1, "three")
    write_at(api, 2, "four", "five")
    end_all(api)
    assert list(lines) == ["two", "three", "four", "five"]


def test_a_clock_that_is_set_back_hides_no_lines(followed: Follow, api: FakeApi) -> None:
    api.pod(POD, running("a"))
    write_at(api, 3, "one")
    write_at(api, 2, "two")
    end_all(api)
    assert list(followed()) == ["one", "two"]


def test_a_container_that_restarts(lines: Iterator[str], api: FakeApi) -> None:
    """The reader also gets the lines before the restart, and complete lines of both containers."""
    with api.changed:  # all of this while the connection is broken
        api.break_streams()
        api.write("a", "last line")
        api.end("a")
        api.write("b", "again")
        api.pod(POD, running("b"), last="a")
    assert [next(lines), next(lines)] == ["last line", "again"]


def test_a_pod_that_is_replaced_or_waits_to_restart(lines: Iterator[str], api: FakeApi) -> None:
    with api.changed:
        api.remove("pods", POD)
        api.end("a")
        replaced = lambda: (api.write("b", "replaced", "once"), api.pod(POD, running("b")))  # noqa: E731
        api.after(api.streams + 1, lambda: api.pod(POD, None), replaced)
    assert [next(lines), next(lines)] == ["replaced", "once"]
    with api.changed:
        api.pod(POD, {"waiting": {"reason": "CrashLoopBackOff"}}, last="b")
        api.end("b")
        restarted = lambda: (api.write("c", "again"), api.pod(POD, running("c"), last="b"))  # noqa: E731
        api.after(api.streams + 2, restarted)
    assert next(lines) == "again"


@pytest.mark.parametrize(
    "over",
    [
        FakeApi.finish,
        lambda api: api.remove("rltrainingjobs", "cartpole"),
        lambda api: api.pod(POD, terminated("a"), phase="Succeeded"),
    ],
    ids=["the job finishes", "the job is deleted", "the pod succeeds"],
)
def test_following_ends_when(over: Callable[[FakeApi], Any], lines: Iterator[str], api: FakeApi) -> None:
    api.pod(POD, terminated("a"), phase="Failed")
    over(api)
    api.end("a")
    assert list(lines) == []


def test_following_a_sampler_ends_when_it_is_scaled_away(
    client: RLTrainingClient, api: FakeApi, job: Any
) -> None:
    api.pod("cartpole-sampler-1", running("a"))
    api.write("a", "first")
    lines = client.logs("cartpole", "sampler", 1, follow=True)
    assert next(lines) == "first"
    client.scale("cartpole", 1)
    with api.changed:
        api.remove("pods", "cartpole-sampler-1")
        api.end("a")
    assert list(lines) == []


def test_a_kubelet_that_does_not_answer_for_a_while(followed: Follow, api: FakeApi) -> None:
    api.pod(POD, running("a"))
    api.write("a", "first")
    api.fail("GET", "/log", failure(500, "InternalError", "dial tcp: connect refused"), times=4)
    api.fail("GET", f"pods/{POD}$", failure(503, "ServiceUnavailable", "x"), times=4)
    assert next(followed()) == "first"


def test_a_log_that_may_not_be_read(client: RLTrainingClient, api: FakeApi, job: Any) -> None:
    api.pod(POD, running("a"))
    for follow in (False, True):
        api.fail("GET", "/log", forbidden("get", "pods/log"))
        with pytest.raises(AccessDeniedError, match="ann may not get pods/log in namespace default"):
            next(client.logs("cartpole", follow=follow))
    api.fail("GET", "/log", failure(500, "InternalError", "kubelet"))
    with pytest.raises(ServerError, match="answers 500: kubelet"):
        next(client.logs("cartpole"))
