"""Jobs of a team, as these tests hold them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from rltraining_api.contract import ENV_POD_NAME
from rltraining_api.names import API_VERSION, KIND, LABEL_JOB_NAME

from tests.cluster.api import Cluster

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
"""CartPole at a walking pace: the machine has other things to do meanwhile."""


def example(name: str, **changes: Any) -> Json:
    """The spec of an example with some fields of its own: `sampler={"replicas": 2}`."""
    spec: Json = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())["spec"]
    return spec | changes


@dataclass(frozen=True)
class Team:
    """A namespace with jobs, and the operator that looks after them."""

    cluster: Cluster
    namespace: str
    operator_namespace: str
    release: str

    def submit(self, name: str, spec: Json) -> Job:
        """`kubectl apply` a job."""
        metadata = {"name": name, "namespace": self.namespace}
        self.cluster.apply({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})
        return Job(self, name)

    def code(self, name: str, **modules: str) -> Json:
        """`spec.code` of user code, kept in a ConfigMap."""
        data = {f"{module}.py": text for module, text in modules.items()}
        metadata = {"name": name, "namespace": self.namespace}
        self.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        return {"configMap": {"name": name}}

    def kubectl(self, *arguments: str, seconds: float = 60) -> str:
        """In this namespace."""
        return self.cluster.kubectl("-n", self.namespace, *arguments, seconds=seconds)

    def operator(self, *arguments: str, seconds: float = 60) -> str:
        """kubectl in the operator's namespace."""
        return self.cluster.kubectl("-n", self.operator_namespace, *arguments, seconds=seconds)

    def lease(self) -> Json:
        """The spec of the operator's Lease."""
        return dict(json.loads(self.operator("get", "lease", self.release, "-o", "json"))["spec"])

    def leader(self) -> str:
        """The operator pod that leads; empty when none does."""
        return str(self.lease().get("holderIdentity") or "")


@dataclass(frozen=True)
class Job:
    team: Team
    name: str

    @property
    def status(self) -> Json:
        found = json.loads(self.team.kubectl("get", "rlj", self.name, "-o", "json"))
        return dict(found.get("status") or {})

    @property
    def steps(self) -> int:
        return int(self.status.get("progress", {}).get("environmentSteps", 0))

    def condition(self, kind: str) -> Json:
        """Empty when there is none of this type."""
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), {})

    def pods(self) -> dict[str, Json]:
        """By name."""
        found = self.team.kubectl("get", "pods", "-l", f"{LABEL_JOB_NAME}={self.name}", "-o", "json")
        return {pod["metadata"]["name"]: pod for pod in json.loads(found)["items"]}

    def pod(self, name: str) -> Json:
        """`learner-0`; empty when it is not there."""
        return self.pods().get(f"{self.name}-{name}", {})

    def events(self) -> list[tuple[str, str]]:
        """Reason and message."""
        selector = f"involvedObject.kind={KIND},involvedObject.name={self.name}"
        found = json.loads(self.team.kubectl("get", "events", "--field-selector", selector, "-o", "json"))
        return [(event["reason"], event["message"]) for event in found["items"]]

    def until(self, holds: Callable[[Json], Any], what: str, seconds: float = 90) -> Json:
        """The first status for which something holds."""
        status: Json = {}
        for _ in every(0.3, seconds):
            if holds(status := self.status):
                return status
        raise AssertionError(
            f"{self.name}: not {what} after {seconds:.0f} s, but {json.dumps(status, indent=1)}\n"
            + self.team.kubectl("get", "pods", "-o", "wide")
            + self.team.operator("logs", "-l", "app.kubernetes.io/name=rltraining-operator", "--tail=20")
        )

    def until_phase(self, phase: str, seconds: float = 90) -> Json:
        return self.until(lambda status: status.get("phase") == phase, phase, seconds)

    def until_ready(self, learners: str, samplers: str, seconds: float = 90) -> Json:
        """Until so many are ready: `1/1`, `2/2`."""

        def ready(status: Json) -> bool:
            return [status.get(role, {}).get("summary") for role in ("learner", "sampler")] == [
                learners,
                samplers,
            ]

        return self.until(ready, f"{learners} learners and {samplers} samplers", seconds)

    def until_steps(self, more: int = 1, seconds: float = 60) -> int:
        """Until the learner has learnt from more steps than now."""
        goal = self.steps + more
        self.until(lambda _: self.steps >= goal, f"at {goal} steps", seconds)
        return self.steps

    def patch(self, spec: Json) -> None:
        self.team.kubectl("patch", "rlj", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def delete(self) -> None:
        self.team.kubectl("delete", "rlj", self.name, "--ignore-not-found")

    def kill(self, name: str) -> None:
        """SIGKILL the trainer of a pod from outside, as a node short of memory does: `sampler-0`."""
        self.team.cluster.need_local("its containers' processes are not seen from here")
        processes_of(f"{self.name}-{name}")[-1].kill()

    def left(self) -> list[str]:
        """Children that exist."""
        found = self.team.kubectl("get", CHILDREN, "-l", f"{LABEL_JOB_NAME}={self.name}", "-o", "name")
        return found.split()


def processes_of(pod: str) -> list[psutil.Process]:
    """The trainer's processes in a pod, the newest last. They are seen from outside the container."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(ENV_POD_NAME) == pod:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    assert found, f"no process of pod {pod} is seen on this machine"
    return sorted(found, key=lambda process: process.create_time())


def every(pause: float, seconds: float) -> Iterator[None]:
    """Look again and again for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(pause)
