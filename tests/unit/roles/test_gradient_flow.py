"""The learners' side of gradients: holders, each of a slice of the parameters, that take the same gradients in step."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.group import GroupChanged
from rltraining_trainer.roles import gradient_flow
from rltraining_trainer.roles.context import Context, read_job
from rltraining_trainer.roles.gradient_flow import HELD, GradientFlow
from rltraining_trainer.transport import Parked

SPACES = (spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2))
DEADLINE = 0.01
"""Seconds: the few that wait for it do so really."""
A2C: dict[str, Any] = {
    "aggregate": {"deadlineSeconds": DEADLINE},
    "optimizer": {"sgd": {}},
    "gradientClip": 1.0,
}
A3C: dict[str, Any] = {"aggregate": {"mode": "Async", "count": 1}, "optimizer": {"sgd": {}}}
PPO: dict[str, Any] = {
    "aggregate": {"deadlineSeconds": DEADLINE},
    "epochs": 2,
    "minibatches": 2,
    "targetKl": 0.1,
}


class Sampler:
    """Sends gradients to all holders; ``answers``: what each of them has answered."""

    def __init__(self, holders: Holders, index: int) -> None:
        self.holders, self.name = holders, f"pole-sampler-{index}"
        self.incarnation = "a"
        self.answers: list[list[dict[str, Any]]] = [[] for _ in holders.flows]
        self._sequence = 0

    def pull(self) -> None:
        for number in range(len(self.holders.flows)):
            self._call(number, "pull", {"version": 0})

    def push(
        self, gradient: torch.Tensor, *, to: tuple[int, ...] = (0, 1), kl: float = 0.0, place: Any = None
    ) -> None:
        """A gradient ``[N]`` of the place that was last answered, to these holders."""
        self._sequence += 1
        flows = self.holders.flows
        size, count = gradient.numel(), len(flows)
        for number in range(count):
            if number in to:
                last = self.answers[number][-1]
                message = {
                    "incarnation": self.incarnation,
                    "sequence": self._sequence,
                    "version": last["version"],
                    "place": place or last["place"],
                    "gradient": gradient[number * size // count : (number + 1) * size // count].clone(),
                    "weight": 1.0,
                    "steps": 5,
                    "returns": torch.ones(2) if number == 0 else torch.zeros(0),
                    "terms": {"loss": 1.0, "kl": kl},
                }
                self._call(number, "push", message)

    @property
    def last(self) -> list[dict[str, Any]]:
        return [answers[-1] for answers in self.answers]

    def _call(self, number: int, service: str, message: dict[str, Any]) -> None:
        parked = self.holders.flows[number].services[service](self.name, message)
        assert isinstance(parked, Parked)
        parked.attach(lambda answer: self.answers[number].append(answer[1]))


class Sum:
    """Reduces over threads."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count, timeout=5)
        self._parts: dict[int, torch.Tensor] = {}

    def __call__(self, number: int) -> Callable[[torch.Tensor, float], float]:
        def reduce(values: torch.Tensor, count: float) -> float:
            self._parts[number] = values.clone()
            self._barrier.wait()
            total = torch.stack([self._parts[key] for key in sorted(self._parts)]).sum(0)
            self._barrier.wait()
            values.copy_(total)
            return count

        return reduce


class Holders:
    """All learners of a job, and the rounds that they go through as their loops do."""

    def __init__(self, folder: Path, algorithm: dict[str, Any], count: int = 2, samplers: int = 2) -> None:
        job = {
            "apiVersion": "rltraining.dev/v1alpha1",
            "kind": "RLTrainingJob",
            "metadata": {"name": "pole"},
            "spec": {
                "algorithm": algorithm,
                "environment": {"id": "CartPole-v1"},
                "learner": {"replicas": count},
                "stop": {"environmentSteps": 1000},
            },
        }
        (folder / "job.json").write_text(json.dumps(job))
        self.models = [ModelServer() for _ in range(count)]
        self.flows = [self._make(folder, index, count, samplers) for index in range(count)]
        for flow, models in zip(self.flows, self.models, strict=True):
            models.publish(flow.algorithm.parameters)

    def _make(self, folder: Path, index: int, count: int, samplers: int) -> GradientFlow:
        context = Context(
            job=read_job(folder / "job.json"),
            job_file=folder / "job.json",
            token="secret",
            pod=f"pole-learner-{index}",
            index=index,
            http_port=0,
            learners=tuple(f"http://{number}:1" for number in range(count)),
            replays=(),
            output=folder,
        )
        torch.manual_seed(0)
        live: Any = SimpleNamespace(samplers=samplers, look=lambda now: None)
        endpoint: Any = SimpleNamespace(incarnation=f"life of {index}")
        settings: Any = context.job.spec.algorithm.parameters
        device = torch.device("cpu")
        return GradientFlow(context, settings, SPACES, self.models[index], device, live, lambda: endpoint)

    def form(self) -> None:
        state = self.flows[0].get_common_state()
        for flow, models in zip(self.flows[1:], self.models[1:], strict=True):
            flow.set_common_state(state)
            models.publish(flow.algorithm.parameters)
        for rank, flow in enumerate(self.flows):
            flow.share(rank, len(self.flows))

    def part(self) -> None:
        for flow in self.flows:
            flow.part()

    def round(self, timeout: float = 0.0, before_learning: Callable[[], None] = lambda: None) -> bool:
        """Whether there was an update of all."""
        batches = [flow.next_batch(timeout) for flow in self.flows]
        pairs = list(zip(self.flows, batches, strict=True))
        update = any(flow.allows_update(batch) for flow, batch in pairs)
        held = any(flow.holds(batch) for flow, batch in pairs)
        normalizer = max(0.0 if batch is None else flow.normalizer(batch) for flow, batch in pairs)
        if update and not held:
            before_learning()
            self.together(lambda number, reduce: self._learn(number, batches[number], normalizer, reduce))
        for flow in self.flows:
            flow.tend(0.0)
        return update and not held

    def _learn(self, number: int, batch: Any, normalizer: float, reduce: Any) -> None:
        flow = self.flows[number]
        updates = flow.algorithm.updates
        flow.learn(batch, normalizer, reduce)
        if flow.algorithm.updates != updates:
            self.models[number].publish(flow.algorithm.parameters)

    def together(self, act: Callable[[int, Any], None]) -> None:
        """All do it, each in a thread."""
        reduce, failures = Sum(len(self.flows)), []

        def run(number: int) -> None:
            try:
                act(number, reduce(number))
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=run, args=[number]) for number in range(len(self.flows))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert not failures

    @property
    def parameters(self) -> torch.Tensor:
        return torch.cat([flow.algorithm.parameters for flow in self.flows]).clone()

    def counts(self, name: str) -> list[float | None]:
        return [flow.metrics()[f"gradients/{name}"] for flow in self.flows]


def make(folder: Path, algorithm: dict[str, Any], **options: Any) -> tuple[Holders, list[Sampler]]:
    """Holders in a group, and samplers that have their parameters."""
    holders = Holders(folder, algorithm, **options)
    samplers = [Sampler(holders, index) for index in range(options.get("samplers", 2))]
    holders.form()
    for sampler in samplers:
        sampler.pull()
    return holders, samplers


def gradient_like(parameters: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.randn(parameters.numel(), generator=torch.Generator().manual_seed(seed))


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
