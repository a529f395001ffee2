"""Why a job does not run: in a condition, the message and an event, within one pass, each exactly once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from operator_world import LEARNER, SAMPLER_0, World, make_world, report, termination
from rltraining_operator.errors import NameTakenError, RejectedError
from rltraining_operator.observe.admission import AdmissionFailure, parse_admission_failure
from rltraining_operator.observe.answers import TOKEN_REJECTED
from rltraining_operator.settings import STALL_SECONDS, START_SECONDS, UNREACHABLE_SECONDS

MEMORY = "0/3 nodes are available: 3 Insufficient memory."
UNBOUND = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
GATES = "Scheduling is blocked due to non-empty scheduling gates"
PULL = 'Back-off pulling image "nowhere/x": ErrImagePull: not found'


def unscheduled(message: str, reason: str = "Unschedulable") -> Callable[[World], Any]:
    def happen(world: World) -> None:
        world.cannot_schedule(LEARNER, message)
        world.pods[LEARNER]["status"]["conditions"][0]["reason"] = reason

    return happen


def waits(reason: str, message: str = "") -> Callable[[World], Any]:
    return lambda world: world.wait_for(LEARNER, reason, message)


def init_waits(world: World) -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": PULL}}
    world.pods[LEARNER]["status"]["initContainerStatuses"] = [{"name": "fetch", "state": waiting}]


TRAINER = f"pod {LEARNER}, container trainer"


@pytest.mark.parametrize(
    ("happen", "reason", "sentence"),
    [
        (unscheduled(MEMORY), "Unschedulable", f"pod {LEARNER} cannot be scheduled: {MEMORY}"),
        (unscheduled(UNBOUND), "ClaimUnbound", f"pod {LEARNER} cannot be scheduled: {UNBOUND}"),
        (
            unscheduled(GATES, "SchedulingGated"),
            "SchedulingGated",
            f"pod {LEARNER} waits for a queue to admit it: {GATES}",
        ),
        (waits("ErrImagePull", "denied"), "ImagePullFailed", f"{TRAINER}: ErrImagePull: denied"),
        (waits("ImagePullBackOff", PULL), "ImagePullFailed", f"{TRAINER}: ImagePullBackOff: {PULL}"),
        (waits("InvalidImageName"), "ImagePullFailed", f"{TRAINER}: InvalidImageName"),
        (
            waits("CreateContainerConfigError", 'configmap "mine" not found'),
            "ContainerConfigFailed",
            f'{TRAINER}: CreateContainerConfigError: configmap "mine" not found',
        ),
        (
            waits("CreateContainerError", "no such runtime"),
            "ContainerStartFailed",
            f"{TRAINER}: CreateContainerError: no such runtime",
        ),
        (init_waits, "ImagePullFailed", f"pod {LEARNER}, container fetch: ImagePullBackOff: {PULL}"),
    ],
)
def test_what_keeps_a_pod_from_starting(happen: Callable[[World], Any], reason: str, sentence: str) -> None:
    world = make_world().settle()
    world.events.clear()
    happen(world)
    world.step()
    assert (world.condition("Ready"), world.status.message) == (("False", reason), sentence)
    assert world.events == [(reason, sentence)]
    world.after(10).settle()
    assert len(world.events) == 1, "reported once, not at each pass"
    ready = next(condition for condition in world.status.conditions if condition.type == "Ready")
    assert ready.message == f"0/1 learners and 0/2 samplers are ready: {sentence}"


@pytest.mark.parametrize(
    ("code", "how", "message", "reason", "event", "sentence"),
    [
        (137, "OOMKilled", "", "OOMKilled", "OOMKilled", "exit code 137 (OOMKilled)"),
        (137, "Error", "", "Disrupted", "Disrupted", "exit code 137 (SIGKILL)"),
        (139, "Error", "", "ContainerFailed", "MemberFailed", "exit code 139 (SIGSEGV)"),
        (1, "Error", "Tr\nKeyError: 'x'\n", "ContainerFailed", "MemberFailed", "exit code 1: KeyError: 'x'"),
        (1, "Error", termination("EnvCrashed", "boom"), "EnvCrashed", "MemberFailed", "exit code 1: boom"),
    ],
)
def test_what_ended_a_container(
    code: int, how: str, message: str, reason: str, event: str, sentence: str
) -> None:
    world = make_world().up()
    world.events.clear()
    world.die(SAMPLER_0, code, how, message).step()
    failure = f"pod {SAMPLER_0}, container trainer: {sentence}"
    assert (world.condition("Ready"), world.status.message) == (("False", reason), failure)
    assert world.events == [(event, failure)]


@pytest.mark.parametrize(
    ("why", "reason", "sentence"),
    [
        ("Evicted", "Evicted", "Evicted"),
        ("", "PodLost", "lost"),
        ("It is lost", "PodLost", "It is lost"),  # a reason is one word
    ],
)
def test_what_ended_a_pod_as_a_whole(why: str, reason: str, sentence: str) -> None:
    world = make_world().up()
    world.evict(SAMPLER_0, reason=why, message="").settle()
    failure = f"pod {SAMPLER_0}: {sentence}"
    assert (world.condition("Ready"), world.status.message) == (("False", reason), failure)


def test_a_pod_that_somebody_deletes_is_reported_as_deleted() -> None:
    world = make_world().up().ask_to_end(SAMPLER_0).settle()
    assert world.events[-1] == ("Disrupted", f"pod {SAMPLER_0}: deleted by another client")
    world.vanish(SAMPLER_0).settle()
    assert world.counts == (0, 1)


def test_a_claim_that_is_not_bound_is_named_with_its_storage_class() -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}
    world = make_world(checkpoint={"volume": {"claimTemplate": {"spec": spec}}}).settle()
    world.others["PersistentVolumeClaim", "demo-checkpoints"]["status"] = {"phase": "Pending"}
    unscheduled(UNBOUND)(world)
    world.settle()
    assert world.status.message.endswith("(claim demo-checkpoints is Pending: storage class fast)")


@pytest.mark.parametrize(
    ("sandbox", "cause"),
    [
        ("", "its image is still being pulled, or a volume cannot be mounted"),
        ("False", "its image is still being pulled, or its volumes or its network cannot be set up"),
        ("True", "its image is still being pulled"),
    ],
)
def test_a_pod_that_has_a_node_and_no_container_for_long(sandbox: str, cause: str) -> None:
    world = make_world().settle()
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": world.now.isoformat()},
        *([{"type": "PodReadyToStartContainers", "status": sandbox}] if sandbox else []),
    ]
    world.pods[LEARNER]["status"]["conditions"] = conditions
    world.after(START_SECONDS - 1).settle()
    assert world.condition("Ready") == ("False", "MembersNotReady")
    assert world.plan().requeue_after == 1
    world.after(1).settle()
    assert world.condition("Ready") == ("False", "StartDelayed")
    assert world.status.message == (
        f"pod {LEARNER} has had a node for 60 s and no container: {cause}; see: kubectl describe pod {LEARNER}"
    )
    writes = world.writes
    world.after(60).settle()
    assert world.writes == writes, "the sentence does not change with time"


def test_on_one_machine_a_process_that_starts_slowly_is_no_matter_of_a_cluster() -> None:
    world = make_world()
    world.settings = replace(world.settings, one_machine=True)
    world.settle()
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": world.now.isoformat()}
    world.pods[LEARNER]["status"]["conditions"] = [scheduled]
    world.after(START_SECONDS).settle()
    assert world.condition("Ready") == ("False", "StartDelayed")
    assert "loading torch takes longer than usual" in world.status.message
    assert not any(word in world.status.message for word in ("image", "kubectl", "volume", "node"))


def test_a_learner_that_does_not_answer_is_said_to_be_unreachable() -> None:
    world = make_world().up().say(report(5)).settle()
    world.unreachable = True
    world.after(UNREACHABLE_SECONDS - 1).settle()
    assert world.condition("Progressing") == ("True", "Training")
    world.after(1).settle()
    assert world.condition("Progressing") == ("Unknown", "LearnerUnreachable")
    assert "does not answer the operator on port 8080" in world.status.message
    assert world.events[-1] == ("LearnerUnreachable", world.status.message)
    world.after(1000).settle()
    assert world.condition("Progressing") == ("Unknown", "LearnerUnreachable"), (
        "it is unknown whether the job stalls"
    )
    world.unreachable = False
    world.say(report(9)).settle()
    assert (world.condition("Progressing"), world.status.message) == (("True", "Training"), "")


def test_a_known_problem_is_told_before_the_learners_silence() -> None:
    world = make_world().up().say(report(5)).settle()
    world.unreachable = True
    world.wait_for(SAMPLER_0, "ImagePullBackOff", PULL)
    world.pods[SAMPLER_0]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    world.after(UNREACHABLE_SECONDS).settle()
    problem = f"pod {SAMPLER_0}, container trainer: ImagePullBackOff: {PULL}"
    assert (world.condition("Ready"), world.status.message) == (("False", "ImagePullFailed"), problem)


def test_on_one_machine_an_unreachable_learner_is_no_matter_of_a_cluster() -> None:
    world = make_world().up().say(report(5))
    world.settings = replace(world.settings, one_machine=True)
    world.settle()
    world.unreachable = True
    world.after(UNREACHABLE_SECONDS).settle()
    assert world.condition("Progressing") == ("Unknown", "LearnerUnreachable")
    assert "keep this machine busy" in world.status.message
    assert not any(word in world.status.message for word in ("NetworkPolicy", "the operator", " port "))


def test_a_learner_whose_answers_are_no_reports_is_said_to_misreport() -> None:
    world = make_world().up().say(report(5)).settle()
    world.bad_report = "4 errors, the first: conditions.0.type: Field required"
    world.after(UNREACHABLE_SECONDS).settle()
    assert world.condition("Progressing") == ("Unknown", "LearnerReportInvalid")
    assert "cannot be read, so its progress is not known: 4 errors, the first" in world.status.message
    assert world.events[-1] == ("LearnerReportInvalid", world.status.message)
    assert world.status.progress.environment_steps == 5, "what was known stays"
    world.bad_report = ""
    world.say(report(9)).settle()
    assert (world.condition("Progressing"), world.status.message) == (("True", "Training"), "")


def test_a_job_that_is_older_than_the_operators_key_trains_on_and_says_what_to_do() -> None:
    world = make_world().up()
    world.bad_report = TOKEN_REJECTED.problem
    world.after(UNREACHABLE_SECONDS).settle()
    assert world.condition("Progressing") == ("Unknown", "LearnerReportInvalid")
    assert world.status.message.endswith(
        "; restore that key, or suspend the job, delete its Secret, and resume it"
    )
    assert world.counts == (0, 0)


@pytest.mark.parametrize("away", [UNREACHABLE_SECONDS + 1, STALL_SECONDS + 1])
def test_an_operator_that_was_away_says_nothing_before_the_learner_could_answer(away: float) -> None:
    world = make_world().up().say(report(5)).settle()
    before = list(world.events)
    world.awaited = True
    world.after(away).settle()
    assert (world.condition("Progressing"), world.status.message) == (("True", "Training"), "")
    world.awaited = False
    world.say(report(9)).settle()
    assert world.condition("Progressing") == ("True", "Training")
    assert world.events == before


@pytest.mark.parametrize(
    ("silent", "said"),
    [(True, ("Unknown", "LearnerUnreachable")), (False, ("False", "Stalled"))],
)
def test_what_was_said_stands_until_another_operator_knows_better(
    silent: bool, said: tuple[str, str]
) -> None:
    world = make_world().up().say(report(5)).settle()
    world.unreachable = silent
    world.after(STALL_SECONDS).settle()
    assert world.condition("Progressing") == said
    writes = world.writes
    world.awaited = True
    world.after(1000).settle()
    assert (world.condition("Progressing"), world.writes) == (said, writes)
    world.awaited = False
    world.after(1).settle()
    assert world.condition("Progressing") == said


def test_of_a_new_learner_that_is_not_ready_it_is_not_said_that_it_is_and_does_not_answer() -> None:
    world = make_world().up().say(report(5)).settle()
    world.unreachable = True
    world.after(UNREACHABLE_SECONDS).settle()
    assert "does not answer" in world.status.message
    world.vanish(LEARNER)
    world.make(world.plan())  # by an operator that ends before it has written the status
    world.unreachable, world.awaited = False, True
    world.run(LEARNER, ready=False).settle()
    assert "does not answer" not in world.status.message
    assert world.condition("Ready") == ("False", "MembersNotReady")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (f'pods "{LEARNER}" is forbidden: exceeded quota: q, requested: pods=1', "QuotaExceeded"),
        (
            f'pods "{LEARNER}" is forbidden: violates PodSecurity "restricted:latest": x',
            "PodSecurityViolation",
        ),
        (f'admission webhook "policy" denied the request: {LEARNER} has no owner', "AdmissionRefused"),
        (f'pods "{LEARNER}" is forbidden: no PriorityClass with name high was found', "AdmissionRefused"),
        (f'pods "{LEARNER}" is forbidden: User "x" cannot create resource "pods"', "OperatorForbidden"),
        (
            f'podgroups "{LEARNER}" is forbidden: User "x" cannot get resource "podgroups"',
            "OperatorForbidden",
        ),
        (f'Pod "{LEARNER}" is invalid: spec.containers[0].image: Required value', "Invalid"),
    ],
)
def test_what_an_api_server_rejects(said: str, reason: str) -> None:
    child = {"kind": "Pod", "metadata": {"name": LEARNER}}
    assert parse_admission_failure(RejectedError(said), child) == AdmissionFailure(reason, said, LEARNER)


def test_a_rejection_that_names_nothing_gets_a_name() -> None:
    child = {"kind": "Service", "metadata": {"name": "demo"}}
    refused = AdmissionFailure("AdmissionRefused", "Service demo: no", "demo")
    assert parse_admission_failure(RejectedError("no"), child) == refused
    assert parse_admission_failure(NameTakenError("Service demo is another's"), child).reason == "NameTaken"


def test_samplers_beyond_a_quota_are_reported_while_the_others_train() -> None:
    world = make_world(sampler={"replicas": 3})
    world.rejects = lambda child: QUOTA if len(world.pods) >= 3 and child["kind"] == "Pod" else None
    world.settle()
    world.run().settle()
    assert (world.status.phase, world.status.sampler.summary) == ("Running", "2/3")
    assert world.condition("Ready") == ("False", "QuotaExceeded")
    assert world.status.message == QUOTA.sentence
    assert [event for event in world.events if event[0] == "QuotaExceeded"] == [
        (QUOTA.reason, QUOTA.sentence)
    ]
    world.spec(sampler={"replicas": 2}).settle()
    assert world.condition("ReplicaFailure") == ("False", "Accepted")
    assert (world.condition("Ready"), world.status.message) == (("True", "AllMembersReady"), "")


def test_what_is_rejected_while_all_members_work_is_reported_too() -> None:
    world = make_world().up()
    del world.others["NetworkPolicy", "demo"]
    world.rejects = lambda child: QUOTA if child["kind"] == "NetworkPolicy" else None
    world.settle()
    assert (world.condition("Ready"), world.status.message) == (("True", "AllMembersReady"), QUOTA.sentence)
    world.rejects = lambda child: None
    world.settle()
    assert (world.condition("ReplicaFailure"), world.status.message) == (("False", "Accepted"), "")


QUOTA = AdmissionFailure("QuotaExceeded", 'pods "demo-sampler-2" is forbidden: exceeded quota: q')
