"""Gradients that are applied as they come."""

from __future__ import annotations

import threading

import pytest
from gradient_senders import DEADLINE, NOW, Clock, Sender, names
from rltraining_trainer.dataflow.gradients import GradientQueue
from rltraining_trainer.dataflow.gradients.accounts import Place


class Versions:
    """Of the parameters."""

    newest = 0

    def __call__(self) -> int:
        return self.newest


def make_queue(
    count: int = 1,
    capacity: int = 0,
    max_staleness: int | None = None,
    version: Versions | None = None,
    clock: Clock | None = None,
) -> GradientQueue:
    """With an epoch, so that it hands out parameters."""
    gradients = GradientQueue(
        lambda: count,
        DEADLINE,
        version or Versions(),
        capacity=capacity,
        max_staleness=max_staleness,
        clock=clock or Clock(),
    )
    gradients.restart("x")
    gradients.release()
    return gradients


def counts(gradients: GradientQueue) -> tuple[int, int, int, int]:
    gradients.check_valid()
    return gradients.counts()[:4]


def test_a_gradient_is_answered_when_it_has_been_applied_and_not_before() -> None:
    gradients = make_queue()
    sender = Sender(gradients, "a")

    assert sender.push() == []
    assert gradients.is_ready(NOW)
    assert names(gradients.take()) == ["a"]
    assert sender.answers == [], "it is being applied: the parameters are still the old ones"
    gradients.release()
    assert sender.answers == [True]
    assert counts(gradients) == (1, 1, 0, 0)


def test_nothing_is_ready_without_gradients() -> None:
    gradients = make_queue()
    assert not gradients.is_ready(NOW)
    assert gradients.take() == []


def test_gradients_are_taken_in_the_order_in_which_they_came() -> None:
    gradients = make_queue(count=2)
    for name in "bca":
        Sender(gradients, name).push()

    assert names(gradients.take()) == ["b", "c"]
    assert not gradients.is_ready(NOW)
    assert names(gradients.take()) == ["a"]


def test_the_first_of_those_that_wait_are_answered_at_once_and_those_that_move_up_after_the_update() -> None:
    gradients = make_queue(capacity=1)
    first, second, third = (Sender(gradients, name) for name in "abc")

    assert first.push() == [True]
    assert second.push() == third.push() == [], "there is room for one"
    gradients.take()
    assert second.answers == []
    gradients.release()
    assert (second.answers, third.answers) == ([True], [])
    gradients.take()
    gradients.release()
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

    Sender(gradients, "b").push()
    Sender(gradients, "c").push()
    assert gradients.is_ready(NOW)


def test_a_repeated_push_is_applied_once_and_answered_each_time() -> None:
    gradients = make_queue()
    sender = Sender(gradients, "a")
    sender.push()
    sender.repeat()

    assert len(gradients.take()) == 1
    gradients.release()
    assert sender.answers == [True, True]
    assert sender.repeat() == [True] * 3
    assert not gradients.is_ready(NOW)
    assert counts(gradients) == (1, 1, 0, 0)


def test_a_push_that_is_repeated_while_its_gradient_is_applied_waits_for_the_update() -> None:
    """It would go on with the parameters that it has already."""
    gradients = make_queue()
    sender = Sender(gradients, "a")
    sender.push()
    gradients.take()

    assert sender.repeat() == []
    gradients.release()
    assert sender.answers == [True, True]


def test_a_new_incarnation_counts_anew() -> None:
    gradients = make_queue()
    Sender(gradients, "a", "first").push()
    Sender(gradients, "a", "second").push()
    assert counts(gradients) == (2, 0, 0, 2)


@pytest.mark.parametrize(("version", "used"), [(7, True), (8, True), (6, False), (0, False)])
def test_a_gradient_older_by_more_versions_than_allowed_is_refused(version: int, used: bool) -> None:
    versions = Versions()
    versions.newest = 9
    gradients = make_queue(max_staleness=2, version=versions)
    sender = Sender(gradients, "a")
    sender.push(version=version)

    ready = gradients.is_ready(NOW)
    assert len(gradients.take()) == ready == used
    gradients.release()
    assert sender.answers == [used]
    assert gradients.counts() == (1, int(used), int(not used), 0, int(not used))


def test_a_stale_gradient_is_not_one_of_the_count_that_makes_an_update() -> None:
    versions = Versions()
    gradients = make_queue(count=2, max_staleness=0, version=versions)
    stale, fresh = Sender(gradients, "a"), Sender(gradients, "b")
    stale.push(version=0)
    versions.newest = 1
    fresh.push(version=1)

    assert not gradients.is_ready(NOW), "only one of the two is of use"
    assert stale.answers + fresh.answers == []
    gradients.release()
    assert (stale.answers, fresh.answers) == ([False], [])
    Sender(gradients, "c").push(version=1)
    assert gradients.is_ready(NOW)
    assert names(gradients.take()) == ["b", "c"]


def test_whoever_sent_a_stale_gradient_is_answered_while_the_learner_waits_for_others() -> None:
    versions = Versions()
    clock = Clock()
    gradients = make_queue(max_staleness=0, version=versions, clock=clock)
    versions.newest = 1
    answered = threading.Event()
    sender = Sender(gradients, "a")
    sender.push(version=0)
    assert sender.last is not None
    gradients.push(sender.last, lambda used: answered.set())
    learner = threading.Thread(target=gradients.is_ready, args=[3600.0])
    learner.start()

    assert answered.wait(5), "it hears of it when the learner has stopped waiting, in an hour"
    gradients.close()
    learner.join(5)
    assert not learner.is_alive()


@pytest.mark.parametrize("repeated", [False, True])
def test_a_gradient_of_another_life_of_the_learners_is_refused_also_when_it_is_repeated(
    repeated: bool,
) -> None:
    gradients = make_queue()
    sender = Sender(gradients, "a")
    sender.push(Place("of old"))
    if repeated:
        sender.repeat()

    assert sender.answers == [False] * (1 + repeated)
    assert counts(gradients) == (1, 0, 1, 0)


def test_nobody_is_answered_while_there_are_no_parameters() -> None:
    gradients = make_queue()
    waits, comes, joins = (Sender(gradients, name) for name in "abc")
    waits.push()
    gradients.restart("")
    gradients.release()
    comes.push(Place("x"))
    joins.join()

    assert (waits.answers, comes.answers, joins.joined) == ([], [], 0)
    gradients.restart("y")
    gradients.release()
    assert (waits.answers, comes.answers, joins.joined) == ([False], [False], 1)
    assert counts(gradients) == (2, 0, 2, 0)


def test_a_gradient_of_no_parameters_is_refused_while_there_are_none() -> None:
    gradients = make_queue()
    gradients.restart("")
    gradients.release()
    assert Sender(gradients, "a").push(Place("")) == []
    assert not gradients.is_ready(NOW)
    assert counts(gradients) == (1, 0, 1, 0)


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


def test_closing_answers_also_those_who_wait_for_the_first_parameters() -> None:
    gradients = GradientQueue(lambda: 1, DEADLINE, Versions())
    sender = Sender(gradients, "a")
    sender.join()
    gradients.close()
    assert sender.joined == 1


def test_a_push_wakes_the_learner() -> None:
    gradients = make_queue()
    found: list[bool] = []
    learner = threading.Thread(target=lambda: found.append(gradients.is_ready(3600.0)))
    learner.start()
    Sender(gradients, "a").push()
    learner.join(5)
    assert found == [True]


def test_what_was_applied_since_the_checkpoint_that_all_went_back_to_is_dropped_by_that() -> None:
    gradients = make_queue()
    sender = Sender(gradients, "a")
    for number in range(5):
        sender.push()
        gradients.take()
        gradients.release()
        if number == 1:
            state = gradients.get_state()
    sender.push()
    gradients.restart("")
    gradients.set_state(state)
    assert counts(gradients) == (6, 2, 4, 0)
    gradients.restart("y")
    gradients.release()

    assert sender.answers == [True] * 5 + [False]
    assert sender.repeat()[-1] is False, "a push of before is not taken as a new one"
    assert counts(gradients) == (6, 2, 4, 0)


def test_a_learner_that_begins_at_a_checkpoint_knows_what_came_before() -> None:
    gradients = make_queue()
    sender = Sender(gradients, "a")
    sender.push()
    gradients.take()
    gradients.release()
    sender.push()
    restored = make_queue()
    restored.set_state(gradients.get_state())
    assert counts(restored) == (2, 1, 1, 0)

    sender.gradients = restored
    sender.repeat()
    assert counts(restored) == (2, 1, 1, 0)
    sender.push()
    assert counts(restored) == (3, 1, 1, 1)


def test_a_checkpoint_before_the_update_does_not_know_what_was_taken_for_it() -> None:
    gradients = make_queue()
    Sender(gradients, "a").push()
    assert len(gradients.take()) == 1

    assert gradients.get_state()["applied"] == 0
    gradients.release()
    assert gradients.get_state()["applied"] == 1
