"""Invariants of the roll-out of `sampler.template`, whatever happens meanwhile.

Only as many samplers as allowed are missing because of it, nothing is counted, and in the end all
samplers have the newest template.
"""

from __future__ import annotations

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from operator_world import World, make_world
from rltraining_operator.observe.observed import Pod
from rltraining_operator.pods.rollout import replaced_at_once
from soak import SOAK

PICK = st.integers(0, 99)


class RollOut(RuleBasedStateMachine):
    """Changes of the template between passes of the operator, and pods that fail and recover."""

    world: World
    failures = 0

    @initialize(samplers=st.sampled_from([1, 2, 3, 20]), older=st.booleans())
    def begin(self, samplers: int, older: bool) -> None:
        """`older`: another operator, without annotations, has created the pods."""
        policy = {"backoffLimit": 1000}
        self.world = make_world(sampler={"replicas": samplers, "template": {}}, runPolicy=policy).up()
        if older:
            for pod in self.world.pods.values():
                pod["metadata"].pop("annotations", None)
            for key in ("updated", "template"):
                del self.world.job["status"]["sampler"][key]
            self.world.settle()

    @rule(level=st.integers(0, 2))
    def the_user_changes_the_template(self, level: int) -> None:
        template = {"spec": {"nodeSelector": {"level": str(level)}}} if level else {}
        self.world.spec(sampler=self.world.job["spec"]["sampler"] | {"template": template})

    @rule(more=st.integers(-1, 1))
    def the_user_scales(self, more: int) -> None:
        sampler = self.world.job["spec"]["sampler"]
        self.world.spec(sampler=sampler | {"replicas": max(1, sampler["replicas"] + more)})

    @rule(pick=PICK)
    def a_sampler_is_not_ready(self, pick: int) -> None:
        if names := self.alive():
            self.world.run(names[pick % len(names)], ready=False)

    @rule(pick=PICK)
    def a_sampler_crashes(self, pick: int) -> None:
        if names := [
            name
            for name in self.alive()
            if "sampler" in name and "running" in self.world.container(name)["state"]
        ]:
            self.world.crash(names[pick % len(names)], 1)
            self.failures += 1
            self.world.step()

    @rule()
    def the_pods_run(self) -> None:
        self.world.run(*self.alive())

    @rule()
    def deleted_pods_go(self) -> None:
        self.world.end_deleted()

    @rule()
    def the_operator_works(self) -> None:
        before = self.ready()
        self.world.settle()
        wanted = set(range(self.world.parsed.spec.sampler.replicas))
        lost = before & wanted - self.ready()
        assert not lost or len(wanted - self.ready()) <= replaced_at_once(len(wanted))
        self.only_failures_are_counted()

    @rule(done=st.integers(0, 4))
    def the_operator_is_killed_at_work(self, done: int) -> None:
        """Executes only the first `done` actions of the plan, in order."""
        made = self.world.plan()
        if made.status is not None and done:
            self.world.job["status"] = json.loads(json.dumps(made.status.to_dict()))
        for ref in made.delete[: max(0, done - 1)]:
            self.world.delete(ref)

    def only_failures_are_counted(self) -> None:
        assert self.world.counts == (self.failures, 0)
        assert self.world.status.restarts == self.failures

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        count = self.world.parsed.spec.sampler.replicas
        for _ in range(-(-count // replaced_at_once(count)) + 2):
            self.the_operator_works()
            self.deleted_pods_go()
            self.the_operator_works()
            self.the_pods_run()
        self.world.settle()
        pods = [pod for pod in self.world.pods.values() if "sampler" in pod["metadata"]["name"]]
        level = self.world.parsed.spec.sampler.template.spec.get("nodeSelector")
        assert [pod["spec"].get("nodeSelector") for pod in pods] == [level] * count
        assert self.world.status.sampler.updated == count
        assert self.world.condition("SamplersUpdated") in (None, ("True", "AllSamplersUpdated"))

    def alive(self) -> list[str]:
        return [pod.name for pod in map(Pod, self.world.pods.values()) if pod.active and not pod.deleting]

    def ready(self) -> set[int]:
        return {pod.index for pod in self.world.observe().role("sampler") if pod.ready}


RollOut.TestCase.settings = settings(max_examples=30 * SOAK, stateful_step_count=20)
TestRollOut = RollOut.TestCase
