"""The job recovers from external kills, but ends if it makes no progress between them."""

from __future__ import annotations

import pytest
from operator_world import LEARNER, SAMPLER_0, SAMPLER_1, World, make_world, report
from rltraining_operator.failures import disruptions
from rltraining_operator.settings import DISRUPTIONS_MAX

LAST_NOTE = f"disruption {DISRUPTIONS_MAX + 1} in a row without progress, counted as a failure"


def kill(world: World, times: int, name: str = LEARNER) -> World:
    """The kubelet kills the pod, for example after a failed liveness probe, and restarts it."""
    for _ in range(times):
        world.crash(name, 137).after(6).settle()
    return world


def test_ten_kills_without_progress_are_forgiven_and_no_more() -> None:
    world = make_world(runPolicy={"backoffLimit": 0}).up()
    kill(world, 10)
    assert (world.counts, world.status.phase) == ((0, 10), "Running")
    kill(world, 1)
    assert world.condition("FailureTarget") == ("True", "BackoffLimitExceeded")


def test_the_row_of_a_member_lasts_while_its_pod_is_there_though_it_is_wanted_no_more() -> None:
    """Otherwise a user who scales down and up again would reset every streak."""
    world = kill(make_world(runPolicy={"backoffLimit": 0}).up(), DISRUPTIONS_MAX, SAMPLER_1)
    world.spec(sampler={"replicas": 1}).settle()
    assert "deletionTimestamp" in world.pods[SAMPLER_1]["metadata"]
    world.spec(sampler={"replicas": 2}).settle()
    world.end_deleted().settle()
    world.run().settle()
    assert world.condition("FailureTarget") is None
    kill(world, 1, SAMPLER_1)
    assert world.condition("FailureTarget") == ("True", "BackoffLimitExceeded")


def test_a_kill_that_comes_again_and_again_ends_the_job() -> None:
    world = make_world(runPolicy={"backoffLimit": 2}).up()
    kill(world, DISRUPTIONS_MAX)
    assert world.counts == (0, DISRUPTIONS_MAX)
    kill(world, 2)
    assert world.counts == (2, DISRUPTIONS_MAX)
    assert world.status.phase == "Running"
    failure = f"pod {LEARNER}, container trainer: exit code 137 (SIGKILL)"
    assert ("MemberFailed", f"{failure}: {LAST_NOTE}") in world.events
    kill(world, 1)
    assert world.condition("FailureTarget") == ("True", "BackoffLimitExceeded")
    assert f"disruption {DISRUPTIONS_MAX + 3} in a row without progress" in world.status.message


def test_of_the_kills_while_the_operator_was_away_only_those_after_the_tenth_count() -> None:
    world = make_world(runPolicy={"backoffLimit": 2}).up()
    for _ in range(DISRUPTIONS_MAX + 2):
        world.after(60).crash(LEARNER, 137)
    world.settle()
    assert (world.counts, world.status.phase) == ((2, DISRUPTIONS_MAX), "Running")
    assert world.status.learner.restarts == DISRUPTIONS_MAX + 2
    kill(world, 1)
    assert world.condition("FailureTarget") == ("True", "BackoffLimitExceeded")


def test_progress_ends_the_row() -> None:
    world = make_world(runPolicy={"backoffLimit": 0}).up()
    for steps in range(1, 5):
        kill(world, DISRUPTIONS_MAX)
        world.say(report(steps)).after(6).settle()
        assert world.status.ledger[0].disruptions == 0
    assert world.counts == (0, 4 * DISRUPTIONS_MAX)


def test_progress_that_is_known_and_not_yet_written_counts() -> None:
    world = make_world(runPolicy={"backoffLimit": 0}).up().say(report(1)).settle()
    for _ in range(DISRUPTIONS_MAX):
        world.crash(SAMPLER_0, 137).after(1).settle()
    world.say(report(2)).crash(SAMPLER_0, 137).step()
    assert world.counts == (0, DISRUPTIONS_MAX + 1)


def test_steps_lost_and_gained_again_are_no_progress() -> None:
    world = make_world(runPolicy={"backoffLimit": 0}).up()
    for _ in range(DISRUPTIONS_MAX):
        world.after(6).say(report(100)).settle()
        world.crash(LEARNER, 137).after(6).say(report(0, "Waiting")).settle()
    world.after(6).say(report(100)).settle()
    kill(world, 1)
    assert world.condition("FailureTarget") == ("True", "BackoffLimitExceeded")


def test_a_row_goes_on_over_replacements() -> None:
    world = make_world(runPolicy={"backoffLimit": 0}).up()
    for _ in range(DISRUPTIONS_MAX):
        world.after(60).evict(SAMPLER_0).settle()
        world.run().settle()
    assert world.counts == (0, DISRUPTIONS_MAX)
    world.after(60).vanish(SAMPLER_0).settle()
    assert world.condition("FailureTarget") == ("True", "BackoffLimitExceeded")


def test_many_members_disrupted_at_once_are_no_row() -> None:
    count = DISRUPTIONS_MAX + 2
    world = make_world(sampler={"replicas": count}, runPolicy={"backoffLimit": 0}).up()
    for index in range(count):
        world.vanish(f"demo-sampler-{index}")
    world.settle()
    assert (world.counts, world.condition("FailureTarget")) == ((0, count), None)
    world.run().say(report(1)).after(6).settle()
    assert world.status.ledger == (), "what progress has ended needs no place in the status"


def test_a_status_has_room_for_a_mass_of_disruptions_and_still_ends_what_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streaks, samplers = 2, 4
    monkeypatch.setattr(disruptions, "STREAKS_MAX", streaks)
    world = make_world(sampler={"replicas": samplers}, runPolicy={"backoffLimit": 0}).up()
    for times in range(1, DISRUPTIONS_MAX + 2):
        for index in range(samplers):
            world.vanish(f"demo-sampler-{index}")
        world.step()
        world.run()
        world.step()
        assert sum(entry.disruptions > 0 for entry in world.status.ledger) == streaks
        assert (world.condition("FailureTarget") is not None) == (times > DISRUPTIONS_MAX)


def test_what_a_users_rule_ignores_is_ignored_without_end() -> None:
    rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [137]}}
    world = make_world(runPolicy={"backoffLimit": 0, "podFailurePolicy": {"rules": [rule]}}).up()
    kill(world, 3 * DISRUPTIONS_MAX)
    assert (world.counts, world.status.phase) == ((0, 3 * DISRUPTIONS_MAX), "Running")


def test_a_member_that_is_wanted_no_more_leaves_the_ledger() -> None:
    world = make_world().up()
    world.vanish("demo-sampler-1").settle()
    assert [entry.pod for entry in world.status.ledger] == ["demo-sampler-1"]
    world.spec(sampler={"replicas": 1}).settle()
    world.end_deleted().settle()
    assert world.status.ledger == ()
