"""State of a fake API server, and the tests' changes to it. `fake_api_http.py` serves it.

The server stores objects, versions and histories as a real API server does, and validates nothing.
Tests inject the rejections of a real server as faults.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rltraining.sdk.timing import Timing
from rltraining_api.crd import COLUMNS

Json = dict[str, Any]
KINDS = {
    "rltrainingjobs": ("rltraining.dev/v1alpha1", "RLTrainingJob"),
    "pods": ("v1", "Pod"),
    "events": ("v1", "Event"),
    "configmaps": ("v1", "ConfigMap"),
}
FAST = Timing(connect=60, answer=60, look=0.5, first_pause=0.001, longest_pause=0.01, patience=60)
"""Short pauses; the limits are so long that a busy machine does not reach them."""
END = "2026-11-21T11:00:00Z"
"""When jobs end."""
TIMEOUT = 60.0
"""Seconds after which a test that waits for the server has failed."""


@dataclass
class Fault:
    """A response in place of the normal one."""

    method: str
    path: str
    """A regular expression, searched in the path with its query."""
    status: Json | None = None
    """The `Status` of the response; None closes the connection without a response."""
    text: str = ""
    """A response that is not JSON, in place of a Status."""
    times: int = 1


def failure(code: int, reason: str, message: str, **details: Any) -> Json:
    """Returns a `Status` of an API server."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def forbidden(verb: str, resource: str) -> Json:
    """Returns RBAC's rejection of user ann."""
    message = f'User "ann" cannot {verb} resource "{resource}" in API group "x" in the namespace "default"'
    return failure(403, "Forbidden", f"{resource} is forbidden: {message}")


def running(container: str) -> Json:
    """Returns the state of a running container with this id."""
    return {"id": container, "running": {}}


def terminated(container: str) -> Json:
    """Returns the state of an ended container with this id."""
    return {"id": container, "terminated": {"containerID": container, "exitCode": 1}}


def pod_labels(name: str) -> dict[str, str]:
    """Returns the labels of a job's pod."""
    keys = [f"rltraining.dev/{key}" for key in ("job-name", "role", "index")]
    return dict(zip(keys, name.rsplit("-", 2), strict=True))


class FakeApi:
    """The server's state and the tests' operations on it. `changed` guards all state."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.changed = threading.Condition()
        self.version = 1
        self.second = 1.0
        """Real seconds for each second of a watch's `timeoutSeconds`."""
        self.expired = 0
        """Watches from before this version get a 410."""
        self.objects: dict[str, dict[tuple[str, str], Json]] = defaultdict(dict)
        self.history: dict[str, list[tuple[int, str, Json]]] = defaultdict(list)
        self.logs: dict[str, list[tuple[str, str]]] = defaultdict(list)
        """Time and text of each line, by container id."""
        self.ended: set[str] = set()
        """Container ids whose log is complete."""
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.streams = 0
        self.broken = 0
        """Streams opened before this many breaks are cut."""

    # Operations of tests.

    def put(self, resource: str, item: Json) -> Json:
        """Creates or replaces an object."""
        with self.changed:
            version, kind = KINDS[resource]
            metadata = {"namespace": "default", **item["metadata"]}
            key = (metadata["namespace"], metadata["name"])
            known = self.objects[resource].get(key)
            uid = known["metadata"]["uid"] if known else f"uid-{metadata['name']}-{self.version}"
            self.version += 1
            metadata = {"uid": uid, "creationTimestamp": "2026-11-21T10:00:00Z", **metadata}
            metadata["resourceVersion"] = str(self.version)
            stored = {"apiVersion": version, "kind": kind, **item, "metadata": metadata}
            self.objects[resource][key] = stored
            self._record(resource, "MODIFIED" if known else "ADDED", stored)
            return stored

    def remove(self, resource: str, name: str, namespace: str = "default") -> None:
        with self.changed:
            item = self.objects[resource].pop((namespace, name))
            self.version += 1
            item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
            self._record(resource, "DELETED", item)

    def job(self, name: str = "cartpole", namespace: str = "default") -> Json:
        """The stored job."""
        return self.objects["rltrainingjobs"][namespace, name]

    def status(self, name: str = "cartpole", **status: Any) -> None:
        """Updates a job's status, as the operator does."""
        job = self.job(name)
        self.put("rltrainingjobs", {**job, "status": {**(job.get("status") or {}), **status}})

    def finish(self, name: str = "cartpole", phase: str = "Succeeded", **status: Any) -> None:
        """Ends a job."""
        self.status(name, **{"phase": phase, "completionTime": END, **status})

    def event(self, name: str, uid: str, **event: Any) -> None:
        """Adds an event of a job `cartpole` with this uid."""
        about = {"kind": "RLTrainingJob", "name": "cartpole", "uid": uid}
        self.put("events", {"metadata": {"name": name}, "involvedObject": about, **event})

    def pod(self, name: str, state: Json | None, last: str = "", phase: str = "Running") -> None:
        """Stores a pod with a container in this state. `last` is the id of the previous container.

        None: the kubelet has not reported a state yet.
        """
        statuses: list[Json] = []
        if state is not None:
            container = {"name": "trainer", "containerID": state.get("id", ""), "state": state}
            statuses = [container | ({"lastState": terminated(last)} if last else {})]
        status = {"phase": phase, "containerStatuses": statuses}
        metadata = {"name": name, "labels": pod_labels(name)}
        self.put("pods", {"metadata": metadata, "spec": {"nodeName": "one"}, "status": status})

    def write(self, container: str, *lines: str) -> None:
        """Appends lines to a container's log."""
        with self.changed:
            for line in lines:
                count = sum(map(len, self.logs.values()))
                self.logs[container].append((f"2026-11-21T10:00:00.{count:09d}Z", line))
            self.changed.notify_all()

    def end(self, container: str) -> None:
        """Ends a container's log."""
        with self.changed:
            self.ended.add(container)
            self.changed.notify_all()

    def break_streams(self) -> None:
        """Cuts all watches and logs."""
        with self.changed:
            self.broken = self.streams
            self.changed.notify_all()

    def expire(self) -> None:
        """Forgets the history and cuts all streams. A watch that resumes from an older version gets a 410."""
        with self.changed:
            self.version += 1
            self.expired = self.version
            self.break_streams()

    def fail(self, method: str, path: str, status: Json | None = None, **rest: Any) -> None:
        self.faults.append(Fault(method, path, status, **rest))

    def await_streams(self, count: int) -> None:
        """Waits until `count` watches and logs have been opened in all."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.streams >= count, TIMEOUT), (
                f"{self.streams} streams were opened, not {count}: {self.requests}"
            )

    def after(self, streams: int, *steps: Callable[[], Any]) -> None:
        """Runs steps in a thread.

        The first step runs after `streams` streams have been opened, each further step a stream later.
        """

        def run() -> None:
            for count, step in enumerate(steps, start=streams):
                self.await_streams(count)
                step()

        threading.Thread(target=run, daemon=True).start()

    # Operations of the handlers.

    def take_fault(self, method: str, path: str) -> Fault | None:
        with self.changed:
            for fault in self.faults:
                if fault.method == method and re.search(fault.path, path) and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def selected(self, resource: str, namespace: str | None, query: dict[str, str]) -> list[Json]:
        return [
            item
            for (space, _), item in sorted(self.objects[resource].items())
            if namespace in (None, space) and fits(item, query)
        ]

    def await_news(
        self, resource: str, since: int, stream: int, seconds: float
    ) -> list[tuple[int, str, Json]] | None:
        """Returns the events after a version, as soon as there is one, or None when the stream is cut."""

        def news() -> list[tuple[int, str, Json]]:
            return [entry for entry in self.history[resource] if entry[0] > since]

        with self.changed:
            self.changed.wait_for(lambda: self.broken >= stream or news(), seconds)
            return None if self.broken >= stream else news()

    def await_lines(
        self, container: str, sent: int, stream: int, *, follow: bool
    ) -> tuple[list[tuple[str, str]], bool] | None:
        """Returns the lines after the first `sent`, and whether the log is complete.

        Returns None when the stream is cut.
        """

        def is_over() -> bool:
            return not follow or container in self.ended

        with self.changed:
            self.changed.wait_for(
                lambda: self.broken >= stream or len(self.logs[container]) > sent or is_over(), TIMEOUT
            )
            if self.broken >= stream:
                return None
            return self.logs[container][sent:], is_over()

    def _record(self, resource: str, kind: str, item: Json) -> None:
        self.history[resource].append((self.version, kind, item))
        self.changed.notify_all()

    @contextmanager
    def stream(self) -> Iterator[int]:
        """Opens a stream and yields its number."""
        with self.changed:
            self.streams += 1
            number = self.streams
            self.changed.notify_all()
        yield number


def fits(item: Json, query: dict[str, str]) -> bool:
    labels = item["metadata"].get("labels") or {}
    wanted = (pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if pair)
    if any(labels.get(key) != value for key, value in wanted):
        return False
    fields = (pair.split("=", 1) for pair in query.get("fieldSelector", "").split(",") if pair)
    return all(at(item, path) == value for path, value in fields)


def at(item: Any, path: str) -> Any:
    for step in path.split("."):
        item = (item or {}).get(step)
    return item


def table(items: list[Json]) -> Json:
    """Returns custom resources as the API server prints them."""
    columns = [("Name", "string", ".metadata.name", 0), *COLUMNS]
    return {
        "kind": "Table",
        "columnDefinitions": [{"name": name, "type": kind, "priority": p} for name, kind, _, p in columns],
        "rows": [
            {
                "cells": [at(item, path.lstrip(".")) for _, _, path, _ in columns],
                "object": {"metadata": item["metadata"]},
            }
            for item in items
        ],
    }


def kubeconfig_for(server: str, **context: str) -> Json:
    """Returns a kubeconfig with one context, `here`."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", **context}}],
    }
