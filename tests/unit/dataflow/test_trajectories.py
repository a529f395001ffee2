"""The services a sampler talks to, without a network between; with one: tests/integration."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rltraining_trainer.dataflow import ModelServer, Source, Trajectory, TrajectoryQueue, TrajectoryServer
from rltraining_trainer.transport import Parked


class Answer(list[Any]):
    """What the endpoint sends back: once, now or later."""

    def __init__(self, parked: Parked) -> None:
        super().__init__()
        parked.attach(lambda answer: self.append(answer[1]))


class Learner:
    def __init__(self, capacity: int = 1) -> None:
        self.queue: TrajectoryQueue[Trajectory] = TrajectoryQueue(capacity)
        self.models = ModelServer()
        self.server = TrajectoryServer(self.queue, self.models)
        self.models.publish(torch.full((4,), 1.0))

    def push(self, sequence: int, version: int = 1) -> Answer:
        unroll = {"reward": torch.full((2, 1), float(sequence))}
        payload = {"incarnation": "a", "sequence": sequence, "version": version, "unroll": unroll}
        return Answer(self.server.push("sampler-0", payload))

    def pull(self, version: int) -> dict[str, Any]:
        answer = self.server.pull("sampler-0", {"version": version})
        assert isinstance(answer, dict)
        return answer


def test_an_unroll_arrives_with_its_source_and_version() -> None:
    learner = Learner()
    learner.push(sequence=5, version=1)

    trajectory = learner.queue.get(0)
    assert trajectory is not None
    assert trajectory.source == Source("sampler-0", "a", 5)
    assert trajectory.version == 1
    assert trajectory.unroll["reward"].tolist() == [[5.0], [5.0]]


def test_parameters_come_only_when_they_are_new() -> None:
    learner = Learner(capacity=2)

    assert learner.push(1, version=1)[0] == {"version": 1, "parameters": None, "done": False}
    answer = learner.push(2, version=0)[0]
    assert answer["version"] == 1
    assert answer["parameters"].tolist() == [1.0] * 4


def test_a_parked_answer_brings_the_parameters_of_the_moment_it_is_given() -> None:
    learner = Learner(capacity=1)
    learner.push(1)
    parked = learner.push(2, version=1)
    assert not parked

    learner.models.publish(torch.full((4,), 2.0))
    learner.queue.get(0)

    assert parked[0]["version"] == 2
    assert parked[0]["parameters"].tolist() == [2.0] * 4


def test_a_pull_pushes_nothing() -> None:
    learner = Learner()

    assert learner.pull(version=1) == {"version": 1, "parameters": None, "done": False}
    assert learner.pull(version=99)["parameters"] is not None
    assert learner.queue.pushed == 0


def test_the_end_of_the_run_answers_everybody_at_once() -> None:
    learner = Learner(capacity=1)
    learner.push(1)
    parked = learner.push(2)
    learner.server.finish()

    assert parked[0]["done"]
    assert learner.push(3)[0]["done"]
    assert learner.pull(version=1)["done"]
    assert learner.queue.counts() == (3, 0, 3, 0)


GOOD = {"incarnation": "a", "sequence": 1, "version": 0, "unroll": {}}


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (None, "version"),
        ([], "version"),
        *(({name: value for name, value in GOOD.items() if name != field}, field) for field in GOOD),
        ({**GOOD, "sequence": "1"}, "sequence"),
        ({**GOOD, "unroll": torch.ones(1)}, "unroll"),
    ],
)
def test_what_is_no_push_is_refused_by_field(payload: Any, field: str) -> None:
    learner = Learner()

    with pytest.raises(TypeError, match=f"the field {field} must be a"):
        learner.server.push("sampler-0", payload)
    assert learner.queue.pushed == 0
