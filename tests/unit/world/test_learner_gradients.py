"""The learners' side of gradients: replicas that average them in mode Sync, slices of the parameters in mode Async."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gradient_learners import A2C, A3C, DEADLINE, PPO, Sampler, gradient_like, make
from rltraining_trainer.algorithms import rollouts


@pytest.mark.parametrize("reduction", ["Mean", "Sum"])
def test_two_synchronous_learners_make_the_same_updates_as_one(tmp_path: Path, reduction: str) -> None:
    """Holds also if the norm of the combined gradient is clipped."""
    aggregate = A2C["aggregate"] | {"reduction": reduction}
    results = []
    for count in (1, 2):
        learners, samplers = make(tmp_path, {"a2c": A2C | {"aggregate": aggregate}}, count=count)
        for step in range(3):
            for number, sampler in enumerate(samplers):
                sampler.push(gradient_like(learners.parameters, 2 * step + number))
            assert learners.round()
        results.append(learners.parameters)
        assert learners.counts("applied") == [6 // count] * count
        assert [server.environment_steps for server in learners.servers] == [30] * count
        for server in learners.servers:
            assert torch.equal(server.parameters, learners.servers[0].parameters)
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    ("algorithm", "own"),
    [({"a2c": A2C}, [{0, 2, 4}, {1, 3}]), ({"a3c": A3C}, [{0, 1, 2, 3, 4}] * 2)],
    ids=["Sync", "Async"],
)
def test_synchronous_learners_have_separate_samplers_by_index(
    tmp_path: Path, algorithm: dict[str, Any], own: list[set[int]]
) -> None:
    """Learners with slices receive the gradients of all samplers."""
    learners, _ = make(tmp_path, algorithm, samplers=5)
    found = [set(path._samplers()) for path in learners.paths]
    assert found == [{f"pole-sampler-{index}" for index in indices} for indices in own]


def test_an_update_waits_for_the_samplers_of_its_learner_only(tmp_path: Path) -> None:
    learners, samplers = make(tmp_path, {"a2c": A2C | {"aggregate": {"deadlineSeconds": 3600}}}, samplers=4)
    for sampler in samplers[::2]:
        sampler.push(gradient_like(learners.parameters, 1))
    assert len(learners.runs[0].take(0.0)) == 2
    samplers[1].push(gradient_like(learners.parameters, 1))
    assert learners.runs[1].take(0.0) == []


def test_a_learner_without_gradients_delays_the_others_for_at_most_the_deadline(tmp_path: Path) -> None:
    learners, samplers = make(tmp_path, {"a2c": A2C})
    now = 100.0
    for path in learners.paths:
        path._clock = lambda: now
    for sampler in samplers:
        sampler.push(gradient_like(learners.parameters, 1))
    assert learners.round()

    samplers[0].push(gradient_like(learners.parameters, 2))
    now += DEADLINE / 2
    assert not learners.round(), "the samplers of the other learner have time until the deadline"
    assert learners.batches[0]
    samplers[1].push(gradient_like(learners.parameters, 3))
    assert learners.round()
    assert learners.counts("applied") == [2, 2]

    samplers[0].push(gradient_like(learners.parameters, 4))
    now += 1.01 * DEADLINE
    assert learners.round(), "and no longer"
    assert learners.counts("applied") == [3, 2]
    samplers[0].push(gradient_like(learners.parameters, 5))
    assert learners.round(), "dead samplers delay no further update"
    for server in learners.servers:
        assert torch.equal(server.parameters, learners.servers[0].parameters)


@pytest.mark.parametrize(
    ("algorithm", "count"), [({"a3c": A3C}, 2), ({"a2c": A2C}, 1)], ids=["slices", "one"]
)
def test_only_learners_that_average_their_updates_wait_for_data(
    tmp_path: Path, algorithm: dict[str, Any], count: int
) -> None:
    learners, (sampler, _) = make(tmp_path, algorithm, count=count)
    sampler.push(gradient_like(learners.parameters, 1))
    assert learners.round(timeout=5.0)
    assert not any(path.waits_for_data(None) for path in learners.paths)


def test_learners_with_slices_have_one_epoch_and_each_group_another(tmp_path: Path) -> None:
    learners, (sampler, _) = make(tmp_path, {"a3c": A3C})
    epochs = []
    for _ in range(3):
        sampler.pull()
        assert len({answer["place"] for answer in sampler.last}) == 1
        epochs.append(sampler.last[0]["place"][0])
        learners.leave()
        learners.runs[0].models.publish(learners.servers[0].parameters)  # rolled back
        learners.form()
    assert len(set(epochs)) == 3
    assert all(epochs)


def test_a_group_that_has_made_no_update_has_another_epoch_than_the_next(tmp_path: Path) -> None:
    """After a refusal a sampler continues its rollout in the same epoch, and A2C makes one gradient of it."""
    learners, samplers = make(tmp_path, {"a2c": A2C})
    before = [answer["place"] for sampler in samplers for answer in sampler.last]
    for sampler in samplers:
        sampler.push(gradient_like(learners.parameters, 1))
    learners.leave()
    learners.form()
    answers = [answer for sampler in samplers for answer in sampler.last]
    assert [answer["used"] for answer in answers] == [False, False]
    assert not {answer["place"][0] for answer in answers} & {epoch for epoch, *_ in before}


def test_gradients_of_an_update_that_was_not_made_are_refused(tmp_path: Path) -> None:
    """Otherwise their samplers would not send the steps and returns again, which no update has counted."""
    learners, samplers = make(tmp_path, {"a2c": A2C})
    for sampler in samplers:
        sampler.push(gradient_like(learners.parameters, 1))
    assert [len(run.take(0.0)) for run in learners.runs] == [1, 1]
    learners.leave()
    learners.form()
    assert [answer["used"] for sampler in samplers for answer in sampler.last] == [False, False]
    assert (learners.counts("applied"), learners.counts("dropped")) == ([0, 0], [1, 1])
    for path in learners.paths:
        path._source.check_valid()


def test_no_sampler_is_answered_while_a_slice_is_missing(tmp_path: Path) -> None:
    learners, (first, second) = make(tmp_path, {"a3c": A3C})
    first.push(gradient_like(learners.parameters, 1))
    learners.leave()
    second.push(gradient_like(learners.parameters, 2))
    second.pull()
    learners.paths[0].on_group_formed(0, 1)
    for path in learners.paths:
        path.tick()
    answers = [*first.answers.values(), *second.answers.values()]
    assert [len(found) for found in answers] == [1] * 4

    learners.form()
    assert [len(found) for found in answers] == [2, 2, 3, 3]
    assert [answer["used"] for answer in first.last] == [False, False]
    assert learners.counts("applied") == [0, 0]
    assert learners.counts("dropped") == [2, 2]


def test_a_synchronous_learner_continues_without_the_others(tmp_path: Path) -> None:
    """Each learner has the complete state. A gradient that was queued before the loss is rejected."""
    learners, (first, second) = make(tmp_path, {"a2c": A2C})
    first.push(gradient_like(learners.parameters, 1))
    learners.leave()
    learners.paths[0].on_group_formed(0, 1)
    assert first.last[0]["used"] is False
    assert first.last[0]["place"][0]
    assert len(second.answers[1]) == 1, "its learner is in no group yet"


def test_slices_are_updated_on_arrival_whatever_the_other_learners_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "FREE_RUN_SECONDS", 0.0)
    learners, (first, _) = make(tmp_path, {"a3c": A3C})
    versions = [run.models.version for run in learners.runs]
    first.push(gradient_like(learners.parameters, 1), to=(1,))

    assert learners.round()
    assert learners.counts("applied") == [0, 1]
    assert [run.models.version for run in learners.runs] == [versions[0], versions[1] + 1]
    assert [answer["used"] for answer in first.last] == [False, True]


def test_a_round_without_an_update_makes_no_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Staleness is counted in versions. Otherwise samplers would fetch parameters that they already have."""
    monkeypatch.setattr(rollouts, "FREE_RUN_SECONDS", 0.005)
    learners, (first, _) = make(tmp_path, {"a3c": A3C})
    version = learners.runs[0].models.version
    first.push(gradient_like(learners.parameters, 1), to=(1,))
    assert learners.round()
    assert learners.runs[0].models.version == version


def test_a_gradient_that_arrives_between_two_rounds_is_applied_and_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "FREE_RUN_SECONDS", 0.1)
    learners, (first, second) = make(tmp_path, {"a3c": A3C})
    first.push(gradient_like(learners.parameters, 1))
    assert learners.round(before_update=lambda: second.push(gradient_like(learners.parameters, 2)))
    assert learners.counts("applied") == [2, 2]
    assert [server.environment_steps for server in learners.servers] == [10, 10]
    assert [answer["used"] for answer in (*first.last, *second.last)] == [True] * 4


@pytest.mark.parametrize(("capacity", "before"), [(0, 1), (1, 2)])
def test_an_update_never_waits_for_more_gradients_than_can_exist(
    tmp_path: Path, capacity: int, before: int
) -> None:
    """Covers two samplers. Queued gradients have been answered, so each sampler sends another one."""
    aggregate = A3C["aggregate"] | {"count": 5, "queueCapacity": capacity, "deadlineSeconds": 3600}
    learners, (first, second) = make(tmp_path, {"a3c": A3C | {"aggregate": aggregate}}, count=1)
    for number in range(before):
        first.push(gradient_like(learners.parameters, number))
    assert not learners.round()
    second.push(gradient_like(learners.parameters, 7))
    assert learners.round()
    assert learners.counts("applied") == [before + 1]


def test_a_checkpoint_has_all_slices_and_all_learners_roll_back_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "FREE_RUN_SECONDS", 0.0)
    learners, samplers = make(tmp_path, {"a3c": A3C})
    for step in range(3):
        if step == 1:
            learners.together(lambda number, reduce: learners.paths[number].gather_state(reduce))
            state = learners.servers[0].get_state()
            kept = state["parameters"].clone()
            assert torch.equal(kept, learners.parameters)
        samplers[step % 2].push(gradient_like(learners.parameters, step))
        assert learners.round()
    assert not torch.equal(kept, learners.parameters)

    learners.leave()
    learners.servers[0].set_state(state)
    learners.form()
    assert torch.equal(learners.parameters, kept)
    assert [server.updates for server in learners.servers] == [1, 1]


def test_no_slices_are_gathered_while_a_learner_is_missing(tmp_path: Path) -> None:
    """The gathered state would be incomplete. The state after the rollback is complete."""
    learners, _ = make(tmp_path, {"a3c": A3C})
    learners.leave()

    def fail(values: Any, count: float) -> float:
        raise AssertionError("a collective of an incomplete group")

    learners.paths[0].gather_state(fail)


@pytest.mark.parametrize(
    ("algorithm", "counted"),
    [({"a2c": A2C}, [[(5, 2, 0)], [(5, 2, 0)]]), ({"a3c": A3C}, [[(5, 2, 0), (5, 2, 1)], []])],
    ids=["Sync", "Async"],
)
def test_steps_and_returns_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: dict[str, Any], counted: Any
) -> None:
    """The sampler's learner counts them, or for slices the first learner."""
    monkeypatch.setattr(rollouts, "FREE_RUN_SECONDS", 0.0)
    learners, samplers = make(tmp_path, algorithm)
    for sampler in samplers:
        sampler.push(gradient_like(learners.parameters, 1))
    learners.round()
    learners.round()
    assert [run.counted for run in learners.runs] == counted


@pytest.mark.parametrize(("kl", "place"), [(0.14, (0, 1)), (0.16, (1, 0))])
def test_an_iteration_of_ppo_ends_when_the_policy_has_moved_too_far(
    tmp_path: Path, kl: float, place: tuple[int, int]
) -> None:
    """The mean over the samplers of a learner counts."""
    learners, samplers = make(tmp_path, {"ppo": PPO}, count=1)
    for sampler, own in zip(samplers, (kl + 0.1, kl - 0.1), strict=True):
        sampler.push(gradient_like(learners.parameters, 1), kl=own)
    assert learners.round()
    assert {answer["place"][1:] for sampler in samplers for answer in sampler.last} == {place}


@pytest.mark.parametrize(("kl", "place"), [(0.14, (0, 1)), (0.16, (1, 0))])
def test_synchronous_learners_end_an_iteration_of_ppo_together(
    tmp_path: Path, kl: float, place: tuple[int, int]
) -> None:
    """Otherwise statistics of observations would change within an iteration of the other learner."""
    learners, samplers = make(tmp_path, {"ppo": PPO})
    for sampler, own in zip(samplers, (0.05, kl), strict=True):
        sampler.push(gradient_like(learners.parameters, 1), kl=own)
    assert learners.round()
    assert {answer["place"][1:] for sampler in samplers for answer in sampler.last} == {place}


def test_an_iteration_whose_only_sampler_has_restarted_is_abandoned(tmp_path: Path) -> None:
    learners, (sampler,) = make(tmp_path, {"ppo": PPO}, samplers=1, count=1)
    sampler.push(gradient_like(learners.parameters, 1))
    learners.round()
    parameters = learners.parameters
    restarted = Sampler(learners, 0)
    restarted.pull()
    assert restarted.answers == {0: []}, "it has no rollout of this iteration"

    assert not learners.round()
    assert [answer["place"][1:] for answer in restarted.last] == [(1, 0)]
    assert torch.equal(learners.parameters, parameters)


@pytest.mark.parametrize("algorithm", [{"a2c": A2C}, {"a3c": A3C}], ids=["Sync", "Async"])
def test_the_end_of_the_run_is_sent_to_samplers_that_wait_at_any_learner(
    tmp_path: Path, algorithm: dict[str, Any]
) -> None:
    learners, samplers = make(tmp_path, algorithm)
    for sampler in samplers:
        sampler.push(gradient_like(learners.parameters, 1))
    for path in learners.paths:
        path.finish()
    last = [answer for sampler in samplers for answer in sampler.last]
    assert [(answer["done"], answer["used"]) for answer in last] == [(True, False)] * len(last)
