"""Gradients that are applied in order of arrival."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from gradient_senders import DEADLINE, NOW, Sender, names
from manual_clock import Clock
from rltraining_trainer.dataflow.gradients import GradientQueue


def make_queue(
    count: int = 1, version: Callable[[], int] = lambda: 0, clock: Clock | None = None, **options: int
) -> GradientQueue:
    """Returns a queue with an epoch, so that it hands out parameters."""
    gradients = GradientQueue(lambda: count, DEADLINE, version, clock=clock or Clock(), **options)
    gradients.restart("x")
    gradients.release()
    return gradients


def make_update(gradients: GradientQueue) -> None:
    """Makes an update of the gradients that are ready."""
    gradients.take()
    gradients.release()


def counts(gradients: GradientQueue) -> tuple[int, int, int, int]:
    gradients.check_valid()
    return gradients.counts()[:4]


def test_the_first_of_those_that_wait_are_answered_at_once_and_those_that_move_up_after_the_update() -> None:
    gradients = make_queue(capacity=1)
    first, second, third = (Sender(gradients, name) for name in "abc")

    assert first.push() == [True]
    assert second.push() == third.push() == [], "there is room for one"
    gradients.take()
    assert second.answers == []
    gradients.release()
    assert (second.answers, third.answers) == ([True], [])
    make_update(gradients)
    assert (first.answers, second.answers, third.answers) == ([True], [True], [True])


def test_an_update_takes_count_gradients_or_after_the_deadline_fewer() -> None:
    clock = Clock()
    gradients = make_queue(count=2, clock=clock)
    Sender(gradients, "a").push()

    clock.now += DEADLINE - 0.01
    assert not gradients.is_ready(NOW)
    clock.now += 0.01
    assert gradients.is_ready(NOW)
    assert names(gradients.take()) == ["a"]

    for name in "bca":
        Sender(gradients, name, "second life").push()
    assert gradients.is_ready(NOW)
    assert names(gradients.take()) == ["b", "c"], "in the order in which they came"
    assert not gradients.is_ready(NOW)


@pytest.mark.parametrize(("version", "used"), [(7, True), (8, True), (6, False), (0, False)])
def test_a_gradient_older_by_more_versions_than_allowed_is_refused(version: int, used: bool) -> None:
    gradients = make_queue(max_lag=2, version=lambda: 9)
    sender = Sender(gradients, "a")
    sender.push(version=version)

    ready = gradients.is_ready(NOW)
    assert len(gradients.take()) == ready == used
    gradients.release()
    assert sender.answers == [used]
    assert gradients.counts() == (1, int(used), int(not used), 0, int(not used))


def test_a_stale_gradient_is_not_one_of_the_count_that_makes_an_update() -> None:
    versions = [0]
    gradients = make_queue(count=2, max_lag=0, version=lambda: versions[-1])
    stale, fresh = Sender(gradients, "a"), Sender(gradients, "b")
    stale.push(version=0)
    versions.append(1)
    fresh.push(version=1)

    assert not gradients.is_ready(NOW), "only one of the two counts"
    assert stale.answers + fresh.answers == []
    gradients.release()
    assert (stale.answers, fresh.answers) == ([False], [])
    Sender(gradients, "c").push(version=1)
    assert gradients.is_ready(NOW)
    assert names(gradients.take()) == ["b", "c"]


def test_whoever_sent_a_stale_gradient_is_answered_while_the_learner_waits_for_others() -> None:
    versions = [0]
    clock = Clock()
    gradients = make_queue(max_lag=0, version=lambda: versions[-1], clock=clock)
    versions.append(1)
    answered = threading.Event()
    sender = Sender(gradients, "a")
    sender.push(version=0)
    assert sender.last is not None
    gradients.push(sender.last, lambda used, has_credit: answered.set())
    learner = threading.Thread(target=gradients.is_ready, args=[3600.0])
    learner.start()

    assert answered.wait(30), "the answer came only after the learner's wait of an hour"
    gradients.close()
    learner.join(30)
    assert not learner.is_alive()


def test_closing_drops_what_waits_and_answers_everybody() -> None:
    gradients = make_queue()
    waits, used, late = (Sender(gradients, name) for name in "abc")
    used.push()
    gradients.take()
    waits.push()
    gradients.close()
    gradients.close()

    assert (used.answers, waits.answers) == ([True], [False])
    assert late.push() == [False]
    assert late.join() == 1
    assert not gradients.is_ready(3600.0)
    assert counts(gradients) == (3, 1, 2, 0)


def test_a_push_wakes_the_learner() -> None:
    gradients = make_queue()
    found: list[bool] = []
    learner = threading.Thread(target=lambda: found.append(gradients.is_ready(3600.0)))
    learner.start()
    Sender(gradients, "a").push()
    learner.join(30)
    assert found == [True]


def test_a_learner_that_begins_at_a_checkpoint_knows_what_came_before() -> None:
    gradients = make_queue()
    sender = Sender(gradients, "a")
    sender.push()
    make_update(gradients)
    sender.push()
    restored = make_queue()
    restored.set_state(gradients.get_state())
    assert counts(restored) == (2, 1, 1, 0)

    sender.gradients = restored
    sender.repeat()
    assert counts(restored) == (2, 1, 1, 0)
    sender.push()
    assert counts(restored) == (3, 1, 1, 1)


def with_one_credit(**options: int) -> tuple[GradientQueue, Sender, Sender]:
    """Returns a queue with one credit, and two senders."""
    gradients = make_queue(**options)
    gradients.limit(1)
    return gradients, Sender(gradients, "a"), Sender(gradients, "b")


class TestCredits:
    def test_a_sampler_without_a_credit_is_answered_when_another_gradient_is_used(self) -> None:
        gradients, first, second = with_one_credit()
        assert (first.join(), first.credits) == (1, [False]), "it joins at once, without a credit"
        first.request()
        second.request()
        assert (first.credits, second.credits) == ([False, True], [])
        assert gradients.lacks_credits

        first.push()
        assert second.credits == [], "the gradient is not used yet"
        make_update(gradients)
        assert second.credits == [True]
        assert first.answers == [], "it waits for the next credit"
        second.push()
        make_update(gradients)
        assert (first.answers, first.credits) == ([True], [False, True, True])

    def test_a_gradient_that_is_accepted_before_its_use_counts_too(self) -> None:
        gradients = make_queue(capacity=1)
        gradients.limit(1)
        sender = Sender(gradients, "a")
        sender.request()
        assert sender.push() == [], "the queued gradient uses up the limit"
        make_update(gradients)
        assert (sender.answers, sender.credits) == ([True], [True, True])

    def test_a_repeated_push_waits_for_the_same_credit(self) -> None:
        gradients, first, second = with_one_credit()
        first.request()
        second.request()
        first.push()
        make_update(gradients)
        assert first.repeat() == []
        second.push()
        make_update(gradients)
        assert (first.answers, first.credits) == ([True, True], [True, True, True])
        assert counts(gradients) == (2, 2, 0, 0)

    def test_nobody_gets_a_credit_while_there_are_no_parameters(self) -> None:
        gradients, first, second = with_one_credit()
        gradients.restart("")
        gradients.release()
        first.join()
        first.request()
        second.request()
        assert first.credits + second.credits == []
        gradients.restart("y")
        gradients.release()
        assert (first.credits, second.credits) == ([False, False], [False]), "they ask again"

    def test_the_sender_of_a_slice_keeps_its_credit_unless_others_wait(self) -> None:
        gradients, first, second = with_one_credit(sliced=True)
        first.request()
        first.push()
        make_update(gradients)
        assert first.credits == [True, True]

        second.request()
        first.push()
        make_update(gradients)
        assert first.credits[2:] == [False]
        assert second.credits == [], "other learners may not have applied that gradient yet"
        first.request()
        assert second.credits == [True]
        assert len(first.credits) == 3

    def test_the_end_of_the_run_answers_samplers_that_wait_for_credits(self) -> None:
        gradients, first, second = with_one_credit()
        first.request()
        second.request()
        gradients.close()
        assert second.credits == [True]
        assert first.push() == [False]
