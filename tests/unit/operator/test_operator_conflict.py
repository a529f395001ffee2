"""Several operators that serve a job are in its conditions and events, without further writes."""

from __future__ import annotations

from operator_world import make_world, report

BOTH = ("rltraining-system/rltraining-operator", "team-ops/rl")
SENTENCE = (
    "operators rltraining-system/rltraining-operator and team-ops/rl serve this job: "
    "give each release its own watchNamespaces"
)


def test_several_operators_are_reported_once_and_the_job_goes_on() -> None:
    world = make_world().up()
    world.events.clear()
    world.operators = BOTH
    world.settle()
    assert world.condition("OperatorConflict") == ("True", "OperatorConflict")
    assert world.events == [("OperatorConflict", SENTENCE)]
    assert (world.condition("Ready"), world.status.message) == (("True", "AllMembersReady"), "")
    writes = world.writes
    world.settle()
    assert world.writes == writes


def test_the_report_stays_until_it_is_known_that_there_is_only_one() -> None:
    world = make_world().up()
    world.operators = BOTH
    world.settle()
    for operators, reported in [(None, "True"), ((), "False"), (None, "False"), (BOTH, "True")]:
        world.operators = operators
        world.settle()
        condition = world.condition("OperatorConflict")
        assert condition is not None
        assert condition[0] == reported
    assert [reason for reason, _ in world.events].count("OperatorConflict") == 2


def test_an_operator_that_is_alone_writes_nothing_about_it() -> None:
    world = make_world().up()
    writes = world.writes
    for world.operators in (None, ()):
        world.settle()
    assert (world.condition("OperatorConflict"), world.writes) == (None, writes)


def test_a_learner_cannot_report_it() -> None:
    condition = {"type": "OperatorConflict", "status": "True", "reason": "Mine", "message": "?"}
    world = make_world().up().after(10).say(report(1, conditions=[condition])).settle()
    assert world.status.progress.environment_steps == 1
    assert world.condition("OperatorConflict") is None
