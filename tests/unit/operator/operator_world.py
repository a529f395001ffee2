"""A small faithful world for plans: objects as in an API server, and a kubelet that the test controls."""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rltraining_api.contract import LearnerReport, TerminationMessage
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import read_job
from rltraining_api.names import KIND
from rltraining_api.status import Status
from rltraining_operator.cluster import Ref
from rltraining_operator.observe.admission import AdmissionFailure
from rltraining_operator.observe.mounts import find_mount_failure, first_without_volumes
from rltraining_operator.observe.observed import Observed
from rltraining_operator.plan import Plan, plan
from rltraining_operator.settings import Settings
from rltraining_operator.status.events import action_events

START = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = {
    "algorithm": {"impala": {}},
    "environment": {"id": "CartPole-v1"},
    "sampler": {"replicas": 2},
    "stop": {"environmentSteps": 1000},
}
TOKEN = "ab" * 32
LEARNER, SAMPLER_0, SAMPLER_1 = "demo-learner-0", "demo-sampler-0", "demo-sampler-1"
DEFAULTS = Settings(progress_seconds=5)
UP_FIELDS = ("job", "pods", "others", "events", "writes", "moved", "uids")
"""Fields of a world that bringing up a new job changes."""
_UP: dict[str, bytes] = {}
"""Values of these fields for worlds that were brought up, by job."""


def dedicated(replays: int) -> dict[str, Any]:
    """Returns the parts of a spec that request replay pods."""
    algorithm = {"dqnApex": {"replay": {"placement": "Dedicated"}}}
    return {"algorithm": algorithm, "replay": {"replicas": replays}}


def report(steps: int = 0, state: Any = "Training", **more: Any) -> LearnerReport:
    return LearnerReport.model_validate({"state": state, "progress": {"environmentSteps": steps}} | more)


def termination(reason: str, message: str, said: LearnerReport | None = None) -> str:
    return json.dumps(TerminationMessage(reason=reason, message=message, report=said).to_dict())


@dataclass
class World:
    """One job. Time moves only when `after` is called."""

    job: dict[str, Any]
    now: datetime = START
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    others: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    reports: dict[str, LearnerReport] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    """Reasons and messages."""
    unreachable: bool = False
    """Whether no learner answers the operator."""
    bad_report: str = ""
    """The problem with the learner's answer, if it is not a valid report."""
    awaited: bool = False
    """Whether the operator has just started and has no answer of the learner yet."""
    operators: tuple[str, ...] | None = ()
    """The operators that serve the job, if there are several. None: not known."""
    pod_events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Events by pod, as the kubelet writes them."""
    rejects: Callable[[dict[str, Any]], AdmissionFailure | None] = lambda child: None
    """Returns why the cluster rejects a child, or None if it accepts the child."""
    rejected: list[AdmissionFailure] = field(default_factory=list)
    """Rejections of the last step."""
    writes: int = 0
    """Number of writes of the status."""
    moved: tuple[int, int] = (0, 0)
    """Changes whenever a step has an effect."""
    job_deleted: bool = False
    settings: Settings = DEFAULTS
    uids: int = 0
    """Number of uids given to objects so far."""

    # The operator's side

    def observe(self) -> Observed:
        # marshal copies faster than JSON. The content has already been through JSON.
        job, raw = marshal.loads(marshal.dumps([self.job, [*self.pods.values(), *self.others.values()]]))
        observed = Observed.of(job, raw, TOKEN)
        stuck = first_without_volumes(observed.pods, self.now)
        failure = stuck and find_mount_failure(stuck, self.pod_events.get(stuck.name, ()))
        observed = replace(observed, mount_failure=failure, operators=self.operators)
        first = observed.first_learner
        if first is None or self.unreachable or self.awaited:
            return replace(observed, awaited=self.awaited)
        if self.bad_report:
            return replace(observed, bad_report=self.bad_report)
        starting = report(0, "Starting") if first.running else None
        said = self.reports.get(first.name, starting)
        # A learner that answers writes the time into its report.
        return replace(observed, report=said and said.model_copy(update={"time": said.time or self.now}))

    def plan(self, rejection: AdmissionFailure | None = None) -> Plan:
        observed = replace(self.observe(), rejection=rejection)
        assert observed.job is not None
        return plan(observed.job, observed, self.now, self.settings)

    def step(self) -> Plan:
        """Makes a plan and executes it."""
        made = self.plan()
        self.write(made)
        for ref in made.delete:
            self.delete(ref)
        self.rejected, created = self.make(made)
        going = list(made.delete)
        if self.rejected:
            again = self.plan(self.rejected[0])
            self.write(again)
            for ref in again.delete:
                self.delete(ref)
            going += again.delete
        deleted = [ref.name for ref in going if ref.kind == "Pod"]
        self.events += [(event.reason, event.message) for event in action_events(created, deleted)]
        self.moved = len(self.events) + self.writes, len(self.others)
        return made

    def write(self, made: Plan) -> None:
        """Writes the events and the status of a plan."""
        self.events += [(event.reason, event.message) for event in made.events]
        if made.status is not None:
            self.job["status"] = _as_told(made.status.to_dict())
            self.writes += 1

    def make(self, made: Plan) -> tuple[list[AdmissionFailure], list[str]]:
        """Creates the plan's children that the cluster accepts. After a rejection creates no further pods, unless it
        has created a sampler."""
        rejected: list[AdmissionFailure] = []
        created: list[str] = []
        for child in (*made.apply, *made.create):
            is_pod = child["kind"] == "Pod"
            if is_pod and rejected and not any("sampler" in name for name in created):
                break
            if (rejection := self.rejects(child)) is not None:
                rejected.append(replace(rejection, name=child["metadata"]["name"]))
                continue
            self._create(child)
            created += [child["metadata"]["name"]] if is_pod else []
        return rejected, created

    def delete(self, ref: Ref) -> None:
        if ref.kind == KIND:
            self.job_deleted = True
        elif ref.kind != "Pod":
            assert self.others.pop((ref.kind, ref.name))["metadata"]["uid"] == ref.uid
        elif ref.grace_seconds == 0:
            self.pods.pop(ref.name)
        else:
            assert self.pods[ref.name]["metadata"]["uid"] == ref.uid
            self.ask_to_end(ref.name)

    def settle(self) -> World:
        """Steps until nothing is left to do except rejected children."""
        for _ in range(6):
            before = self.moved
            made = self.step()
            if made.empty or self.job_deleted or (self.rejected and self.moved == before):
                return self
        raise AssertionError(f"no fixed point: {made}")

    # The users', the cluster's and the kubelet's side

    def after(self, seconds: float) -> World:
        self.now += timedelta(seconds=seconds)
        return self

    def spec(self, **changes: Any) -> World:
        self.job["spec"] = self.job["spec"] | changes
        self.job["metadata"]["generation"] += 1
        return self

    def ask_to_end(self, name: str) -> World:
        """Deletes the pod as a user would. A pod that has ended is removed immediately."""
        if self.phase(name) in ("Succeeded", "Failed"):
            del self.pods[name]
        else:
            by = self.now + timedelta(seconds=30)
            self.pods[name]["metadata"].setdefault("deletionTimestamp", by.isoformat())
        return self

    def end_deleted(self) -> World:
        """Removes the pods that are marked as deleted."""
        gone = [name for name, pod in self.pods.items() if "deletionTimestamp" in pod["metadata"]]
        for name in gone:
            self.vanish(name)
        return self

    def vanish(self, name: str) -> World:
        del self.pods[name]
        self.reports.pop(name, None)
        return self

    def run(self, *names: str, ready: bool = True) -> World:
        """Runs the container of each named pod, or of all pods."""
        for name in names or tuple(self.pods):
            container = self.container(name)
            if "running" not in container["state"]:
                if "terminated" in container["state"] or "terminated" in container["lastState"]:
                    container["restartCount"] += 1
                    container["lastState"] = container["lastState"] | (
                        container["state"] if "terminated" in container["state"] else {}
                    )
                container["state"] = {"running": {"startedAt": self.now.isoformat()}}
            scheduled = _condition("PodScheduled", True) | {"lastTransitionTime": self.now.isoformat()}
            conditions = [scheduled, _condition("Ready", ready)]
            self.pods[name]["status"] |= {"phase": "Running", "conditions": conditions}
        return self

    def up(self) -> World:
        """Brings the job up. Caches the result for each new job, because hundreds of tests start so."""
        new = (self.now, self.writes, self.pods, self.others) == (START, 0, {}, {})
        if not new or self.rejects is not World.rejects or self.settings != DEFAULTS:
            return self._bring_up()
        key = json.dumps(self.job, sort_keys=True)
        if key not in _UP:
            self._bring_up()
            _UP[key] = marshal.dumps([getattr(self, name) for name in UP_FIELDS])
            return self
        for name, value in zip(UP_FIELDS, marshal.loads(_UP[key]), strict=True):
            setattr(self, name, value)
        return self

    def _bring_up(self) -> World:
        return self.settle().run().settle()

    def die(self, name: str, code: int, reason: str = "Error", message: str = "") -> World:
        """Ends the container. A restart follows if the restart policy allows it."""
        container = self.container(name)
        container["state"] = {
            "terminated": {
                "exitCode": code,
                "reason": reason,
                "message": message,
                "finishedAt": self.now.isoformat(),
            }
        }
        status = self.pods[name]["status"]
        status["conditions"] = [_condition("Ready", False)]
        if code == 0:
            status["phase"] = "Succeeded"
        self.reports.pop(name, None)
        return self

    def back_off(self, name: str) -> World:
        container = self.container(name)
        container["lastState"] = container["state"]
        container["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
        return self

    def crash(self, name: str, code: int, reason: str = "Error", message: str = "") -> World:
        """Ends the container and restarts it in place."""
        return self.die(name, code, reason, message).run(name)

    def evict(self, name: str, reason: str = "Evicted", message: str = "node is low on memory") -> World:
        self.pods[name]["status"] |= {"phase": "Failed", "reason": reason, "message": message}
        self.pods[name]["status"]["conditions"] = [_condition("DisruptionTarget", True)]
        return self

    def wait_for(self, name: str, reason: str, message: str = "") -> World:
        self.container(name)["state"] = {"waiting": {"reason": reason, "message": message}}
        return self

    def cannot_schedule(self, name: str, message: str = "", reason: str = "Unschedulable") -> World:
        since = {"reason": reason, "message": message, "lastTransitionTime": self.now.isoformat()}
        self.pods[name]["status"]["conditions"] = [_condition("PodScheduled", False) | since]
        return self

    def schedule(self, *names: str, **more: str) -> World:
        """Gives pods a node, and the other conditions: `PodReadyToStartContainers="True"`."""
        bound = _condition("PodScheduled", True) | {"lastTransitionTime": self.now.isoformat()}
        for name in names:
            others = [{"type": kind, "status": status} for kind, status in more.items()]
            self.pods[name]["status"]["conditions"] = [bound, *others]
        return self

    def event_of(self, name: str, reason: str, message: str, **more: Any) -> World:
        """Adds an event of a pod that occurs now."""
        event = {"metadata": {}, "reason": reason, "message": message, "lastTimestamp": self.now.isoformat()}
        self.pod_events.setdefault(name, []).append(event | more)
        return self

    def say(self, said: LearnerReport) -> World:
        self.reports[LEARNER] = said
        return self

    # Views for tests

    @property
    def parsed(self) -> RLTrainingJob:
        return read_job(self.job)

    @property
    def status(self) -> Status:
        return self.parsed.status

    def condition(self, kind: str) -> tuple[str, str] | None:
        """Returns the status and reason of a condition."""
        return next(((c.status, c.reason) for c in self.status.conditions if c.type == kind), None)

    def phase(self, name: str) -> str:
        return str(self.pods[name]["status"]["phase"])

    def container(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.pods[name]["status"]["containerStatuses"][0]
        return found

    @property
    def counts(self) -> tuple[int, int]:
        """Returns the numbers of failures and disruptions."""
        return self.status.failures, self.status.disruptions

    def _create(self, child: Any) -> None:
        made = _as_told(child)
        name = made["metadata"]["name"]
        made["metadata"] |= {"uid": f"uid-{self.uids}", "creationTimestamp": self.now.isoformat()}
        self.uids += 1
        if made["kind"] != "Pod":
            fill_in_defaults(made)
            self.others[made["kind"], name] = made
            return
        assert name not in self.pods, f"two pods {name}"
        waiting = {"state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}, "restartCount": 0}
        made["status"] = {"phase": "Pending", "containerStatuses": [{"name": "trainer"} | waiting]}
        self.pods[name] = made


def fill_in_defaults(made: dict[str, Any]) -> None:
    """Adds the fields that an API server or a controller adds to an object."""
    spec = made.get("spec") or {}
    match made["kind"]:
        case "Service":
            spec |= {"clusterIPs": ["None"], "sessionAffinity": "None", "type": "ClusterIP"}
            for port in spec["ports"]:
                port |= {"protocol": "TCP", "targetPort": port["port"]}
        case "NetworkPolicy":
            for rule in spec["ingress"]:
                for port in rule.get("ports", ()):
                    port.setdefault("protocol", "TCP")
        case "PodDisruptionBudget":
            made["status"] = {"currentHealthy": 1, "disruptionsAllowed": 0}
        case "PodGroup":
            spec.setdefault("queue", "default")
        case "PersistentVolumeClaim":
            spec |= {"volumeMode": "Filesystem"}
            made["status"] = {"phase": "Bound"}


def _as_told(value: Any) -> Any:
    """Returns a copy as the API server decodes it, which contains only JSON types."""
    return json.loads(json.dumps(value))


def _condition(kind: str, holds: bool) -> dict[str, str]:
    return {"type": kind, "status": str(holds)}


def make_world(**spec: Any) -> World:
    metadata = {"name": "demo", "namespace": "default", "uid": "job-uid", "generation": 1}
    header = {"apiVersion": "rltraining.dev/v1alpha1", "kind": KIND, "metadata": metadata}
    return World(header | {"spec": _as_told(SPEC) | spec, "status": {}})
