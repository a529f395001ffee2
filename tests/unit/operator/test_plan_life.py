"""The life of a job as planned by `plan`: one rule per test."""

from __future__ import annotations

from datetime import timedelta

import pytest
from operator_world import LEARNER, SAMPLER_0, SAMPLER_1, START, World, make_world, report, termination
from rltraining_operator.settings import FINISH_SECONDS, LOST_SECONDS, REMAKE_SECONDS
from rltraining_operator.status.events import action_events


@pytest.fixture
def world() -> World:
    return make_world()


def done(world: World, steps: int = 1000) -> World:
    """Finishes the learner."""
    last = report(steps, "Finished", stopReason="1000 steps are reached", policyUri="file:///policy")
    return world.die(LEARNER, 0, "Completed", termination("Completed", "done", last))


def test_the_first_pass_makes_everything_and_later_ones_nothing(world: World) -> None:
    world.step()
    assert list(world.pods) == [LEARNER, SAMPLER_0, SAMPLER_1]
    assert {kind for kind, _ in world.others} == {"NetworkPolicy", "Service", "ConfigMap", "Secret"}
    assert world.status.start_time == START
    world.settle()
    assert world.step().empty


def test_phases_on_the_way_up(world: World) -> None:
    world.settle()
    assert world.status.phase == "Pending"
    assert world.status.message == f"waiting for pod {LEARNER} and 2 more to be ready"
    world.run(LEARNER, ready=False).settle()
    assert world.status.phase == "Starting"
    world.run(LEARNER).settle()
    assert world.status.phase == "Starting"
    assert world.status.message == f"waiting for pod {SAMPLER_0} and 1 more to be ready"
    world.run(SAMPLER_0).settle()
    assert world.status.phase == "Running"
    assert world.status.message == f"waiting for pod {SAMPLER_1} to be ready"
    assert (world.status.learner.summary, world.status.sampler.summary) == ("1/1", "1/2")
    assert world.condition("Ready") == ("False", "MembersNotReady")
    world.run().settle()
    assert world.condition("Ready") == ("True", "AllMembersReady")
    assert world.status.message == ""
    assert [reason for reason, _ in world.events] == ["PodsCreated", "Running"]


def test_children_are_as_they_should_be_and_a_secret_is_never_replaced(world: World) -> None:
    world.up()
    secret = world.others["Secret", "demo-token-job-uid"]
    del world.others["ConfigMap", "demo-config"]
    world.others["NetworkPolicy", "demo"]["spec"]["podSelector"] = {}
    world.settle()
    assert ("ConfigMap", "demo-config") in world.others
    assert world.others["NetworkPolicy", "demo"]["spec"]["podSelector"]["matchLabels"]
    assert world.others["Secret", "demo-token-job-uid"] is secret


def test_success(world: World) -> None:
    done(world.up())
    world.step()
    assert world.condition("SuccessCriteriaMet") == ("True", "LearnersSucceeded")
    assert (world.condition("Complete"), world.status.phase) == (None, "Running")
    for name in (SAMPLER_0, SAMPLER_1):
        world.die(name, 0, "Completed")
    world.after(1).settle()
    assert world.condition("Complete") == ("True", "LearnersSucceeded")
    status = world.status
    assert (status.phase, status.message) == ("Succeeded", "1000 steps are reached")
    assert (status.progress.environment_steps, status.policy_uri) == (1000, "file:///policy")
    assert status.completion_time == START + timedelta(seconds=1)
    assert world.pods.keys() == {LEARNER, SAMPLER_0, SAMPLER_1}, "ended pods keep their logs"
    assert world.events[-1] == ("Completed", "1000 steps are reached")


@pytest.mark.parametrize(
    "uri", ["http://169.254.169.254/x", "local:///etc", "s3://bucket/policy", "file:///../etc"]
)
def test_a_policy_that_lies_elsewhere_than_the_job_writes_is_not_told(world: World, uri: str) -> None:
    world.up().after(60).say(report(1000, policyUri=uri, evaluation={"bestPolicyUri": uri})).settle()
    assert world.status.progress.environment_steps == 1000
    assert world.status.policy_uri is None
    assert world.status.evaluation is not None
    assert world.status.evaluation.best_policy_uri is None


@pytest.mark.parametrize(
    ("policy", "left"), [("All", set()), ("Running", {LEARNER}), ("None", {LEARNER, SAMPLER_0, SAMPLER_1})]
)
def test_samplers_that_do_not_end_by_themselves_are_ended(policy: str, left: set[str]) -> None:
    world = done(make_world(runPolicy={"cleanPodPolicy": policy}).up()).settle()
    assert world.plan().requeue_after == (None if policy == "None" else FINISH_SECONDS)
    world.after(FINISH_SECONDS).settle()
    assert world.status.phase == ("Succeeded" if policy == "None" else "Running")
    world.end_deleted().settle()
    world.end_deleted().settle()
    assert (world.status.phase, world.pods.keys(), world.counts) == ("Succeeded", left, (0, 0))


def test_a_sampler_that_is_done_too_early_is_made_anew_after_a_while(world: World) -> None:
    world.up().die(SAMPLER_0, 0, "Completed", termination("Completed", "")).settle()
    assert world.plan().requeue_after is not None
    assert SAMPLER_0 in world.pods
    world.after(REMAKE_SECONDS).settle()
    assert world.phase(SAMPLER_0) == "Pending"
    assert world.counts == (0, 0)


def test_a_sampler_that_is_done_stays_away_from_a_learner_that_stops(world: World) -> None:
    """This happens during a last evaluation, which may take longer than the delay."""
    world.up().say(report(1000, "Training", stopReason="1000 steps are reached"))
    world.die(SAMPLER_0, 0, "Completed", termination("Completed", "")).after(REMAKE_SECONDS).settle()
    assert (world.phase(SAMPLER_0), world.status.phase, world.counts) == ("Succeeded", "Running", (0, 0))
    world.say(report(1000, "Training")).settle()
    assert world.phase(SAMPLER_0) == "Pending", "a restarted learner needs it"


def test_a_sampler_that_is_done_stays_away_from_a_learner_that_is_too_busy_to_answer(world: World) -> None:
    """On a machine with too few cores, the learner may take longer than the delay to write its policy."""
    world.up().after(60).unreachable = True
    world.die(SAMPLER_0, 0, "Completed", termination("Completed", "")).after(REMAKE_SECONDS).settle()
    assert (world.phase(SAMPLER_0), world.counts) == ("Succeeded", (0, 0))
    # An answer from before the end of the sampler is no reason to replace it either.
    world.unreachable = False
    world.say(report(1000, "Training", time=START.isoformat())).settle()
    assert (world.phase(SAMPLER_0), world.counts) == ("Succeeded", (0, 0))
    world.after(1).crash(LEARNER, 137).settle()
    assert world.phase(SAMPLER_0) == "Pending", "a restarted learner needs it"


def test_a_learner_that_was_asked_to_end_has_not_succeeded(world: World) -> None:
    world.up().die(LEARNER, 0, "Completed", termination("Completed", "", report(10, "Training"))).settle()
    assert world.status.phase == "Restarting"
    world.after(REMAKE_SECONDS).settle()
    assert world.phase(LEARNER) == "Pending"


def test_a_sidecar_that_goes_on_does_not_keep_a_job_that_is_done(world: World) -> None:
    done(world.up())
    for pod in world.pods.values():
        pod["status"]["phase"] = "Running"
        pod["status"]["containerStatuses"].append({"name": "sidecar", "state": {"running": {}}})
    world.settle()
    assert (world.status.phase, world.condition("SuccessCriteriaMet") is not None) == ("Running", True)
    world.after(FINISH_SECONDS).step()
    world.end_deleted().settle()
    assert (world.status.phase, world.counts) == ("Succeeded", (0, 0))


def test_a_sidecar_that_is_ended_with_its_trainer_is_no_disruption(world: World) -> None:
    done(world.up())
    killed = {"exitCode": 137, "reason": "Error", "finishedAt": world.now.isoformat()}
    sidecar = {"name": "sidecar", "restartCount": 0, "state": {"terminated": killed}}
    world.pods[LEARNER]["status"]["initContainerStatuses"] = [sidecar]
    world.settle()
    world.after(FINISH_SECONDS).step()
    world.end_deleted().settle()
    assert (world.status.phase, world.counts) == ("Succeeded", (0, 0))


def test_suspend_and_resume(world: World) -> None:
    world.up().after(5).spec(runPolicy={"suspend": True}).step()
    assert all("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())
    assert world.condition("Suspended") == ("True", "JobSuspended")
    assert (world.status.phase, world.status.start_time) == ("Suspended", None)
    world.spec(runPolicy={}).settle()
    assert len(world.pods) == 3, "names are free only when the old pods are gone"
    world.spec(runPolicy={"suspend": True}).settle()
    world.end_deleted().settle()
    assert not world.pods
    world.after(5).spec(runPolicy={}).settle()
    assert len(world.pods) == 3
    assert world.condition("Suspended") == ("False", "JobResumed")
    assert (world.status.phase, world.status.start_time) == ("Pending", world.now)
    assert world.counts == (0, 0)


def test_a_job_made_suspended_makes_nothing() -> None:
    world = make_world(runPolicy={"suspend": True}).settle()
    assert (world.pods, world.others) == ({}, {})
    assert (world.status.phase, world.status.start_time) == ("Suspended", None)


def test_deadline_counts_from_the_last_start() -> None:
    world = make_world(runPolicy={"activeDeadlineSeconds": 60}).up().after(59)
    assert world.plan().requeue_after == 1
    world.spec(runPolicy={"activeDeadlineSeconds": 60, "suspend": True}).settle()
    world.end_deleted().after(1000).spec(runPolicy={"activeDeadlineSeconds": 60}).up()
    assert world.status.phase == "Running"
    world.after(60).settle()
    assert world.condition("FailureTarget") == ("True", "DeadlineExceeded")
    world.end_deleted().settle()
    assert world.condition("Failed") == ("True", "DeadlineExceeded")
    assert world.status.phase == "Failed"


@pytest.mark.parametrize("seconds", [0, 100])
def test_the_pass_that_ends_a_job_sees_to_its_being_deleted(seconds: int) -> None:
    """The pass after the end of the last pod requeues the job, as no later event triggers a pass."""
    world = make_world(runPolicy={"ttlSecondsAfterFinished": seconds}).up().die(LEARNER, 64).settle()
    made = world.after(FINISH_SECONDS + 1).end_deleted().step()
    assert (world.status.phase, made.requeue_after) == ("Failed", seconds)


def test_the_first_pass_sees_to_the_deadline() -> None:
    """The operator's own write of the status triggers no further pass."""
    assert make_world(runPolicy={"activeDeadlineSeconds": 60}).plan().requeue_after == 60


def test_ttl_deletes_the_job_itself() -> None:
    world = done(make_world(sampler={"replicas": 1}, runPolicy={"ttlSecondsAfterFinished": 100}).up())
    world.die(SAMPLER_0, 0, "Completed").settle()
    assert world.status.phase == "Succeeded"
    assert world.after(99).plan().requeue_after == 1
    world.after(1).settle()
    assert world.job_deleted


def test_finished_is_final(world: World) -> None:
    done(world.up()).die(SAMPLER_0, 0).die(SAMPLER_1, 0).settle()
    world.spec(runPolicy={"suspend": True}).vanish(LEARNER).vanish(SAMPLER_0).after(1000).settle()
    assert (world.status.phase, world.counts) == ("Succeeded", (0, 0))
    assert world.pods.keys() == {SAMPLER_1}


def test_elastic_samplers(world: World) -> None:
    world.up().spec(sampler={"replicas": 4}).settle()
    assert [name for name in world.pods if "sampler" in name] == [f"demo-sampler-{i}" for i in range(4)]
    world.run().spec(sampler={"replicas": 1}).step()
    assert world.events[-1] == ("PodsDeleted", "deleted demo-sampler-3, demo-sampler-2, demo-sampler-1")
    world.end_deleted().settle()
    assert world.pods.keys() == {LEARNER, SAMPLER_0}
    assert (world.status.sampler.summary, world.counts) == ("1/1", (0, 0))


def test_an_event_names_at_most_five_pods() -> None:
    five = ["p0", "p1", "p2", "p3", "p4"]
    (event,) = action_events(five, [])
    assert event.message == "created p0, p1, p2, p3, p4"
    (event,) = action_events([], [*five, "p5", "p6"])
    assert event.message == "deleted p0, p1, p2, p3, p4 and 2 more"


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}},
        {"metadata": {"deletionTimestamp": START.isoformat()}},
    ],
    ids=["managed by another", "being deleted"],
)
def test_hands_off(world: World, change: dict[str, dict[str, object]]) -> None:
    for part, values in change.items():
        world.job[part] |= values
    assert world.plan().empty


def test_a_pod_on_a_lost_node_is_forced_out(world: World) -> None:
    world.up().ask_to_end(SAMPLER_0).settle()
    assert SAMPLER_0 in world.pods
    world.after(30 + LOST_SECONDS).settle()
    assert world.phase(SAMPLER_0) == "Pending"
    assert world.counts == (0, 1)


def test_children_of_a_deleted_job_of_the_same_name_are_not_ours(world: World) -> None:
    world.settle()
    for pod in world.pods.values():
        pod["metadata"]["ownerReferences"][0]["uid"] = "of another life"
    assert len(world.plan().create) == 3
