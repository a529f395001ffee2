"""Failures of pods, and the plan's response: recovery, a count, or the end of the job."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from operator_world import LEARNER, SAMPLER_0, SAMPLER_1, World, dedicated, make_world, report, termination
from rltraining_api.contract import ExitCode
from rltraining_api.failure_policy import PodFailurePolicy
from rltraining_operator.failures.ledger import format_ranges, parse_ranges
from rltraining_operator.failures.pod_failure import (
    FailureKind,
    PodFailure,
    classify,
    classify_by_rules,
)
from rltraining_operator.settings import REMAKE_SECONDS, STALL_SECONDS

D, F, P = FailureKind.DISRUPTION, FailureKind.FAILURE, FailureKind.PERMANENT


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.mark.parametrize(
    ("code", "reason", "disrupted", "container", "kind"),
    [
        (137, "Error", False, "trainer", D),
        (143, "Error", False, "trainer", D),
        (137, "OOMKilled", False, "trainer", F),
        (139, "Error", False, "trainer", F),
        (134, "Error", False, "trainer", F),
        (1, "Error", False, "trainer", F),
        (1, "Error", True, "trainer", D),
        (64, "Error", False, "trainer", P),
        (78, "Error", False, "trainer", P),
        (79, "Error", False, "trainer", F),
        (65, "Error", False, "sidecar", F),
        (ExitCode.FOREIGN_BYTES, "Error", False, "trainer", D),
        (ExitCode.FOREIGN_BYTES, "Error", False, "sidecar", F),
        (None, "Evicted", True, "", D),
        (None, "", False, "", D),
    ],
)
def test_the_default_classification(
    code: int | None, reason: str, disrupted: bool, container: str, kind: FailureKind
) -> None:
    assert classify(PodFailure("pod", container, code, reason, disrupted=disrupted)) is kind


SIGNALS = {132: "SIGILL", 134: "SIGABRT", 135: "SIGBUS", 136: "SIGFPE", 137: "SIGKILL", 139: "SIGSEGV"}


@pytest.mark.parametrize(("code", "name"), SIGNALS.items())
def test_a_signal_is_named(code: int, name: str) -> None:
    sentence = PodFailure("p", "trainer", code, "Error").sentence
    assert sentence == f"pod p, container trainer: exit code {code} ({name})"


ON_3 = {"onExitCodes": {"operator": "In", "values": [3, 65]}}
SIDECAR = {"onExitCodes": {"operator": "NotIn", "values": [1], "containerName": "sidecar"}}
TAKEN = {"onPodConditions": [{"type": "DisruptionTarget"}]}


@pytest.mark.parametrize(
    ("rules", "failure", "kind"),
    [
        ([ON_3 | {"action": "Ignore"}], PodFailure("p", "trainer", 3), D),
        ([ON_3 | {"action": "FailJob"}], PodFailure("p", "trainer", 3), P),
        ([ON_3 | {"action": "Ignore"}], PodFailure("p", "trainer", 4), F),
        ([ON_3 | {"action": "Count"}], PodFailure("p", "trainer", 65), F),
        ([ON_3 | {"action": "Ignore"}, ON_3 | {"action": "FailJob"}], PodFailure("p", "trainer", 3), D),
        ([SIDECAR | {"action": "FailJob"}], PodFailure("p", "sidecar", 2), P),
        ([SIDECAR | {"action": "FailJob"}], PodFailure("p", "sidecar", 1), F),
        ([SIDECAR | {"action": "FailJob"}], PodFailure("p", "trainer", 2), F),
        ([SIDECAR | {"action": "FailJob"}], PodFailure("p", "sidecar", 0), F),
        ([TAKEN | {"action": "Count"}], PodFailure("p", conditions={"DisruptionTarget": "True"}), F),
        ([TAKEN | {"action": "Count"}], PodFailure("p", conditions={"DisruptionTarget": "False"}), D),
        ([ON_3 | {"action": "FailJob"}], PodFailure("p"), D),
    ],
)
def test_pod_failure_policy_goes_first(rules: list[object], failure: PodFailure, kind: FailureKind) -> None:
    policy = PodFailurePolicy.model_validate({"rules": rules})
    assert (classify_by_rules(failure, policy) or classify(failure)) is kind


def replaced(world: World) -> World:
    """Replaces the pod with another of the same name, before the operator has observed the first end."""
    world.container(SAMPLER_0).update(restartCount=0, lastState={})
    world.pods[SAMPLER_0]["metadata"]["uid"] = "another"
    return world


def forget_the_end_before(world: World, name: str) -> World:
    """Forgets an earlier end, as a kubelet does, which keeps one ended container of each kind."""
    world.container(name)["lastState"] = {}
    return world


ENDS: dict[str, tuple[list[Callable[[World], World]], tuple[int, int]]] = {
    "restarts in place": ([lambda w: w.crash(SAMPLER_0, 1), lambda w: w.crash(SAMPLER_0, 137)], (1, 1)),
    "an end is seen before its restart": (
        [lambda w: w.die(SAMPLER_0, 1), lambda w: w.back_off(SAMPLER_0), lambda w: w.run(SAMPLER_0)],
        (1, 0),
    ),
    "several ends between two passes": (
        [lambda w: w.crash(SAMPLER_0, 1).crash(SAMPLER_0, 1).crash(SAMPLER_1, 137)],
        (2, 1),
    ),
    "an eviction ends a container": ([lambda w: w.after(60).die(SAMPLER_0, 1).evict(SAMPLER_0)], (0, 1)),
    "a failed pod vanishes before it is replaced": (
        [lambda w: w.after(1).evict(SAMPLER_0), lambda w: w.vanish(SAMPLER_0)],
        (0, 1),
    ),
    "a client deletes a pod, which ends with an error": (
        [lambda w: w.ask_to_end(SAMPLER_0), lambda w: w.die(SAMPLER_0, 1), World.end_deleted],
        (0, 1),
    ),
    "a replacement has the same name": (
        [lambda w: w.crash(SAMPLER_0, 1), lambda w: replaced(w).crash(SAMPLER_0, 1)],
        (2, 0),
    ),
    "the kubelet has removed what ended first": (
        [lambda w: forget_the_end_before(w.crash(SAMPLER_0, 1), SAMPLER_0)],
        (0, 1),
    ),
    "a failed liveness probe ends a trainer that then exits with 0": (
        [lambda w: w.die(SAMPLER_0, 0).run(SAMPLER_0)],
        (0, 1),
    ),
    "a member is restarted, and then ends without a word": (
        [lambda w: w.crash(SAMPLER_0, 1).die(SAMPLER_0, 0).after(60)],
        (2, 0),
    ),
    "the user wanted fewer": (
        [
            lambda w: w.spec(sampler={"replicas": 1}),
            lambda w: w.die(SAMPLER_1, 143),
            World.end_deleted,
        ],
        (0, 0),
    ),
}


@pytest.mark.parametrize(("steps", "counts"), ENDS.values(), ids=ENDS)
def test_each_end_is_counted_once(
    world: World, steps: list[Callable[[World], World]], counts: tuple[int, int]
) -> None:
    world.up()
    for step in (*steps, World.run):
        step(world).settle()
    assert world.counts == counts
    assert (world.status.sampler.restarts, world.status.restarts) == (sum(counts), sum(counts))


def test_restarts_are_counted_of_members_that_are_done_before_an_operator_looks(world: World) -> None:
    """The kubelet then only remembers the container's successful end."""
    world.up()
    for name in (LEARNER, SAMPLER_0, SAMPLER_1):
        done = termination("Completed", "done", report(99, "Finished") if name == LEARNER else None)
        forget_the_end_before(world.crash(name, 137).die(name, 0, "Completed", done), name)
    world.settle()
    assert (world.status.phase, world.status.restarts, world.counts) == ("Succeeded", 3, (0, 3))
    assert (world.status.learner.restarts, world.status.sampler.restarts) == (1, 2)


def test_a_sidecar_that_ends_well_and_is_started_again_is_no_restart(world: World) -> None:
    ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    sidecar = {"name": "proxy", "state": {"running": {}}, "lastState": ended, "restartCount": 7}
    world.up().pods[SAMPLER_0]["status"]["initContainerStatuses"] = [sidecar]
    world.settle()
    assert (world.status.restarts, world.counts) == (0, (0, 0))


def test_an_end_counts_before_its_restart_and_is_the_message_until_then(world: World) -> None:
    world.up().die(SAMPLER_0, 1).settle()
    assert world.counts == (1, 0)
    world.back_off(SAMPLER_0).settle()
    assert world.status.message == f"pod {SAMPLER_0}, container trainer: exit code 1"


def test_equal_ends_between_two_passes_are_one_event(world: World) -> None:
    world.up().crash(SAMPLER_0, 1).crash(SAMPLER_0, 1).settle()
    assert ("MemberFailed", f"pod {SAMPLER_0}, container trainer: exit code 1 (2 times)") in world.events


def test_an_evicted_pod_is_counted_then_replaced(world: World) -> None:
    world.up().after(60).evict(SAMPLER_0)
    made = world.plan()
    assert made.status is not None
    assert (made.status.disruptions, [ref.name for ref in made.delete]) == (1, [SAMPLER_0])
    world.settle()
    assert world.phase(SAMPLER_0) == "Pending"
    assert world.counts == (0, 1)
    assert world.events[-2] == ("PodsDeleted", f"deleted {SAMPLER_0}")


def test_a_pod_that_fails_at_once_is_not_replaced_at_once(world: World) -> None:
    world.settle()
    world.after(1).evict(SAMPLER_0, "OutOfcpu", "Node didn't have enough resource: cpu").settle()
    assert world.phase(SAMPLER_0) == "Failed"
    assert world.status.message == f"pod {SAMPLER_0}: OutOfcpu: Node didn't have enough resource: cpu"
    world.after(REMAKE_SECONDS).settle()
    assert world.phase(SAMPLER_0) == "Pending"
    assert world.counts == (0, 1)


def test_a_vanished_pod_is_a_disruption(world: World) -> None:
    world.up().vanish(SAMPLER_1).settle()
    assert world.phase(SAMPLER_1) == "Pending"
    assert (world.counts, world.status.sampler.restarts) == ((0, 1), 1)
    assert world.events[-2] == ("Disrupted", f"pod {SAMPLER_1}: lost")


def test_a_preempted_pod_is_reported_with_the_condition_that_says_so(world: World) -> None:
    said = "default-scheduler: preempting to accommodate a higher priority pod"
    world.up().evict(SAMPLER_1, reason="", message="")
    (condition,) = world.pods[SAMPLER_1]["status"]["conditions"]
    condition |= {"reason": "PreemptionByScheduler", "message": said}
    world.settle()
    assert ("Disrupted", f"pod {SAMPLER_1}: PreemptionByScheduler: {said}") in world.events
    assert world.counts == (0, 1)


def test_a_pod_wanted_again_while_it_was_to_go_is_known_again(world: World) -> None:
    world.up().spec(sampler={"replicas": 1})
    made = world.plan()
    assert made.status is not None
    world.job["status"] = made.status.to_dict()  # the operator is killed before it deletes the pod
    world.spec(sampler={"replicas": 2}).settle()
    world.vanish(SAMPLER_1).settle()
    assert world.counts == (0, 1)


def test_backoff_limit() -> None:
    world = make_world(runPolicy={"backoffLimit": 1}).up()
    world.crash(SAMPLER_0, 1).settle()
    assert world.status.phase == "Running"
    world.crash(SAMPLER_1, 137, "OOMKilled").settle()
    assert world.condition("FailureTarget") == ("True", "BackoffLimitExceeded")
    world.end_deleted().settle()
    assert world.status.phase == "Failed"
    assert world.status.message == (
        "2 failures are more than runPolicy.backoffLimit 1; "
        f"pod {SAMPLER_1}, container trainer: exit code 137 (OOMKilled)"
    )
    assert world.pods == {}
    assert world.events[-1] == ("BackoffLimitExceeded", world.status.message)


def test_a_limit_lowered_below_what_happened_ends_the_job(world: World) -> None:
    world.up().crash(SAMPLER_0, 1).crash(SAMPLER_0, 1).settle()
    world.spec(runPolicy={"backoffLimit": 1}).settle()
    assert world.condition("FailureTarget") == ("True", "BackoffLimitExceeded")


@pytest.mark.parametrize(
    ("message", "reason", "sentence"),
    [
        (
            termination("UserCodeError", "env raised KeyError"),
            "UserCodeError",
            f"{SAMPLER_0}: env raised KeyError",
        ),
        (termination("no reason!", "odd"), "PermanentFailure", f"{SAMPLER_0}: odd"),
        (
            "Traceback\nKeyError: 1",
            "PermanentFailure",
            f"pod {SAMPLER_0}, container trainer: exit code 65: KeyError: 1",
        ),
        ("", "PermanentFailure", f"pod {SAMPLER_0}, container trainer: exit code 65"),
    ],
)
def test_a_permanent_end_fails_the_job_at_once(
    world: World, message: str, reason: str, sentence: str
) -> None:
    world.up().die(SAMPLER_0, 65, message=message).step()
    assert world.condition("FailureTarget") == ("True", reason)
    assert all("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())
    world.end_deleted().settle()
    assert (world.condition("Failed"), world.status.message) == (("True", reason), sentence)
    assert world.counts == (1, 0)


@pytest.mark.parametrize("sidecar", [False, True])
def test_a_learner_that_ends_with_0_and_says_nothing_has_failed(sidecar: bool) -> None:
    world = make_world(runPolicy={"backoffLimit": 1}).up().after(60)
    sentence = f"pod {LEARNER}, container trainer: exit code 0: it ended before training was over"

    def end() -> None:
        world.die(LEARNER, 0, "Completed")
        if sidecar:
            world.pods[LEARNER]["status"]["phase"] = "Running"
            world.pods[LEARNER]["status"]["containerStatuses"].append(
                {"name": "sidecar", "state": {"running": {}}}
            )
        world.settle()

    end()
    assert (world.status.phase, world.status.message, world.counts) == ("Restarting", sentence, (1, 0))
    assert world.events[-1] == ("MemberFailed", sentence)
    world.after(REMAKE_SECONDS).settle()
    world.end_deleted().settle()
    assert (world.phase(LEARNER), world.counts) == ("Pending", (1, 0))
    world.run().settle()
    assert world.status.phase == "Running"
    end()
    assert world.condition("FailureTarget") == ("True", "BackoffLimitExceeded")
    assert world.status.message == f"2 failures are more than runPolicy.backoffLimit 1; {sentence}"


def test_a_learner_whose_termination_message_is_lost_after_it_has_told_of_the_policy_is_done(
    world: World,
) -> None:
    world.up().after(60).say(report(1000, policyUri="file:///policy")).settle()
    world.die(LEARNER, 0, "Completed").settle()
    assert world.condition("SuccessCriteriaMet") == ("True", "LearnersSucceeded")
    assert world.counts == (0, 0)


@pytest.mark.parametrize("name", [SAMPLER_0, "demo-replay-0"])
def test_another_member_that_ends_with_0_and_says_nothing_has_failed_when_it_is_to_be_replaced(
    name: str,
) -> None:
    one = {"sampler": {"replicas": 1}} | dedicated(1)
    world = make_world(runPolicy={"backoffLimit": 1}, **one).up().after(60)
    sentence = f"pod {name}, container trainer: exit code 0: it ended before training was over"
    world.die(name, 0, "Completed").settle()
    assert (world.status.phase, world.counts) == ("Running", (0, 0))  # training may be over
    world.after(REMAKE_SECONDS).settle()
    assert (world.status.phase, world.counts) == ("Restarting", (1, 0))
    assert ("MemberFailed", sentence) in world.events
    world.run().settle()
    assert (world.status.phase, world.counts) == ("Running", (1, 0))
    world.die(name, 0, "Completed").settle()
    world.after(REMAKE_SECONDS).settle()
    assert world.condition("FailureTarget") == ("True", "BackoffLimitExceeded")
    assert world.status.message == f"2 failures are more than runPolicy.backoffLimit 1; {sentence}"


def test_samplers_whose_termination_message_is_lost_after_the_learner_has_said_why_it_stops_have_not_failed(
    world: World,
) -> None:
    world.up().after(60).die(SAMPLER_0, 0, "Completed").die(SAMPLER_1, 0, "Completed").settle()
    world.after(REMAKE_SECONDS).say(report(1000, stopReason="1000 steps")).settle()
    assert world.counts == (0, 0)


def test_a_fail_job_rule_fails_the_job(world: World) -> None:
    policy = {"rules": [ON_3 | {"action": "FailJob"}]}
    world.spec(runPolicy={"podFailurePolicy": policy}).up().die(LEARNER, 3).settle()
    assert world.condition("FailureTarget") == ("True", "PodFailurePolicy")


def test_restarting_and_back(world: World) -> None:
    world.up().die(LEARNER, 137).settle()
    assert world.status.phase == "Restarting"
    assert world.condition("Restarting") == ("True", "MembersRestart")
    assert world.status.message == f"pod {LEARNER}, container trainer: exit code 137 (SIGKILL)"
    world.run().settle()
    assert (world.status.phase, world.status.message) == ("Running", "")
    assert world.condition("Restarting") == ("False", "Running")


def test_a_learner_that_merely_does_not_answer_is_not_restarting(world: World) -> None:
    world.up().run(LEARNER, ready=False).settle()
    assert (world.status.phase, world.condition("Ready")) == ("Running", ("False", "MembersNotReady"))


def test_a_stall_is_said(world: World) -> None:
    world.up().die(LEARNER, 137).after(STALL_SECONDS - 1).settle()
    assert world.condition("Progressing") == ("True", "Restarting")
    assert world.plan().requeue_after == 1
    world.after(1).settle()
    assert world.condition("Progressing") == ("False", "Stalled")
    assert world.events[-1] == (
        "Stalled",
        f"no progress since 2026-01-01T00:00:00Z: pod {LEARNER}, container trainer: exit code 137 (SIGKILL)",
    )


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([0], "0"), ([3, 0, 1, 2, 7], "0-3,7"), ([1, 3, 4], "1,3-4")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert format_ranges(numbers) == text
    assert parse_ranges(text) == sorted(numbers)


@pytest.mark.parametrize("said", ["[" * 4096, '{"reason":' * 400, '{"report":[' * 370, "\x00<" * 2048])
def test_no_termination_message_stops_the_passes_of_its_job(world: World, said: str) -> None:
    world.up().die(SAMPLER_0, 1, message=said).settle()
    assert world.counts == (1, 0)
