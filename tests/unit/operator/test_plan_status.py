"""A learner's report, and its effect on the status."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from operator_world import LEARNER, SAMPLER_0, SAMPLER_1, START, World, make_world, report, termination
from rltraining_api.bottleneck import find_bottleneck
from rltraining_api.status import Condition
from rltraining_operator.cluster import Event
from rltraining_operator.plan import plan_invalid


@pytest.fixture
def world() -> World:
    return make_world().up()


def curve(*steps: int) -> list[dict[str, float]]:
    return [{"environmentSteps": n, "seconds": n / 10, "meanReturn": n / 100} for n in steps]


def curve_steps(world: World) -> list[int]:
    return [point.environment_steps for point in world.status.curve]


def test_progress_is_reported_though_the_clock_was_set_back(world: World) -> None:
    world.after(6).say(report(10)).settle()
    world.after(-3600).say(report(20)).settle()
    world.after(6).say(report(30)).settle()
    assert world.status.progress.environment_steps == 30
    assert world.status.report_time == world.status.progress_time == world.now


def test_progress_and_curve_are_written_at_most_every_five_seconds(world: World) -> None:
    world.after(6).say(report(10, curve=curve(10))).settle()
    assert (world.status.progress.environment_steps, curve_steps(world)) == (10, [10])
    world.after(4).say(report(20, curve=curve(10, 20)))
    assert world.plan().status is None
    assert world.plan().requeue_after == 1
    world.after(1).settle()
    assert (world.status.progress.environment_steps, curve_steps(world)) == (20, [10, 20])
    assert world.status.progress_time == world.now


def waits(world: World, percent: float | None, state: str = "Training") -> str | None:
    """Returns the bottleneck in the status after a report of a learner that waits for data."""
    said = report(10, state, progress={"environmentSteps": 10, "learnerWaitPercent": percent})
    return world.after(6).say(said).settle().status.bottleneck


@pytest.mark.parametrize(
    ("cores", "sentence"),
    [
        (None, "The samplers are the bottleneck: "),
        (2, "The cores of this machine or the samplers are the bottleneck: "),
    ],
)
def test_the_status_names_the_bottleneck_as_rltrain_why_does(cores: int | None, sentence: str) -> None:
    world = make_world()
    world.settings = replace(world.settings, cores=cores)
    world.up()
    assert waits(world, None) is None
    found = waits(world, 90.0)
    assert found is not None
    assert found.startswith(f"{sentence}the learner waits for data 90% of the time")
    assert found == find_bottleneck(world.parsed, cores)
    assert waits(world, None, "Starting") == found, "it belongs to the progress, which stays too"
    assert waits(world, None) is None


def test_the_bottleneck_causes_no_further_writes(world: World) -> None:
    waits(world, 90.0)
    before = world.writes
    waits(world, 90.0)
    assert world.writes == before
    world.spec(sampler={"replicas": 3}).settle()
    world.run().settle()
    before = world.writes
    waits(world, 91.0)
    assert world.writes == before + 1


def test_a_learner_that_restarts_sets_progress_and_curve_back_when_it_has_restored(world: World) -> None:
    world.after(6).say(report(500, curve=curve(100, 400, 500))).settle()
    world.crash(LEARNER, 137).after(6).say(report(0, "Starting")).settle()
    assert (world.status.progress.environment_steps, curve_steps(world)) == (500, [100, 400, 500])
    world.say(report(400, "Waiting", curve=curve(100, 400))).after(6).settle()
    assert (world.status.progress.environment_steps, curve_steps(world)) == (400, [100, 400])


def test_a_learners_last_steps_before_it_is_suspended_are_no_progress_of_a_suspended_job(
    world: World,
) -> None:
    world.after(6).say(report(10)).settle()
    world.spec(runPolicy={"suspend": True}).step()
    world.after(6).say(report(20)).step()
    assert world.status.progress.environment_steps == 20
    assert world.status.progress_time is None
    assert world.condition("Progressing") == ("False", "Suspended")


def test_the_termination_message_of_a_learner_counts(world: World) -> None:
    world.after(6).say(report(500)).settle()
    world.die(LEARNER, 1, message=termination("Error", "oh", report(600))).after(6).settle()
    assert world.status.progress.environment_steps == 600
    world.run(LEARNER).after(6).settle()
    assert world.status.progress.environment_steps == 600


def test_the_curve_comes_with_progress_and_the_termination_message_continues_it(world: World) -> None:
    world.after(6).say(report(30, curve=curve(10, 20, 30))).settle()
    assert curve_steps(world) == [10, 20, 30]
    ended = report(60, "Finished", curve=curve(10, 60))
    world.die(LEARNER, 0, message=termination("Completed", "", ended)).after(6).settle()
    assert curve_steps(world) == [10, 20, 30, 60]


def test_warnings_become_events_once(world: World) -> None:
    skipped = {"reason": "CheckpointSkipped", "message": "the newest is damaged: it is left out"}
    other = {"reason": "DiskFull", "message": "no checkpoint"}
    world.say(report(1, warnings=[skipped])).settle()
    world.after(5).say(report(1, warnings=[skipped, other])).settle()
    world.crash(LEARNER, 137).settle()
    world.after(5).say(report(1, warnings=[skipped, other])).settle()
    emitted = [event for event in world.events if event[0] in ("CheckpointSkipped", "DiskFull")]
    assert emitted == [(skipped["reason"], skipped["message"]), (other["reason"], other["message"])]


def test_checkpoints_that_fail_are_an_event_and_so_is_their_recovery(world: World) -> None:
    def checkpoint(status: str, reason: str, message: str) -> None:
        reported = {"type": "CheckpointHealthy", "status": status, "reason": reason, "message": message}
        world.after(6).say(report(1, conditions=[reported])).settle()

    begun = len(world.events)
    checkpoint("True", "CheckpointWritten", "the newest is of step 1")
    for step in (2, 3):
        checkpoint("False", "CheckpointFailed", f"the checkpoint of step {step} could not be written")
    checkpoint("True", "CheckpointWritten", "the newest is of step 4")
    assert world.events[begun:] == [
        ("CheckpointFailed", "the checkpoint of step 2 could not be written"),
        ("CheckpointWritten", "checkpoints are written again: the newest is of step 4"),
    ]


def test_conditions_are_lifted_but_not_our_own(world: World) -> None:
    def stored() -> Condition:
        return next(each for each in world.status.conditions if each.type == "CheckpointStored")

    full = {"type": "CheckpointStored", "status": "False", "reason": "DiskFull", "message": "no space left"}
    fake = {"type": "Complete", "status": "True", "reason": "Fake", "message": ""}
    odd = {"type": "Odd", "status": "True", "reason": "not camel case", "message": ""}
    world.say(report(1, conditions=[full, fake, odd])).settle()
    assert world.condition("CheckpointStored") == ("False", "DiskFull")
    assert world.condition("Odd") == ("True", "Reported")
    assert world.condition("Complete") is None
    changed = stored().last_transition_time
    world.after(5).say(report(1, conditions=[full | {"message": "still none"}])).settle()
    assert (stored().last_transition_time, stored().message) == (changed, "still none")
    world.after(5).say(report(1, conditions=[full | {"status": "True", "reason": "Stored"}])).settle()
    assert stored().last_transition_time == world.now


def test_however_much_a_learner_reports_the_end_has_its_condition(world: World) -> None:
    many = [{"type": f"T{i}", "status": "True", "reason": "R" * i, "message": ""} for i in range(1, 300)]
    world.say(report(1, conditions=many)).settle()
    world.die(LEARNER, 64).settle()
    world.end_deleted().settle()
    assert world.condition("Failed") == ("True", "PermanentFailure")
    assert len(world.status.conditions) <= 32


def test_conditions_of_others_are_kept(world: World) -> None:
    foreign = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "Admitted",
        "message": "",
        "lastTransitionTime": START.isoformat(),
    }
    world.job["status"]["conditions"].append(foreign)
    world.spec(sampler={"replicas": 1}).settle()
    assert world.condition("QuotaReserved") == ("True", "Admitted")


def test_the_generation_that_was_seen_is_told(world: World) -> None:
    world.spec(sampler={"replicas": 3}).settle()
    assert world.status.observed_generation == 2
    ready = next(condition for condition in world.status.conditions if condition.type == "Ready")
    assert ready.observed_generation == 2


def test_an_object_that_is_no_job_fails_and_says_why() -> None:
    world = make_world(environment={})
    observed = world.observe()
    assert observed.job is None
    made = plan_invalid(observed, START)
    assert made.status is not None
    assert (made.status.phase, made.status.conditions[0].reason) == ("Failed", "InvalidSpec")
    assert "environment.id" in made.status.message
    assert made.events == (Event("Warning", "InvalidSpec", made.status.message),)
    world.job["status"] = made.status.to_dict()
    assert plan_invalid(world.observe(), START).empty


@pytest.mark.parametrize(
    ("suspend", "phase", "progressing"),
    [(False, "Running", ("True", "Training")), (True, "Suspended", ("False", "Suspended"))],
)
def test_a_job_that_is_made_invalid_stays_as_it_is(
    suspend: bool, phase: str, progressing: tuple[str, str]
) -> None:
    world = make_world().up()
    world.spec(runPolicy={"suspend": suspend}).settle()
    world.end_deleted().settle()
    world.spec(stop={})
    made = plan_invalid(world.observe(), world.now)
    assert made.status is not None
    assert (made.status.phase, made.delete, made.create) == (phase, (), ())
    assert "stop" in made.status.message
    world.job["status"] = made.status.to_dict()
    assert plan_invalid(world.observe(), world.now + timedelta(days=1)).empty
    world.spec(stop={"seconds": 5}).settle()
    assert (world.status.phase, world.condition("Progressing")) == (phase, progressing)


def test_an_invalid_job_of_another_controller_is_left_alone() -> None:
    world = make_world()
    world.spec(stop={}, runPolicy={"managedBy": "example.com/other"})
    assert world.observe().invalid
    assert plan_invalid(world.observe(), START).empty


def test_samplers_that_were_told_that_the_run_is_done_are_not_restarting(world: World) -> None:
    world.settle()
    assert world.status.phase == "Running"
    world.die(SAMPLER_0, 0, "Completed").die(SAMPLER_1, 0, "Completed").settle()
    assert (world.status.phase, world.condition("Restarting")) == ("Running", None)
