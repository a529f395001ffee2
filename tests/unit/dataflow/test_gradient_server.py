"""The services "push", "pull" and "sum", called as the endpoint calls them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from gradient_senders import NOW
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.dataflow.gradients import (
    GradientQueue,
    GradientReader,
    GradientServer,
    StragglerPolicy,
    SynchronousGradients,
    reduce_gradients,
)
from rltraining_trainer.transport import DeferredReply

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "servers.json").read_text())
SIZE = 3


class Holder:
    """A learner with the parameters 1, 2 and 3, and plain gradient descent with a learning rate of 1."""

    def __init__(self, count: int = 1) -> None:
        self.models = ModelServer()
        self.gradients = GradientQueue(lambda: count, 2.0, lambda: self.models.version)
        self.server = GradientServer(self.gradients, self.models, GradientReader(SIZE))
        self.parameters = torch.arange(1.0, SIZE + 1)
        self.models.publish(self.parameters)
        self.gradients.restart("x")
        self.gradients.release()

    def update(self, reduction: Any = "Sum") -> None:
        if self.gradients.is_ready(NOW):
            pushes = self.gradients.take()
            weights = [push.weight for push in pushes]
            self.parameters -= reduce_gradients([push.gradient for push in pushes], weights, reduction)
            self.models.publish(self.parameters)
        self.gradients.release()
        self.gradients.check_valid()


def make_push(**changes: Any) -> dict[str, Any]:
    """Returns a valid push with ``changes``. Omits fields set to ``...``."""
    push: dict[str, Any] = {
        "incarnation": "a",
        "sequence": 1,
        "version": 1,
        "place": ("x", 0, 0),
        "gradient": torch.ones(SIZE),
        "weight": 1.0,
        "steps": 4,
        "episodes": 2,
        "returns": torch.zeros(2),
        "terms": {"loss": 0.5},
    }
    return {name: value for name, value in (push | changes).items() if value is not ...}


def answers(deferred: DeferredReply) -> list[Any]:
    found: list[Any] = []
    deferred.attach(lambda answer: found.append(answer[1]))
    return found


def test_a_push_is_answered_with_the_parameters_that_it_led_to() -> None:
    holder = Holder()
    answered = answers(holder.server.push("s", make_push()))
    assert answered == []
    holder.update()
    (answer,) = answered
    assert answer.pop("parameters").tolist() == [0, 1, 2]
    assert answer == {
        "version": 2,
        "done": False,
        "place": ("x", 0, 0),
        "used": True,
        "credit": True,
        "exchanges": 1,
        "remaining": 1.0,
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, ...) for name in make_push()),
        ("gradient", torch.ones(SIZE + 1)),
        ("gradient", torch.ones(1, SIZE)),
        ("gradient", torch.ones(SIZE, dtype=torch.float64)),
        ("version", "1"),
        ("sequence", 1.0),
        ("incarnation", 7),
        ("place", ("x", 0)),
        ("place", (0, "x", 0)),
        ("weight", math.nan),
        ("weight", math.inf),
        ("weight", -1.0),
        ("steps", -1),
        ("steps", 1.5),
        ("episodes", -1),
        ("returns", torch.tensor(1.0)),
        ("terms", {"loss": "small"}),
        ("terms", [0.5]),
    ],
)
def test_a_malformed_push_is_refused_with_the_name_of_the_field(field: str, value: Any) -> None:
    """Otherwise the push would end the learner's loop, and with it the run."""
    holder = Holder()
    with pytest.raises((TypeError, ValueError), match=f"the field {field} must be"):
        holder.server.push("s", make_push(**{field: value}))
    assert holder.gradients.counts().pushed == 0


@pytest.mark.parametrize("payload", [None, 7, [], torch.zeros(3)])
def test_what_is_no_push_at_all_is_refused(payload: Any) -> None:
    holder = Holder()
    with pytest.raises(TypeError, match="the field version must be"):
        holder.server.push("s", payload)
    with pytest.raises(TypeError, match="the field version must be"):
        holder.server.pull("s", payload)


def make_in_step() -> GradientServer:
    models = ModelServer()
    gradients = SynchronousGradients(1, StragglerPolicy(lambda: ["s"]), 2.0)
    gradients.restart("x")
    gradients.release()
    return GradientServer(gradients, models, GradientReader(SIZE))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("place", ("x",)),
        ("part", torch.zeros(3)),
        ("part", torch.zeros(2, dtype=torch.float64)),
        ("part", torch.tensor(0.0, dtype=torch.float64)),
        ("part", 0.0),
    ],
)
def test_a_malformed_part_of_a_sum_is_refused(field: str, value: Any) -> None:
    part = {"place": ("x", 0, 0), "part": torch.zeros(3, dtype=torch.float64)}
    with pytest.raises((TypeError, ValueError), match=f"the field {field} must be"):
        make_in_step().sum("s", part | {field: value})


def test_samplers_in_step_add_up_and_others_need_credits() -> None:
    assert set(make_in_step().services) == {"push", "pull", "sum"}
    assert set(Holder().server.services) == {"push", "pull", "credit"}


def test_the_place_of_a_pull_is_one_of_a_rollout() -> None:
    server = make_in_step()
    (answer,) = answers(server.pull("s", {"version": 0, "place": ("x", 0, 0)}))
    assert (answer["version"], answer["parameters"], answer["place"][1:]) == (0, None, (0, 0))
    with pytest.raises(TypeError, match="the field place must be"):
        server.pull("s", {"version": 0, "place": ("x", 0)})


def test_no_answer_has_a_later_place_than_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a gradient computed with older parameters would be applied.

    The update runs while an answer is prepared.
    """
    models = ModelServer()
    gradients = SynchronousGradients(1, StragglerPolicy(lambda: ["s"]), 2.0)
    gradients.restart("x")
    gradients.release()
    server = GradientServer(gradients, models, GradientReader(SIZE))
    models.publish(torch.zeros(SIZE))
    push = answers(server.push("s", make_push()))
    newer_than = models.newer_than

    def update_meanwhile(version: int) -> tuple[int, torch.Tensor | None]:
        monkeypatch.undo()
        found = newer_than(version)
        gradients.take()
        models.publish(torch.ones(SIZE))
        gradients.release()
        return found

    monkeypatch.setattr(models, "newer_than", update_meanwhile)
    (answer,) = answers(server.pull("t", {"version": 0}))
    assert (answer["place"], answer["parameters"].tolist()) == (("x", 0, 0), [0, 0, 0])
    assert push[0]["place"] == ("x", 1, 0)


def test_the_end_is_told_to_all() -> None:
    holder = Holder()
    waiting = answers(holder.server.push("s", make_push()))
    holder.server.finish()
    late = answers(holder.server.push("t", make_push())) + answers(holder.server.pull("u", {"version": 0}))
    assert [(answer["done"], answer["used"]) for answer in waiting + late] == [(True, False)] * 3


@pytest.mark.parametrize("reduction", ["Sum", "Mean"])
def test_machins_servers_reduce_to_the_same(reduction: Any) -> None:
    """Each of two workers pushes the gradient of the product of the weights 1, 2 and 3 twice."""
    holder = Holder(count=4)
    gradient = holder.parameters.prod() / holder.parameters
    for worker in "ab":
        for sequence in range(2):
            holder.server.push(worker, make_push(gradient=gradient.clone(), sequence=sequence))
    holder.update(reduction)
    assert holder.parameters.tolist() == VECTORS["reduce"][reduction.lower()]


def test_a_mean_weighs_gradients_by_their_steps() -> None:
    gradients = [torch.tensor([4.0]), torch.tensor([0.0]), torch.tensor([9.0])]
    assert reduce_gradients(gradients, [1.0, 3.0, 0.0], "Mean").tolist() == [1.0]
    assert reduce_gradients(gradients, [0.0, 0.0, 0.0], "Mean").tolist() == [0.0]
    assert reduce_gradients(gradients[:1], [0.0], "Mean").tolist() == [4.0], "a single one is as it is"
    assert [gradient.item() for gradient in gradients] == [4, 0, 9], "the pushes are as they were"
