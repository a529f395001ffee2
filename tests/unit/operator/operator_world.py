"""A small faithful world for plans: objects as an API server holds them, and a kubelet that does what a test says."""

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
from rltraining_operator.observed import Observed
from rltraining_operator.plan import Plan, plan
from rltraining_operator.refusals import Refusal
from rltraining_operator.settings import Settings
from rltraining_operator.story import tell_made

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
"""What bringing a new job up changes in a world."""
_UP: dict[str, bytes] = {}
"""These fields of the worlds that were brought up, by their jobs."""


def dedicated(replays: int) -> dict[str, Any]:
    """The parts of a spec that ask for replay pods."""
    algorithm = {"dqnApex": {"replay": {"placement": "Dedicated"}}}
    return {"algorithm": algorithm, "replay": {"replicas": replays}}


def report(steps: int = 0, state: Any = "Training", **more: Any) -> LearnerReport:
    return LearnerReport.model_validate({"state": state, "progress": {"environmentSteps": steps}} | more)


def words(reason: str, message: str, said: LearnerReport | None = None) -> str:
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
    """Reason and message."""
    unreachable: bool = False
    """Whether no learner answers the operator."""
    bad_report: str = ""
    """The problem with the learner's answer, if it is not a valid report."""
    awaited: bool = False
    """Whether the operator has just started and has no answer of the learner yet."""
    refuses: Callable[[dict[str, Any]], Refusal | None] = lambda child: None
    """Returns why the cluster rejects a child, or None if it accepts the child."""
    refused: list[Refusal] = field(default_factory=list)
    """In the last step."""
    writes: int = 0
    """Of the status."""
    moved: tuple[int, int] = (0, 0)
    """Changes whenever a step has done something."""
    job_deleted: bool = False
    settings: Settings = DEFAULTS
    uids: int = 0
    """Given to objects so far."""

    # The operator's side.

    def observe(self) -> Observed:
        # A copy, faster than by way of JSON: what is copied has come through JSON.
        job, raw = marshal.loads(marshal.dumps([self.job, [*self.pods.values(), *self.others.values()]]))
        observed = Observed.of(job, raw, TOKEN)
        first = observed.first_learner
        if first is None or self.unreachable or self.awaited:
            return replace(observed, awaited=self.awaited)
        if self.bad_report:
            return replace(observed, bad_report=self.bad_report)
        starting = report(0, "Starting") if first.running else None
        return replace(observed, report=self.reports.get(first.name, starting))

    def plan(self, refusal: Refusal | None = None) -> Plan:
        observed = replace(self.observe(), refusal=refusal)
        assert observed.job is not None
        return plan(observed.job, observed, self.now, self.settings)

    def step(self) -> Plan:
        """Plan, and do what the plan says."""
        made = self.plan()
        self.write(made)
        for ref in made.delete:
            self.delete(ref)
        self.refused, created = self.make(made)
        if self.refused:
            self.write(self.plan(self.refused[0]))
        deleted = [ref.name for ref in made.delete if ref.kind == "Pod"]
        self.events += [(event.reason, event.message) for event in tell_made(created, deleted)]
        self.moved = len(self.events) + self.writes, len(self.others)
        return made

    def write(self, made: Plan) -> None:
        """The events and the status of a plan."""
        self.events += [(event.reason, event.message) for event in made.events]
        if made.status is not None:
            self.job["status"] = _as_told(made.status.to_dict())
            self.writes += 1

    def make(self, made: Plan) -> tuple[list[Refusal], list[str]]:
        """Its children, as far as the cluster takes them; of pods one first, where caution is asked for."""
        refused: list[Refusal] = []
        created: list[str] = []
        for child in (*made.apply, *made.create):
            is_pod = child["kind"] == "Pod"
            if is_pod and refused and (made.cautious or not created):
                break
            if (refusal := self.refuses(child)) is not None:
                refused.append(refusal)
                continue
            self._create(child)
            created += [child["metadata"]["name"]] if is_pod else []
        return refused, created

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

    def settle(self) -> Plan:
        """Step until nothing is left to do, but for what the cluster refuses; returns the last plan."""
        for _ in range(6):
            before = self.moved
            made = self.step()
            if made.empty or self.job_deleted or (self.refused and self.moved == before):
                return made
        raise AssertionError(f"no fixed point: {made}")

    # The users', the cluster's and the kubelet's side.

    def after(self, seconds: float) -> World:
        self.now += timedelta(seconds=seconds)
        return self

    def spec(self, **changes: Any) -> World:
        self.job["spec"] = self.job["spec"] | changes
        self.job["metadata"]["generation"] += 1
        return self

    def ask_to_end(self, name: str) -> World:
        """Somebody deletes the pod: one that has ended is gone at once."""
        if self.phase(name) in ("Succeeded", "Failed"):
            del self.pods[name]
        else:
            by = self.now + timedelta(seconds=30)
            self.pods[name]["metadata"].setdefault("deletionTimestamp", by.isoformat())
        return self

    def end_deleted(self) -> World:
        """Deleted pods are gone."""
        gone = [name for name, pod in self.pods.items() if "deletionTimestamp" in pod["metadata"]]
        for name in gone:
            self.vanish(name)
        return self

    def vanish(self, name: str) -> World:
        del self.pods[name]
        self.reports.pop(name, None)
        return self

    def run(self, *names: str, ready: bool = True) -> World:
        """The container of each pod (of all pods) runs."""
        for name in names or tuple(self.pods):
            container = self.container(name)
            if "running" not in container["state"]:
                if "terminated" in container["state"] or "terminated" in container["lastState"]:
                    container["restartCount"] += 1
                    container["lastState"] = container["lastState"] | (
                        container["state"] if "terminated" in container["state"] else {}
                    )
                container["state"] = {"running": {"startedAt": self.now.isoformat()}}
            self.pods[name]["status"] |= {"phase": "Running", "conditions": [_condition("Ready", ready)]}
        return self

    def up(self) -> World:
        """The job runs. Computed once for each new job: hundreds of tests begin so."""
        new = (self.now, self.writes, self.pods, self.others) == (START, 0, {}, {})
        if not new or self.refuses is not World.refuses or self.settings != DEFAULTS:
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
        self.settle()
        self.run()
        self.settle()
        return self

    def die(self, name: str, code: int, reason: str = "Error", message: str = "") -> World:
        """The container ends; if it may, it is about to be restarted."""
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
        """The container ends and is restarted in place."""
        return self.die(name, code, reason, message).run(name)

    def evict(self, name: str, reason: str = "Evicted", message: str = "node is low on memory") -> World:
        self.pods[name]["status"] |= {"phase": "Failed", "reason": reason, "message": message}
        self.pods[name]["status"]["conditions"] = [_condition("DisruptionTarget", True)]
        return self

    def wait_for(self, name: str, reason: str, message: str = "") -> World:
        self.container(name)["state"] = {"waiting": {"reason": reason, "message": message}}
        return self

    def cannot_schedule(self, name: str, message: str) -> World:
        self.pods[name]["status"]["conditions"] = [_condition("PodScheduled", False) | {"message": message}]
        return self

    def say(self, said: LearnerReport) -> World:
        self.reports[LEARNER] = said
        return self

    # What tests look at.

    @property
    def parsed(self) -> RLTrainingJob:
        return read_job(self.job)

    @property
    def status(self) -> Status:
        return self.parsed.status

    def condition(self, kind: str) -> tuple[str, str] | None:
        """Status and reason."""
        return next(((c.status, c.reason) for c in self.status.conditions if c.type == kind), None)

    def phase(self, name: str) -> str:
        return str(self.pods[name]["status"]["phase"])

    def container(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.pods[name]["status"]["containerStatuses"][0]
        return found

    @property
    def counts(self) -> tuple[int, int]:
        """Failures and disruptions."""
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
    """What an API server, or a controller, adds to an object that it is given."""
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
    """As the API server has understood it: a copy, which can only hold what JSON can."""
    return json.loads(json.dumps(value))


def _condition(kind: str, holds: bool) -> dict[str, str]:
    return {"type": kind, "status": str(holds)}


def make_world(**spec: Any) -> World:
    metadata = {"name": "demo", "namespace": "default", "uid": "job-uid", "generation": 1}
    header = {"apiVersion": "rltraining.dev/v1alpha1", "kind": KIND, "metadata": metadata}
    return World(header | {"spec": _as_told(SPEC) | spec, "status": {}})
