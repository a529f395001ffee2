"""The services for samplers, without a network. tests/integration tests them with a network."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rltraining_trainer.dataflow import ModelServer, Source, TrajectoryQueue, TrajectoryServer
from rltraining_trainer.transport import DeferredReply
from soak import SOAK


class Answer(list[Any]):
    """The answers that the endpoint sends back: once, immediately or later."""

    def __init__(self, deferred: DeferredReply) -> None:
        super().__init__()
        self._arrived = threading.Event()
        deferred.attach(self._take)

    def wait(self) -> None:
        assert self._arrived.wait(60), "no answer"

    def _take(self, answer: Any) -> None:
        self.append(answer[1])
        self._arrived.set()


class Learner:
    def __init__(self, capacity: int = 1) -> None:
        self.queue = TrajectoryQueue(capacity)
        self.models = ModelServer()
        self.server = TrajectoryServer(self.queue, self.models)
        self.models.publish(torch.full((4,), 1.0))

    def push(
        self, sequence: int, version: int = 1, sender: str = "sampler-0", incarnation: str = "a"
    ) -> Answer:
        item = {"reward": torch.full((2, 1), float(sequence))}
        payload = {"incarnation": incarnation, "sequence": sequence, "version": version, "item": item}
        return Answer(self.server.push(sender, payload))

    def pull(self, version: int) -> dict[str, Any]:
        answer = self.server.pull("sampler-0", {"version": version})
        assert isinstance(answer, dict)
        return answer


def test_an_item_arrives_with_its_source_and_version() -> None:
    learner = Learner()
    learner.push(sequence=5, version=1)

    trajectory = learner.queue.get(0)
    assert trajectory is not None
    assert trajectory.source == Source("sampler-0", "a", 5)
    assert trajectory.version == 1
    assert trajectory.item["reward"].tolist() == [[5.0], [5.0]]


def test_parameters_come_only_when_they_are_new() -> None:
    learner = Learner(capacity=2)

    assert learner.push(1, version=1)[0] == {
        "version": 1,
        "parameters": None,
        "done": False,
        "credit": True,
        "ahead": True,
    }
    answer = learner.push(2, version=0)[0]
    assert answer["version"] == 1
    assert answer["parameters"].tolist() == [1.0] * 4


def test_a_parked_answer_brings_the_parameters_of_the_moment_it_is_given() -> None:
    learner = Learner(capacity=1)
    learner.push(1)
    deferred = learner.push(2, version=1)
    assert not deferred

    learner.models.publish(torch.full((4,), 2.0))
    learner.queue.get(0)

    assert deferred[0]["version"] == 2
    assert deferred[0]["parameters"].tolist() == [2.0] * 4


def test_a_pull_pushes_nothing() -> None:
    learner = Learner()

    assert learner.pull(version=1) == {
        "version": 1,
        "parameters": None,
        "done": False,
        "credit": True,
        "ahead": True,
    }
    assert learner.pull(version=99)["parameters"] is not None
    assert learner.queue.counts().pushed == 0


def test_the_end_of_the_run_answers_everybody_at_once() -> None:
    learner = Learner(capacity=1)
    learner.push(1)
    deferred = learner.push(2)
    learner.server.finish()

    assert deferred[0]["done"]
    assert learner.push(3)[0]["done"]
    assert learner.pull(version=1)["done"]
    assert learner.queue.counts() == (3, 0, 3, 0, 0)


GOOD = {"incarnation": "a", "sequence": 1, "version": 0, "item": {}}


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (None, "version"),
        ([], "version"),
        *(({name: value for name, value in GOOD.items() if name != field}, field) for field in GOOD),
        ({**GOOD, "sequence": "1"}, "sequence"),
    ],
)
def test_what_is_no_push_is_refused_by_field(payload: Any, field: str) -> None:
    learner = Learner()

    with pytest.raises(TypeError, match=f"the field {field} must be a"):
        learner.server.push("sampler-0", payload)
    assert learner.queue.counts().pushed == 0


@settings(max_examples=15 * SOAK)
@given(
    capacity=st.integers(0, 3),
    plans=st.lists(
        st.lists(st.sampled_from(["push", "repeat", "die"]), min_size=1, max_size=12), min_size=1, max_size=4
    ),
    finish_after=st.integers(0, 20),
)
def test_threads_in_any_order_lose_and_double_nothing(
    capacity: int, plans: list[list[str]], finish_after: int
) -> None:
    learner = Learner(capacity)
    sent: list[Source] = []
    answered: list[Answer] = []

    def sample(name: str, plan: list[str]) -> None:
        incarnation, sequence = 0, 0
        for step in plan:
            if step == "die":  # killed with a push in flight; returns as a new incarnation
                answered.append(learner.push(sequence + 1, sender=name, incarnation=str(incarnation)))
                sent.append(Source(name, str(incarnation), sequence + 1))
                incarnation, sequence = incarnation + 1, 0
                continue
            sequence += 1
            answers = [
                learner.push(sequence, sender=name, incarnation=str(incarnation))
                for _ in range(2 if step == "repeat" else 1)
            ]
            sent.append(Source(name, str(incarnation), sequence))
            answered.extend(answers)
            for answer in answers:
                answer.wait()

    samplers = [
        threading.Thread(target=sample, args=(f"sampler-{index}", plan)) for index, plan in enumerate(plans)
    ]
    for sampler in samplers:
        sampler.start()
    used: list[Source] = []
    while len(used) < finish_after and any(sampler.is_alive() for sampler in samplers):
        trajectory = learner.queue.get(0.01)
        learner.queue.check_valid()
        if trajectory is not None:
            used.append(trajectory.source)
    learner.server.finish()
    for sampler in samplers:
        sampler.join(60)
        assert not sampler.is_alive()

    learner.queue.check_valid()
    assert learner.queue.counts().pushed == len(sent)
    assert learner.queue.counts().used == len(used)
    assert len(set(used)) == len(used)
    assert set(used) <= set(sent)
    assert {len(answer) for answer in answered} == {1}, "one answer to each push"
