"""Jobs with replay pods and with several learners: their pods, their dependencies, and when they end."""

from __future__ import annotations

from typing import Any

import pytest
from operator_world import LEARNER, SAMPLER_0, SAMPLER_1, World, dedicated, make_world, report, termination
from rltraining_api.contract import ENV_LEARNERS, ENV_REPLAYS
from rltraining_api.status import RoleStatus
from rltraining_operator.settings import FINISH_SECONDS, REMAKE_SECONDS

REPLAY_0, REPLAY_1 = "demo-replay-0", "demo-replay-1"
LEARNER_1 = "demo-learner-1"
FIGURES = {
    "shards": 2,
    "size": 90,
    "inserted": 100,
    "evicted": 4,
    "lost": 6,
    "sampled": 80,
    "replayRatio": 0.8,
}


def with_replays(count: int = 2, **spec: Any) -> World:
    return make_world(**dedicated(count), **spec).up()


def with_learners(count: int = 2, **spec: Any) -> World:
    return make_world(learner={"replicas": count}, **spec).up()


def variables(world: World, pod: str) -> dict[str, str]:
    return {each["name"]: each["value"] for each in world.pods[pod]["spec"]["containers"][0]["env"]}


def finished(world: World, name: str) -> World:
    return world.die(name, 0, "Completed", termination("Completed", "done", report(1000, "Finished")))


# Replay pods


def test_every_member_has_the_addresses_of_the_learners_and_replay_pods() -> None:
    world = with_replays(learner={"replicas": 2})
    assert list(world.pods) == [LEARNER, LEARNER_1, REPLAY_0, REPLAY_1, SAMPLER_0, SAMPLER_1]
    assert world.pods[REPLAY_1]["spec"]["containers"][0]["command"] == ["rltraining-trainer", "replay"]
    for name, role in ((ENV_LEARNERS, "learner"), (ENV_REPLAYS, "replay")):
        addresses = f"http://demo-{role}-0.demo-rlt:8080,http://demo-{role}-1.demo-rlt:8080"
        assert {variables(world, pod)[name] for pod in world.pods} == {addresses}
    assert variables(world, REPLAY_1)["RLTRAINING_INDEX"] == "1"


def test_the_service_names_who_is_dialled_and_nobody_else() -> None:
    world = with_replays()
    selector = world.others["Service", "demo-rlt"]["spec"]["selector"]
    named = [
        name for name, pod in world.pods.items() if selector.items() <= pod["metadata"]["labels"].items()
    ]
    assert named == [LEARNER, REPLAY_0, REPLAY_1]
    alone = make_world().up()
    assert alone.others["Service", "demo-rlt"]["spec"]["selector"]["rltraining.dev/role"] == "learner"


@pytest.mark.parametrize("placement", ["Samplers", "Learner"])
def test_there_are_replay_pods_only_where_they_are_dedicated(placement: str) -> None:
    world = with_replays()
    world.spec(algorithm={"dqnApex": {"replay": {"placement": placement}}})
    del world.job["spec"]["replay"]
    world.settle()
    world.end_deleted().settle()
    assert list(world.pods) == [LEARNER, SAMPLER_0, SAMPLER_1]
    assert (world.status.replay_pods, world.counts) == (None, (0, 0))


def test_a_job_runs_with_one_replay_pod_of_several() -> None:
    world = make_world(**dedicated(2)).settle()
    world.run(LEARNER, SAMPLER_0, SAMPLER_1).settle()
    assert world.status.phase == "Starting"
    assert world.status.message == f"waiting for pod {REPLAY_0} and 1 more to be ready"
    world.run(REPLAY_1).settle()
    assert (world.status.phase, world.condition("Ready")) == ("Running", ("False", "MembersNotReady"))
    assert world.status.replay_pods == RoleStatus(replicas=2, ready=1, summary="1/2", indices="0-1")
    assert world.events[-1] == ("Running", "1/1 learners, 1/2 replay pods and 2/2 samplers")
    world.run().settle()
    assert world.condition("Ready") == ("True", "AllMembersReady")


@pytest.mark.parametrize(
    ("name", "phase"), [(LEARNER, "Restarting"), (LEARNER_1, "Restarting"), (REPLAY_0, "Running")]
)
def test_one_of_several_that_is_lost_is_replaced_and_touches_nobody(name: str, phase: str) -> None:
    world = with_replays(learner={"replicas": 2})
    others = {other: pod["metadata"]["uid"] for other, pod in world.pods.items() if other != name}
    world.after(100).evict(name).settle()
    assert (world.status.phase, world.phase(name)) == (phase, "Pending")
    assert others == {other: world.pods[other]["metadata"]["uid"] for other in others}
    world.run().settle()
    status = world.status
    restarts = status.of_role("replay" if name == REPLAY_0 else "learner").restarts
    assert (status.phase, restarts, status.restarts, world.counts) == ("Running", 1, 1, (0, 1))


def test_without_any_replay_pod_a_job_is_restarting() -> None:
    world = with_replays(1).die(REPLAY_0, 137).settle()
    assert (world.status.phase, world.condition("Restarting")) == ("Restarting", ("True", "MembersRestart"))
    world.run().settle()
    assert world.status.phase == "Running"


def test_the_end_of_a_job_takes_its_replay_pods() -> None:
    world = with_replays()
    finished(world, LEARNER).die(SAMPLER_0, 0).die(SAMPLER_1, 0).die(REPLAY_0, 0).settle()
    world.after(FINISH_SECONDS).step()
    world.end_deleted().settle()
    assert world.status.phase == "Succeeded"
    assert REPLAY_1 not in world.pods
    assert (world.status.of_role("replay").summary, world.counts) == ("0/2", (0, 0))


def test_the_figures_of_the_memory_are_the_learners_and_stay_while_it_restarts() -> None:
    world = with_replays().after(6)
    assert world.status.replay is None
    world.say(report(10, replay=FIGURES)).settle()
    assert world.status.replay is not None
    assert world.status.replay.to_dict().items() >= FIGURES.items()
    kept = world.status.replay
    world.crash(LEARNER, 137).after(6).say(report(0, "Starting")).settle()
    assert world.status.replay == kept


# Several learners


def test_training_needs_all_learners_and_none_may_be_evicted() -> None:
    world = make_world(learner={"replicas": 2}, runPolicy={"learnerEviction": "Refuse"}).settle()
    world.run(LEARNER, SAMPLER_0, SAMPLER_1).settle()
    assert (world.status.phase, world.status.learner.summary) == ("Starting", "1/2")
    world.run(LEARNER_1).settle()
    assert world.status.phase == "Running"
    assert world.others["PodDisruptionBudget", "demo-learner"]["spec"]["minAvailable"] == 2


def test_only_the_first_learner_speaks_for_the_job() -> None:
    world = with_learners().after(6).say(report(10)).settle()
    message = termination("Error", "oh", report(999))
    world.vanish(LEARNER).crash(LEARNER_1, 1, message=message).after(6).settle()
    assert world.status.progress.environment_steps == 10


def test_the_loss_of_a_learner_may_set_back_the_steps_of_the_first_which_lives() -> None:
    """A parameter server was lost, so all learners roll back to the newest checkpoint."""
    world = with_learners().after(6).say(report(500)).settle()
    world.crash(LEARNER_1, 137).after(6).say(report(400)).settle()
    assert world.status.progress.environment_steps == 400
    assert (world.counts, world.status.learner.restarts) == ((0, 1), 1)
    assert (world.status.phase, world.status.learner.summary) == ("Running", "2/2")


def test_a_job_is_done_when_its_first_learner_is() -> None:
    world = with_learners()
    finished(world, LEARNER).step()
    assert world.condition("SuccessCriteriaMet") == ("True", "LearnersSucceeded")
    assert world.condition("Complete") is None, "the others have time to end by themselves"
    finished(world, LEARNER_1).die(SAMPLER_0, 0).die(SAMPLER_1, 0).settle()
    assert (world.status.phase, world.counts) == ("Succeeded", (0, 0))
    assert {LEARNER, LEARNER_1} <= world.pods.keys(), "who has ended well is not made again"


def test_a_learner_that_dies_at_the_very_end_does_not_hold_the_job() -> None:
    world = with_learners()
    finished(world, LEARNER).crash(LEARNER_1, 137).die(SAMPLER_0, 0).die(SAMPLER_1, 0).settle()
    world.after(FINISH_SECONDS).step()
    world.end_deleted().settle()
    assert world.status.phase == "Succeeded"


def test_learners_that_are_done_are_needed_again_when_the_first_begins_anew() -> None:
    world = with_learners().after(60)
    finished(world, LEARNER_1).settle()
    world.after(1).die(LEARNER, 137).settle()
    assert world.phase(LEARNER_1) == "Succeeded", "it is not known yet whether there is a checkpoint"
    world.after(1).run(LEARNER).after(REMAKE_SECONDS).settle()
    assert (world.phase(LEARNER_1), world.status.phase) == ("Pending", "Restarting")
    world.run().settle()
    assert (world.status.phase, world.counts) == ("Running", (0, 1))


def begun_anew_before_the_other_has_ended() -> World:
    """The first learner dies after training is over, and restarts before the other one has exited."""
    world = with_learners().after(60).crash(LEARNER, 137).after(1)
    finished(world, LEARNER_1)
    return world


@pytest.mark.parametrize("state", ["Waiting", "Training"])
def test_a_learner_that_is_done_is_needed_again_by_a_first_one_that_does_not_stop(state: str) -> None:
    world = begun_anew_before_the_other_has_ended()
    world.say(report(400, state)).after(REMAKE_SECONDS).settle()
    assert (world.phase(LEARNER_1), world.status.phase) == ("Pending", "Restarting")
    world.run().settle()
    assert (world.status.phase, world.counts) == ("Running", (0, 1))


@pytest.mark.parametrize("crashed", [False, True])
def test_a_learner_that_is_done_is_not_needed_by_a_first_one_that_stops(crashed: bool) -> None:
    world = begun_anew_before_the_other_has_ended() if crashed else finished(with_learners(), LEARNER_1)
    world.say(report(1000, stopReason="1000 steps are reached")).after(1000).settle()
    assert (world.status.phase == "Running", world.phase(LEARNER_1)) == (not crashed, "Succeeded")
    finished(world, LEARNER).settle()
    assert world.condition("SuccessCriteriaMet") is not None


def test_a_learner_that_is_done_waits_while_it_is_not_known_whether_the_first_stops() -> None:
    world = begun_anew_before_the_other_has_ended()
    world.unreachable = True
    world.after(REMAKE_SECONDS).settle()
    assert world.phase(LEARNER_1) == "Succeeded"
    world.unreachable = False
    world.settle()
    assert world.phase(LEARNER_1) == "Pending"


def test_any_learner_that_ends_for_good_fails_the_job() -> None:
    world = with_learners().die(LEARNER_1, 66, message=termination("Diverged", "the loss is NaN")).settle()
    assert world.condition("FailureTarget") == ("True", "Diverged")
    assert world.status.message == f"{LEARNER_1}: the loss is NaN"
