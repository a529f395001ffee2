"""Gradients of samplers that all use the same parameters."""

from __future__ import annotations

import pytest
import torch
from gradient_senders import DEADLINE, InStep
from rltraining_trainer.dataflow.gradients.accounts import Place

EXCHANGES = 3


def test_an_update_waits_for_all_or_for_the_deadline_after_the_first() -> None:
    world = InStep()
    world.clock.now += 100 * DEADLINE
    world.push("cb")
    world.clock.now += DEADLINE - 0.01
    assert not world.ready
    world.clock.now += 0.01
    assert world.ready
    assert world.update() == ["b", "c"]
    world.push("cb")
    world.update()

    world.push("cb")
    assert not world.ready
    world.push("a")
    assert world.ready
    assert world.update() == ["a", "b", "c"], "in the order of their names"
    assert world.gradients.place == ("x", 3, 0)
    assert world.gradients.counts() == (7, 7, 0, 0, 0)


def test_a_late_gradient_is_refused_and_its_sender_goes_on_with_the_others() -> None:
    world = InStep("ab")
    late = world.gradients.place
    world.iterate("a")
    b = world.senders["b"]

    assert b.push(late) == [False]
    assert world.gradients.counts() == (2, 1, 1, 0, 1)
    assert b.push() == [False]
    world.push("a")
    assert world.update() == ["a", "b"]


def test_a_gradient_that_comes_while_the_others_are_applied_is_late() -> None:
    world = InStep("ab")
    world.push("a")
    world.gradients.take()
    world.push("b")
    assert world.gradients.counts() == (2, 1, 0, 1, 0)
    world.gradients.release()
    assert world.answers("b") == [False]
    assert world.gradients.counts() == (2, 1, 1, 0, 1)


def test_a_dead_sampler_costs_a_deadline_and_then_ever_more_seldom_one() -> None:
    world = InStep("ab")
    waits = [number for number in range(64) if world.iterate("a")]
    assert waits == [0, 2, 6, 14, 30, 62]


def test_a_slow_sampler_that_is_in_time_again_is_waited_for_as_ever() -> None:
    world = InStep("ab")
    world.iterate("a")
    assert world.iterate("ab") == 0.0
    assert world.iterate("a") == DEADLINE
    assert world.iterate("a") == 0.0


def test_a_restarted_sampler_is_waited_for_again() -> None:
    world = InStep("ab")
    for _ in range(10):
        world.iterate("a")
    world.push("a")
    assert world.ready, "the update does not wait for b"
    world.senders["b"] = world.start("b", "second life")
    assert world.senders["b"].join() == 1
    assert not world.ready
    world.push("b")
    assert world.update() == ["a", "b"]


def test_a_sampler_that_is_no_more_expected_is_not_waited_for() -> None:
    world = InStep("ab")
    world.expected.remove("b")
    world.iterate("ab")
    assert world.iterate("a") == 0.0


def test_a_newcomer_waits_for_the_next_iteration_and_nobody_waits_for_it_until_then() -> None:
    world = InStep("ab", EXCHANGES)
    world.iterate("ab")
    world.senders["b"] = world.start("b", "second life")
    assert world.senders["b"].join() == 0

    assert world.iterate("a") == world.iterate("a") == 0.0
    assert world.gradients.place == ("x", 1, 0)
    assert world.senders["b"].joined == 1
    world.push("a")
    assert not world.ready, "now it takes part"
    world.push("b")
    assert world.ready


def test_who_comes_back_with_the_rollout_of_this_iteration_goes_on_with_it() -> None:
    """The connection was lost, or the holder reopened its endpoint.

    No other sampler has to wait for the next iteration.
    """
    world = InStep("ab", EXCHANGES)
    of_before = world.gradients.place
    world.iterate("ab")
    b = world.senders["b"]
    assert b.join(rollout=of_before) == 2, "once when it began"
    assert b.repeat() == [True, True]
    world.push("a")
    assert not world.ready, "it takes part as before"
    world.push("b")
    assert world.update() == ["a", "b"]
    assert b.join(rollout=Place("another life")) == 2, "that one is over"


def test_whoever_comes_with_a_gradient_of_an_earlier_iteration_waits_for_the_next() -> None:
    world = InStep("ab", EXCHANGES)
    late = world.gradients.place
    world.iterate("a")
    assert world.senders["b"].push(late) == [False], "of this iteration: it takes part in the next exchange"
    for _ in range(EXCHANGES):
        world.iterate("a")
    assert world.senders["b"].push(late) == [False]
    world.iterate("a")
    assert world.answers("b") == [False]
    world.iterate("a")
    assert world.answers("b") == [False, False]


def test_an_iteration_can_end_before_its_last_exchange() -> None:
    """PPO does this when the policy has changed enough."""
    world = InStep("a", EXCHANGES)
    world.push("a")
    world.gradients.take()
    world.gradients.end_iteration()
    newcomer = world.start("b")
    newcomer.join()
    world.gradients.release()
    assert world.gradients.place == ("x", 1, 0)
    assert newcomer.joined == 1


def test_with_backup_samplers_an_update_takes_the_first_and_refuses_the_others() -> None:
    world = InStep("abc", count=2)
    place = world.gradients.place
    for number in range(3):
        world.push("ca")
        assert world.ready
        assert world.update() == ["a", "c"]
        assert world.senders["b"].push(place) == [False] * (number + 1)
    world.push("ab")
    assert world.update() == ["a", "b"], "the update waits for b again"


def test_a_second_life_takes_the_place_of_the_first_within_an_update() -> None:
    world = InStep("ab")
    first, second = world.senders["a"], world.start("a", "second life")
    first.push(value=1.0)
    second.join()
    second.push(value=2.0)
    assert first.answers == [False]
    assert not world.ready, "both are of the same sampler"
    world.push("b")
    taken = {push.source.sender: push for push in world.gradients.take()}
    assert taken["a"].gradient.item() == 2.0
    world.gradients.release()
    assert (first.answers, second.answers) == ([False], [True])
    assert world.gradients.counts() == (3, 2, 1, 0, 0)


def test_a_learner_without_parameters_sleeps_while_samplers_wait_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several holders wait for a lost holder, and leave their processors to its restart."""
    world, waits = InStep("a"), list[float]()
    world.gradients.restart("")
    world.gradients.release()
    world.start("b").join()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        world.clock.now += seconds

    monkeypatch.setattr(world.gradients._changed, "wait", wait)
    assert not world.gradients.is_ready(0.25)
    assert waits == [0.25]


def test_patience_begins_anew_with_a_new_life_of_the_learners() -> None:
    """Iterations are counted from 0 again.

    A sampler that was late in iteration 500 must not count as late until then.
    """
    world = InStep("ab")
    for _ in range(20):
        world.iterate("a")
    world.gradients.restart("y")
    world.gradients.release()
    world.push("a")
    assert not world.ready
    world.push("b")
    assert world.ready


def test_closing_answers_everybody() -> None:
    world = InStep("ab", EXCHANGES)
    world.iterate("ab")
    newcomer, sums = world.start("c"), []
    newcomer.join()
    world.gradients.add("b", world.gradients.place, torch.ones(3), sums.append)
    world.push("a")
    assert (newcomer.joined, sums) == (0, [])
    answered = len(world.answers("a"))

    world.gradients.close()
    world.gradients.close()
    assert newcomer.joined == 1
    assert sums == [None]
    assert world.answers("a")[-1] is False
    assert len(world.answers("a")) == answered + 1
    assert world.senders["b"].push()[-1] is False
    assert world.start("d").join() == 1
    assert not world.gradients.is_ready(3600.0)
    assert world.gradients.counts().queued == 0
    assert world.gradients.counts().stale == 0, "the run is over: they were not late"


class TestAllSamplersAreGone:
    @pytest.mark.parametrize("sent", [False, True])
    def test_a_newcomer_begins_the_next_iteration_after_what_the_others_have_sent(self, sent: bool) -> None:
        """The only sampler was restarted in the middle of an iteration."""
        world = InStep("a", EXCHANGES)
        world.iterate("a")
        world.push("a" * sent)
        newcomer = world.start("a", "second life")
        assert newcomer.join() == 0
        assert world.ready == sent
        if sent:
            assert world.update() == ["a"]
            assert not world.ready
        assert newcomer.joined == 1
        assert world.gradients.place == ("x", 1, 0)

    def test_a_newcomer_waits_for_those_who_may_yet_come_for_a_while(self) -> None:
        world = InStep("ab", EXCHANGES)
        world.iterate("ab")
        newcomer = world.start("a", "second life")
        newcomer.join()
        world.clock.now += 9 * DEADLINE
        assert not world.ready
        assert newcomer.joined == 0
        world.clock.now += DEADLINE
        assert not world.ready
        assert newcomer.joined == 1


def test_another_number_of_updates_begins_with_an_iteration() -> None:
    """All samplers of an iteration then split their rollouts equally."""
    world = InStep("a", exchanges=2)
    world.gradients.next_exchanges = 1
    places = []
    for _ in range(4):
        places.append((world.gradients.exchanges, *world.gradients.place[1:]))
        world.push("a")
        assert world.ready
        world.update()
    assert places == [(2, 0, 0), (2, 0, 1), (1, 1, 0), (1, 2, 0)]
