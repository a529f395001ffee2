"""Invariants of plans under any change to a job's pods and spec and any interruption of the operator.

Plans converge, no two pods share a name, no end of a pod is lost or counted twice, and a finished
job stays finished.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from operator_world import LEARNER, World, dedicated, make_world, report, termination
from rltraining_api.names import ROLES
from rltraining_operator.failures.ledger import parse_ranges
from rltraining_operator.observe.admission import AdmissionFailure
from rltraining_operator.observe.observed import Pod
from rltraining_operator.plan import plan
from rltraining_operator.settings import DISRUPTIONS_MAX
from soak import SOAK

BACKOFF_LIMIT = 4
DISRUPTIONS = [(137, "Error"), (143, "Error")]
FAILURES = [(1, "Error"), (139, "Error"), (137, "OOMKilled")]
PICK = st.integers(0, 99)
REJECTION = AdmissionFailure("QuotaExceeded", "exceeded quota")


class Life(RuleBasedStateMachine):
    """Random events in the world, with passes of the operator between them, and the true counts."""

    world: World
    failures = 0
    disruptions = 0
    permanent = False
    learner_done = False
    calm = 0

    @initialize(
        learners=st.integers(1, 2),
        replays=st.integers(0, 2),
        samplers=st.integers(1, 3),
        clean=st.sampled_from(["All", "Running", "None"]),
        calm=st.integers(0, 8),
    )
    def begin(self, learners: int, replays: int, samplers: int, clean: str, calm: int) -> None:
        self.policy: dict[str, Any] = {
            "backoffLimit": BACKOFF_LIMIT,
            "cleanPodPolicy": clean,
            "learnerEviction": "Refuse",
        }
        roles = {"learner": {"replicas": learners}, "sampler": {"replicas": samplers}}
        self.world = make_world(runPolicy=self.policy, **roles, **(dedicated(replays) if replays else {}))
        self.touched: set[str] = set()
        """Pods with an event since the last pass. A second event could hide the first."""
        self.streaks: dict[str, int] = {}
        """Disruptions by pod: an upper bound of the pod's disruptions in a row without progress."""
        self.silent: set[str] = set()
        """Pods that have exited with code 0 and without a report."""
        self.last_phase = ""
        self.calm = calm
        """Passes before any event that ends the job."""
        self.world.up()

    # Observations of a pass

    @rule(
        pick=PICK, how=st.sampled_from([*DISRUPTIONS, *FAILURES]), then=st.sampled_from(["", "wait", "run"])
    )
    def a_container_dies(self, pick: int, how: tuple[int, str], then: str) -> None:
        if name := self.pick(pick, self.running()):
            self.world.die(name, *how)
            self.count(name, how in FAILURES)
            if then == "wait":
                self.world.back_off(name)
            if then == "run":
                self.world.run(name)

    @precondition(lambda self: not self.calm)
    @rule(pick=PICK)
    def a_container_dies_for_good(self, pick: int) -> None:
        if name := self.pick(pick, self.running()):
            self.world.die(name, 65)
            self.count(name, True)
            self.permanent |= self.open

    @rule(pick=PICK)
    def a_container_backs_off(self, pick: int) -> None:
        dead = [
            n for n in self.alive() if self.world.container(n)["state"].get("terminated", {}).get("exitCode")
        ]
        if dead:
            self.world.back_off(dead[pick % len(dead)])

    def containers_run(self) -> None:
        for name in self.alive():
            self.world.run(name)

    @rule(pick=PICK)
    def a_pod_is_evicted(self, pick: int) -> None:
        if name := self.pick(pick, self.alive()):
            self.world.evict(name)
            self.count(name, False)

    @rule(pick=PICK)
    def a_pod_waits_for_a_node(self, pick: int) -> None:
        waiting = [name for name in self.alive() if "waiting" in self.world.container(name)["state"]]
        if name := self.pick(pick, waiting):
            self.world.cannot_schedule(name)

    @rule(pick=PICK)
    def a_pod_vanishes(self, pick: int) -> None:
        if name := self.pick(pick, list(self.world.pods)):
            if self.is_member(name):
                self.count(name, False)
            self.world.vanish(name)

    @rule(pick=PICK)
    def somebody_deletes_a_pod(self, pick: int) -> None:
        if name := self.pick(pick, list(self.world.pods)):
            if self.is_member(name):
                self.count(name, False)
            self.world.ask_to_end(name)

    @rule()
    def deleted_pods_go(self) -> None:
        self.world.end_deleted()

    @rule(pick=PICK)
    def another_member_is_done(self, pick: int) -> None:
        if name := self.pick(pick, [name for name in self.running() if name != LEARNER]):
            self.world.die(name, 0, "Completed", termination("Completed", "done"))

    @rule(pick=PICK)
    def a_learner_ends_and_says_nothing(self, pick: int) -> None:
        if name := self.pick(pick, [name for name in self.running() if "learner" in name]):
            self.world.die(name, 0, "Completed")
            self.silent.add(self.world.pods[name]["metadata"]["uid"])
            self.count(name, True)

    @precondition(lambda self: not self.calm and LEARNER in self.running() and LEARNER not in self.touched)
    @rule()
    def the_learner_is_done(self) -> None:
        self.touched.add(LEARNER)
        self.world.die(LEARNER, 0, "Completed", termination("Completed", "done", report(99, "Finished")))
        self.learner_done |= self.open

    @rule(
        steps=st.integers(0, 50),
        state=st.sampled_from(["Starting", "Waiting", "Training"]),
        wait=st.sampled_from([None, 0.0, 10.0, 60.0]),
    )
    def the_learner_says(self, steps: int, state: str, wait: float | None) -> None:
        if LEARNER in self.running():
            progress = {"environmentSteps": steps, "updates": steps, "learnerWaitPercent": wait}
            self.world.after(5).say(report(steps, state, progress=progress))

    @rule(suspend=st.booleans())
    def the_user_suspends_or_resumes(self, suspend: bool) -> None:
        self.world.spec(runPolicy=self.policy | {"suspend": suspend})

    @rule(samplers=st.integers(1, 4), autoscale=st.sampled_from([{}, {"max": 4}, {"min": 2, "max": 3}]))
    def the_user_scales(self, samplers: int, autoscale: dict[str, int]) -> None:
        follows = {"autoscale": autoscale} if autoscale else {}
        template = self.world.job["spec"]["sampler"].get("template", {})
        self.world.spec(sampler={"replicas": samplers, "template": template} | follows)

    @rule(level=st.integers(0, 2))
    def the_user_changes_the_template_of_samplers(self, level: int) -> None:
        template = {"spec": {"nodeSelector": {"level": str(level)}}} if level else {}
        self.world.spec(sampler=self.world.job["spec"]["sampler"] | {"template": template})

    @rule(seconds=st.sampled_from([0.1, 5, 11, 100, 1000]))
    def time_passes(self, seconds: float) -> None:
        self.world.after(seconds)

    @rule(what=st.sampled_from(["", "Pod", "Service", "NetworkPolicy", "PodDisruptionBudget"]))
    def the_cluster_begins_to_refuse(self, what: str) -> None:
        """Rejects objects of a kind; an empty kind rejects nothing."""
        self.world.rejects = lambda child: REJECTION if child["kind"] == what else None

    @rule(pick=PICK)
    def somebody_deletes_another_child(self, pick: int) -> None:
        if names := sorted(self.world.others):
            del self.world.others[names[pick % len(names)]]

    @rule(pick=PICK)
    def somebody_changes_another_child(self, pick: int) -> None:
        found = [
            child for child in self.world.others.values() if child["kind"] in ("NetworkPolicy", "Service")
        ]
        if found:
            found[pick % len(found)]["spec"]["podSelector"] = {}

    # Passes

    @rule(run=st.booleans())
    def the_operator_works(self, run: bool) -> None:
        self.a_plan_is_a_function_of_its_arguments()
        before = self.world.status
        self.world.settle()
        self.every_child_is_as_it_should_be()
        writes, made = self.world.writes, self.world.step()
        assert self.world.writes == writes, f"the status is written again and again: {made.status}"
        self.touched.clear()
        self.calm = max(0, self.calm - 1)
        if run:
            self.containers_run()
        status = self.world.status
        assert status.failures + status.disruptions == self.failures + self.disruptions
        if max(self.streaks.values(), default=0) <= DISRUPTIONS_MAX:
            assert (status.failures, status.disruptions) == (self.failures, self.disruptions)
        else:
            self.failures, self.disruptions = status.failures, status.disruptions
        assert status.restarts == self.failures + self.disruptions
        assert status.restarts == sum(status.of_role(role).restarts for role in ROLES)
        if self.failures > BACKOFF_LIMIT or self.permanent or self.learner_done:
            assert self.is_decided
        if status.progress.environment_steps < before.progress.environment_steps:
            assert self.world.reports[LEARNER].state != "Starting"

    @rule(done=st.integers(0, 6))
    def the_operator_is_killed_at_work(self, done: int) -> None:
        """Executes only the first `done` actions of the plan, in order."""
        made = self.world.plan()
        if made.status is not None and done:
            self.world.job["status"] = json.loads(json.dumps(made.status.to_dict()))
            self.touched.clear()
        for ref in made.delete[: max(0, done - 1)]:
            self.world.delete(ref)
        for child in (*made.apply, *made.create)[: max(0, done - 1 - len(made.delete))]:
            self.world._create(child)

    def a_plan_is_a_function_of_its_arguments(self) -> None:
        observed, now, options = self.world.observe(), self.world.now, self.world.settings
        assert observed.job is not None
        made = plan(observed.job, observed, now, options)
        assert plan(observed.job, observed, now, options) == made
        assert plan(observed.job, self.world.observe(), now, options) == made

    @invariant()
    def what_is_finished_stays_finished(self) -> None:
        if getattr(self, "last_phase", "") in ("Succeeded", "Failed"):
            assert self.world.status.phase == self.last_phase
        if hasattr(self, "world"):
            self.last_phase = self.world.status.phase

    def every_child_is_as_it_should_be(self) -> None:
        """Rejections are reported exactly while they hold. A drain is blocked while the job runs."""
        rejected = self.world.rejected != []
        assert (self.world.condition("ReplicaFailure") or ("False",))[0] == str(rejected)
        budget = ("PodDisruptionBudget", "demo-learner") in self.world.others
        if not self.open:
            assert not any(kind == "PodDisruptionBudget" for kind, _ in self.world.others)
        elif not rejected and not self.world.parsed.spec.run_policy.suspend:
            assert budget or not any(pod.ready for pod in self.world.observe().role("learner"))
            assert self.world.others["NetworkPolicy", "demo"]["spec"]["podSelector"]["matchLabels"]

    # Helpers

    def alive(self) -> list[str]:
        pods = map(Pod, self.world.pods.values())
        return [pod.name for pod in pods if pod.active and not pod.deleting]

    def running(self) -> list[str]:
        return [name for name in self.alive() if "running" in self.world.container(name)["state"]]

    def pick(self, number: int, names: list[str]) -> str | None:
        names = [name for name in names if name not in self.touched]
        if not names:
            return None
        self.touched.add(name := names[number % len(names)])
        return name

    def is_member(self, name: str) -> bool:
        """Returns whether the status counts the pod as a member and has not counted its end."""
        pod, status = Pod(self.world.pods[name]), self.world.status
        members = parse_ranges(status.of_role(pod.role).indices)
        failed = pod.failed or pod.uid in self.silent
        return not pod.deleting and not failed and pod.index in members

    @property
    def is_decided(self) -> bool:
        met = (self.world.condition("SuccessCriteriaMet"), self.world.condition("FailureTarget"))
        return any(condition is not None for condition in met)

    @property
    def open(self) -> bool:
        """Returns whether failures still count, which ends when the outcome is decided."""
        return not self.is_decided

    def count(self, name: str, failure: bool) -> None:
        if self.open:
            self.streaks[name] = self.streaks.get(name, 0) + (not failure)
            self.failures += failure
            self.disruptions += not failure


Life.TestCase.settings = settings(
    max_examples=30 * SOAK,
    stateful_step_count=40,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
TestLife = Life.TestCase
