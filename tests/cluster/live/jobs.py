"""Jobs of a team."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import yaml
from rltraining_api.contract import ENV_POD_NAME
from rltraining_api.names import API_VERSION, KIND, LABEL_JOB_NAME, PLURAL

from tests.cluster.api import Cluster
from tests.local_kubernetes import node_images, programs

Json = dict[str, Any]
EXAMPLES = Path(__file__).parents[3] / "examples"
CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
CHILDREN = "pods,services,configmaps,secrets,networkpolicies,poddisruptionbudgets,persistentvolumeclaims"
GENTLE = """
import time
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Gentle(CartPoleEnv):
    def step(self, action):
        time.sleep(0.01)
        return super().step(action)

gym.register("Gentle-v0", entry_point=Gentle, max_episode_steps=500)
"""


def example(name: str, **changes: Any) -> Json:
    """The spec of an example with some fields changed: `sampler={"replicas": 2}`."""
    spec: Json = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())["spec"]
    return spec | changes


@dataclass(frozen=True)
class Team:
    """A namespace with jobs, and the operator that runs them."""

    cluster: Cluster
    namespace: str
    operator_namespace: str
    release: str

    def submit(self, name: str, spec: Json) -> Job:
        """Applies a job."""
        metadata = {"name": name, "namespace": self.namespace}
        self.cluster.apply({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})
        return Job(self, name)

    @contextmanager
    def job(self, name: str, spec: Json) -> Iterator[Job]:
        """Applies a job, and deletes it in the end."""
        job = self.submit(name, spec)
        try:
            yield job
        finally:
            job.delete()

    @contextmanager
    def other(self, namespace: str) -> Iterator[Team]:
        """Makes a namespace for a test that concerns all of a namespace, and deletes it in the end."""
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        try:
            yield replace(self, namespace=namespace)
        finally:
            self.cluster.kubectl("delete", "namespace", namespace, "--timeout=240s", seconds=250)

    def code(self, name: str, **modules: str) -> Json:
        """`spec.code` of user code, kept in a ConfigMap."""
        data = {f"{module}.py": text for module, text in modules.items()}
        metadata = {"name": name, "namespace": self.namespace}
        self.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        return {"configMap": {"name": name}}

    def gentle(self, name: str) -> Json:
        """Fields of the spec of a job: CartPole at walking pace, which leaves the processors to other jobs."""
        code = self.code(f"{name}-code", gentle=GENTLE)
        return {"code": code, "environment": {"id": "gentle:Gentle-v0", "numEnvs": 4}}

    def kubectl(self, *arguments: str, seconds: float = 60) -> str:
        """kubectl in this namespace."""
        return self.cluster.kubectl("-n", self.namespace, *arguments, seconds=seconds)

    def operator(self, *arguments: str, seconds: float = 60) -> str:
        """kubectl in the operator's namespace."""
        return self.cluster.kubectl("-n", self.operator_namespace, *arguments, seconds=seconds)

    def operator_pods(self) -> list[Json]:
        path = f"/api/v1/namespaces/{self.operator_namespace}/pods"
        found = self.cluster.read(path, labelSelector="app.kubernetes.io/component=operator")
        return list(found["items"])

    def audit(self) -> Iterator[Json]:
        """Requests in the API server's audit log since the operator was installed."""
        self.cluster.need_local("it reads the audit log")
        path = f"/api/v1/namespaces/{self.operator_namespace}/serviceaccounts/{self.release}"
        since = self.cluster.read(path)["metadata"]["creationTimestamp"].removesuffix("Z")
        return (entry for entry in self.cluster.audit() if entry["requestReceivedTimestamp"] >= since)

    def lease(self) -> Json:
        """The spec of the operator's Lease."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.operator_namespace}/leases/{self.release}"
        return dict(self.cluster.read(path)["spec"])

    def leader(self) -> str:
        """The operator pod that leads, or an empty string."""
        return str(self.lease().get("holderIdentity") or "")


@dataclass(frozen=True)
class Job:
    team: Team
    name: str

    @property
    def status(self) -> Json:
        path = f"/apis/{API_VERSION}/namespaces/{self.team.namespace}/{PLURAL}/{self.name}"
        return dict(self.team.cluster.read(path).get("status") or {})

    @property
    def steps(self) -> int:
        return int(self.status.get("progress", {}).get("environmentSteps", 0))

    def condition(self, kind: str) -> Json:
        """A condition of the status, or an empty dictionary."""
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), {})

    def pods(self) -> dict[str, Json]:
        """Pods by name."""
        path = f"/api/v1/namespaces/{self.team.namespace}/pods"
        found = self.team.cluster.read(path, labelSelector=f"{LABEL_JOB_NAME}={self.name}")
        return {pod["metadata"]["name"]: pod for pod in found["items"]}

    def uids(self) -> dict[str, str]:
        """Pods' UIDs by name."""
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def events(self) -> list[tuple[str, str]]:
        """Reasons and messages."""
        return [(event["reason"], event["message"]) for event in self._raw_events()]

    def event_times(self) -> dict[str, datetime]:
        """When an event of each reason was emitted first."""
        events = sorted(self._raw_events(), key=lambda event: event["firstTimestamp"], reverse=True)
        return {event["reason"]: datetime.fromisoformat(event["firstTimestamp"]) for event in events}

    def _raw_events(self) -> list[Json]:
        selector = f"involvedObject.kind={KIND},involvedObject.name={self.name}"
        path = f"/api/v1/namespaces/{self.team.namespace}/events"
        return list(self.team.cluster.read(path, fieldSelector=selector)["items"])

    def until(self, holds: Callable[[Json], Any], what: str) -> Json:
        """Returns the first status for which a predicate holds."""
        status: Json = {}
        for _ in every(0.3):
            if holds(status := self.status):
                return status
        raise AssertionError(
            f"{self.name}: not {what}, but {json.dumps(status, indent=1)}\n"
            + self.team.kubectl("get", "pods", "-o", "wide")
            + self.team.operator("logs", "-l", "app.kubernetes.io/name=rltraining-operator", "--tail=20")
        )

    def until_phase(self, phase: str) -> Json:
        return self.until(lambda status: status.get("phase") == phase, phase)

    def until_ready(self, learners: str, samplers: str) -> Json:
        """Waits until this many are ready: `1/1`, `2/2`."""

        def ready(status: Json) -> bool:
            summaries = [status.get(role, {}).get("summary") for role in ("learner", "sampler")]
            return summaries == [learners, samplers]

        return self.until(ready, f"{learners} learners and {samplers} samplers")

    def until_steps(self) -> None:
        """Waits until the learner has learnt from more steps than now."""
        now = self.steps
        self.until(lambda _: self.steps > now, f"past {now} steps")

    def until_event(self, reason: str, words: str = "") -> None:
        for _ in every(0.3):
            if any(found == reason and words in message for found, message in self.events()):
                return
        raise AssertionError(f"{self.name}: no event {reason} with {words!r}: {self.events()}")

    def until_gone(self) -> None:
        """Waits until none of the job's objects is left."""
        left: list[str] = []
        for _ in every(1.0):
            selector = f"{LABEL_JOB_NAME}={self.name}"
            left = self.team.kubectl("get", CHILDREN, "-l", selector, "-o", "name").split()
            if not left:
                return
        raise AssertionError(left)

    def patch(self, spec: Json) -> None:
        self.team.kubectl("patch", "rlj", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def delete(self) -> None:
        self.team.kubectl("delete", "rlj", self.name, "--ignore-not-found")

    def kill(self, name: str) -> None:
        """Kills the trainer of a pod from outside, as a node short of memory does: `sampler-0`."""
        self.team.cluster.need_local("it kills a process in a container from outside")
        processes_of(f"{self.name}-{name}")[-1].kill()

    def volume(self) -> Path:
        """The directory of the first learner's volume on this machine."""
        self.team.cluster.need_local("it reads the files of a volume")
        claim = json.loads(self.team.kubectl("get", "pvc", f"{self.name}-checkpoints", "-o", "json"))
        found = json.loads(self.team.kubectl("get", "pv", claim["spec"]["volumeName"], "-o", "json"))
        return Path((found["spec"].get("local") or found["spec"]["hostPath"])["path"])


def processes_of(pod: str) -> list[psutil.Process]:
    """The trainer's processes in a pod, as this machine sees them, the newest last."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(ENV_POD_NAME) == pod:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    assert found, f"no process of pod {pod} is seen on this machine"
    return sorted(found, key=lambda process: process.create_time())


def listening(process: int, address: str) -> set[int]:
    """Ports at an address on which the network namespace of a process listens."""
    found = set()
    for line in Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        host, port = local.split(":")
        if state == "0A" and socket.inet_ntoa(bytes.fromhex(host)[::-1]) == address:
            found.add(int(port, 16))
    return found


@contextmanager
def pause_pod(team: Team, name: str, labels: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """A pod that does nothing. Returns when it runs."""
    security = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pause = programs.directory(team.cluster.places) / "pause"
    container = {
        "name": "pause",
        "image": node_images.pause(pause),
        "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "securityContext": security,
    }
    metadata = {"name": name, "namespace": team.namespace, "labels": dict(labels)}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    try:
        team.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        team.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=100s", seconds=110)
        yield
    finally:
        team.kubectl("delete", "pod", name, "--ignore-not-found")


def every(pause: float, seconds: float = 240) -> Iterator[None]:
    """Yields again and again. The limit is far above what any wait takes, also on a busy machine."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(pause)
