"""The learners' side of gradients: holders, each of a slice of the parameters, that take the same gradients in step."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gradient_holders import A2C, A3C, DEADLINE, PPO, Sampler, gradient_like, make
from rltraining_trainer.group import GroupChanged
from rltraining_trainer.roles import gradient_flow
from rltraining_trainer.roles.gradient_flow import HELD


def test_two_holders_make_of_the_same_gradients_what_one_makes(tmp_path: Path) -> None:
    """Also where they clip, which takes the norm of the whole."""
    results = []
    for count in (1, 2):
        holders, samplers = make(tmp_path, {"a2c": A2C}, count=count)
        for step in range(3):
            for number, sampler in enumerate(samplers):
                sampler.push(gradient_like(holders.parameters, 2 * step + number))
            assert holders.round()
        results.append(holders.parameters)
        assert holders.counts("applied") == [6] * count
    torch.testing.assert_close(*results)


def test_a_gradient_that_has_reached_one_holder_only_is_left_out_at_both(tmp_path: Path) -> None:
    holders, (first, second) = make(tmp_path, {"a2c": A2C})
    before, gradient = holders.parameters, gradient_like(holders.parameters, 1) / 1e3
    first.push(gradient)
    second.push(gradient_like(before, 2), to=(1,))

    assert holders.round(timeout=5)
    rate = holders.flows[0].algorithm.learning_rate(0)
    torch.testing.assert_close(holders.parameters, before - rate * gradient, rtol=1e-3, atol=1e-7)
    assert (holders.counts("applied"), holders.counts("dropped")) == ([1, 1], [0, 1])
    assert [answer["used"] for answer in first.last] == [True, True]
    assert second.last[1]["used"] is False
    assert {answer["place"] for answer in (*first.last, second.last[1])} == {first.last[0]["place"]}


def test_slices_of_two_lives_of_a_sampler_make_no_update(tmp_path: Path) -> None:
    """It died when one holder had its gradient, and its next life has reached the other one only."""
    holders, (first, second) = make(tmp_path, {"a2c": A2C})
    before, gradient = holders.parameters, gradient_like(holders.parameters, 1) / 1e3
    first.push(gradient)
    second.push(gradient_like(before, 2), to=(0,))
    second.incarnation = "another life"
    second.push(gradient_like(before, 3), to=(1,))

    assert holders.round(timeout=5)
    rate = holders.flows[0].algorithm.learning_rate(0)
    torch.testing.assert_close(holders.parameters, before - rate * gradient, rtol=1e-3, atol=1e-7)
    assert (holders.counts("applied"), holders.counts("dropped")) == ([1, 1], [1, 1])


def test_a_gradient_that_comes_after_the_holders_have_begun_to_agree_is_in_no_update(tmp_path: Path) -> None:
    holders, (first, second) = make(tmp_path, {"a2c": A2C})
    first.push(gradient_like(holders.parameters, 1))
    late = gradient_like(holders.parameters, 2)

    assert holders.round(timeout=5, before_learning=lambda: second.push(late))
    assert holders.counts("applied") == [1, 1]
    assert [answer["used"] for answer in second.last] == [False, False]


def test_a_holder_without_gradients_holds_the_others_and_after_long_all_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders, (first, _) = make(tmp_path, {"a2c": A2C}, samplers=2)
    now = 100.0
    monkeypatch.setattr(gradient_flow, "time", SimpleNamespace(monotonic=lambda: now))
    first.push(gradient_like(holders.parameters, 1), to=(0,))
    (ready, waiting) = holders.flows
    batch = ready.next_batch(5)

    assert batch is not None
    assert waiting.next_batch(0) is None
    assert waiting.holds(None)
    assert not ready.holds(batch)
    now += HELD * DEADLINE + 0.01
    with pytest.raises(GroupChanged, match="no gradients for long"):
        ready.holds(batch)


def test_all_holders_are_of_one_epoch_and_each_group_has_its_own(tmp_path: Path) -> None:
    holders, (sampler, _) = make(tmp_path, {"a2c": A2C})
    epochs = []
    for _ in range(3):
        sampler.pull()
        assert len({answer["place"] for answer in sampler.last}) == 1
        epochs.append(sampler.last[0]["place"][0])
        holders.part()
        holders.models[0].publish(holders.flows[0].algorithm.parameters)  # gone back
        holders.form()
    assert len(set(epochs)) == 3
    assert all(epochs)


@pytest.mark.parametrize("algorithm", [{"a2c": A2C}, {"a3c": A3C}], ids=["in step", "as they come"])
def test_nothing_is_answered_while_a_holder_is_missing(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    holders, (first, second) = make(tmp_path, algorithm)
    first.push(gradient_like(holders.parameters, 1))
    holders.part()
    second.push(gradient_like(holders.parameters, 2))
    second.pull()
    holders.flows[0].share(0, 1)
    for flow in holders.flows:
        flow.tend(0.0)
    assert [len(answers) for answers in (*first.answers, *second.answers)] == [1] * 4

    holders.form()
    assert [len(answers) for answers in (*first.answers, *second.answers)] == [2, 2, 3, 3]
    assert [answer["used"] for answer in first.last] == [False, False]
    assert holders.counts("applied") == [0, 0]
    assert holders.counts("dropped") == [2, 2]


def test_holders_apply_gradients_as_they_come_whatever_the_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient_flow, "SPAN", 0.0)
    holders, (first, _) = make(tmp_path, {"a3c": A3C})
    versions = [models.version for models in holders.models]
    first.push(gradient_like(holders.parameters, 1), to=(1,))

    assert holders.round()
    assert holders.counts("applied") == [0, 1]
    assert [models.version for models in holders.models] == [versions[0], versions[1] + 1]
    assert [answer["used"] for answer in first.last] == [False, True]


def test_a_look_at_the_others_makes_no_new_version_where_there_was_no_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions are what staleness is counted in, and samplers would fetch what they have."""
    monkeypatch.setattr(gradient_flow, "SPAN", 0.005)
    holders, (first, _) = make(tmp_path, {"a3c": A3C})
    version = holders.models[0].version
    first.push(gradient_like(holders.parameters, 1), to=(1,))
    assert holders.round()
    assert holders.models[0].version == version


def test_a_gradient_that_comes_during_a_span_is_applied_and_answered_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient_flow, "SPAN", 0.1)
    holders, (first, second) = make(tmp_path, {"a3c": A3C}, count=2)
    first.push(gradient_like(holders.parameters, 1))
    assert holders.round(before_learning=lambda: second.push(gradient_like(holders.parameters, 2)))
    assert holders.counts("applied") == [2, 2]
    assert [flow.algorithm.environment_steps for flow in holders.flows] == [10, 10]
    assert [answer["used"] for answer in (*first.last, *second.last)] == [True] * 4


@pytest.mark.parametrize(("capacity", "before"), [(0, 1), (1, 2)])
def test_an_update_never_waits_for_more_gradients_than_there_can_be(
    tmp_path: Path, capacity: int, before: int
) -> None:
    """Of two samplers; those in the queue have been answered, so that their samplers go on and send another one."""
    aggregate = A3C["aggregate"] | {"count": 5, "queueCapacity": capacity, "deadlineSeconds": 3600}
    holders, (first, second) = make(tmp_path, {"a3c": A3C | {"aggregate": aggregate}}, count=1)
    for number in range(before):
        first.push(gradient_like(holders.parameters, number))
    assert not holders.round()
    second.push(gradient_like(holders.parameters, 7))
    assert holders.round()
    assert holders.counts("applied") == [before + 1]


def test_a_checkpoint_of_all_holders_is_whole_and_all_go_back_to_it(tmp_path: Path) -> None:
    holders, samplers = make(tmp_path, {"a2c": A2C})
    for step in range(3):
        if step == 1:
            holders.together(lambda number, reduce: holders.flows[number].collect(reduce))
            state = holders.flows[0].algorithm.get_state()
            kept = state["parameters"].clone()
            assert torch.equal(kept, holders.parameters)
        for sampler in samplers:
            sampler.push(gradient_like(holders.parameters, step))
        assert holders.round()
    assert not torch.equal(kept, holders.parameters)

    holders.part()
    holders.flows[0].algorithm.set_state(state)
    holders.form()
    assert torch.equal(holders.parameters, kept)
    assert [flow.algorithm.updates for flow in holders.flows] == [1, 1]


def test_steps_and_returns_are_told_once(tmp_path: Path) -> None:
    holders, samplers = make(tmp_path, {"a2c": A2C})
    for sampler in samplers:
        sampler.push(gradient_like(holders.parameters, 1))
    holders.round()
    told = [flow.experiences() for flow in holders.flows]
    assert [[(one.steps, one.episodes, one.lag) for one in flow] for flow in told] == [[(5, 2, 0)] * 2, []]
    assert holders.flows[0].experiences() == []


@pytest.mark.parametrize(("kl", "place"), [(0.14, (0, 1)), (0.16, (1, 0))])
@pytest.mark.parametrize("count", [1, 2])
def test_an_iteration_of_ppo_ends_where_the_policy_has_moved_too_far(
    tmp_path: Path, kl: float, place: tuple[int, int], count: int
) -> None:
    """The mean over samplers counts."""
    holders, samplers = make(tmp_path, {"ppo": PPO}, count=count)
    for sampler, own in zip(samplers, (kl + 0.1, kl - 0.1), strict=True):
        sampler.push(gradient_like(holders.parameters, 1), kl=own)
    assert holders.round()
    assert {answer["place"][1:] for sampler in samplers for answer in sampler.last} == {place}


def test_holders_give_up_an_iteration_together_when_its_only_sampler_was_started_anew(tmp_path: Path) -> None:
    """One by one they would be at different places, for ever."""
    holders, (sampler,) = make(tmp_path, {"ppo": PPO}, samplers=1)
    sampler.push(gradient_like(holders.parameters, 1))
    holders.round()
    parameters = holders.parameters
    anew = Sampler(holders, 0)
    anew.pull()
    assert anew.answers == [[], []], "it has no rollout of this iteration"

    assert holders.round()
    assert [answer["place"][1:] for answer in anew.last] == [(1, 0), (1, 0)]
    assert torch.equal(holders.parameters, parameters)


def test_the_end_is_told_to_those_who_wait_at_any_holder(tmp_path: Path) -> None:
    holders, (first, _) = make(tmp_path, {"a2c": A2C})
    first.push(gradient_like(holders.parameters, 1))
    for flow in holders.flows:
        flow.finish()
    assert [(answer["done"], answer["used"]) for answer in first.last] == [(True, False)] * 2
