"""Parameter holders: several are one, what they save is whole, and what is not finite ends them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from rltraining_api.algorithms import A2c, A3c, Adam, Impala, Optimizer, Ppo, RmsProp, Sgd
from rltraining_trainer.algorithms.holder import ParameterHolder
from rltraining_trainer.algorithms.impala import ImpalaLearner
from rltraining_trainer.algorithms.reduce import Reduce
from rltraining_trainer.checkpoint import snapshot
from rltraining_trainer.errors import Diverged
from rollouts import make_network
from through_a_file import restore
from torch import Tensor

OPTIMIZERS = {
    "sgd": Optimizer(sgd=Sgd()),
    "sgd, momentum": Optimizer(sgd=Sgd(momentum=0.9)),
    "rmsprop": Optimizer(rmsprop=RmsProp()),
    "rmsprop, all of it": Optimizer(rmsprop=RmsProp(momentum=0.5, centered=True)),
    "adam": Optimizer(adam=Adam()),
}
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())


class Holders:
    """All M holders of one network; what they do together, each does in a thread of its own."""

    def __init__(self, settings: A3c | A2c | Ppo, count: int, total_steps: int | None = None) -> None:
        self.each = [
            ParameterHolder(make_network()[0], settings, total_steps, index=index, count=count)
            for index in range(count)
        ]
        self._parts: list[Any] = [None] * count
        self._barrier = threading.Barrier(count, timeout=30)

    @property
    def parameters(self) -> Tensor:
        return torch.cat([holder.parameters for holder in self.each])

    def apply(self, gradient: Tensor, steps: int = 20) -> None:
        parts = gradient.clone().split([holder.parameters.numel() for holder in self.each])
        self.together(lambda holder, index, reduce: holder.apply(parts[index], steps, reduce))

    def collect(self) -> None:
        self.together(lambda holder, _, reduce: holder.collect(reduce))

    def together(self, what: Callable[[ParameterHolder, int, Reduce], None]) -> None:
        if len(self.each) == 1:
            what(self.each[0], 0, self._sum_at(0))
            return
        with ThreadPoolExecutor(len(self.each)) as pool:
            done = [
                pool.submit(what, holder, index, self._sum_at(index))
                for index, holder in enumerate(self.each)
            ]
        for one in done:
            one.result()

    def _sum_at(self, index: int) -> Reduce:
        def reduce(values: Tensor, count: float) -> float:
            self._parts[index] = (values.clone(), count)
            self._barrier.wait()
            tensors, counts = zip(*self._parts, strict=True)
            values.copy_(torch.stack(tensors).sum(0))
            self._barrier.wait()
            return sum(counts)

        return reduce


def gradients(count: int, seed: int = 0) -> list[Tensor]:
    size = sum(parameter.numel() for parameter in make_network()[0].parameters())
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=random) for _ in range(count)]


@every_optimizer
@pytest.mark.parametrize(("count", "clip"), [(2, None), (3, 0.5)])
def test_several_holders_step_as_one(optimizer: Optimizer, clip: float | None, count: int) -> None:
    settings = A2c(optimizer=optimizer, gradient_clip=clip, learning_rate_schedule="Linear")
    one, several = Holders(settings, 1, 1000), Holders(settings, count, 1000)
    before = one.parameters.clone()

    for gradient in gradients(10):
        one.apply(gradient)
        several.apply(gradient)

    assert torch.allclose(several.parameters, one.parameters, rtol=1e-6, atol=1e-7)
    assert not torch.allclose(one.parameters, before, rtol=1e-3)
    sizes = {holder.parameters.numel() for holder in several.each}
    assert max(sizes) - min(sizes) <= 1, "they have as much to do"
    for holder in several.each:
        assert (holder.updates, holder.environment_steps) == (10, 200)


@every_optimizer
@pytest.mark.parametrize(("before", "after"), [(3, 2), (1, 3), (2, 1)])
def test_what_some_holders_saved_others_go_on_with(optimizer: Optimizer, before: int, after: int) -> None:
    settings = A2c(optimizer=optimizer, learning_rate_schedule="Linear")
    straight, saved, resumed = (Holders(settings, count, 1000) for count in (1, before, after))
    for gradient in gradients(4):
        straight.apply(gradient)
        saved.apply(gradient)
    saved.collect()
    for one in saved.each:
        state = snapshot(one.get_state())
        assert torch.allclose(state["parameters"], straight.parameters, rtol=1e-6, atol=1e-7), (
            "each has it all"
        )
    for holder in resumed.each:
        restore(holder, saved.each[0])
    for gradient in gradients(4, seed=1):
        straight.apply(gradient)
        resumed.apply(gradient)

    assert torch.allclose(resumed.parameters, straight.parameters, rtol=1e-6, atol=1e-7)
    for holder in resumed.each:
        assert (holder.updates, holder.environment_steps) == (8, 160)


def test_a_holders_network_has_what_was_last_collected() -> None:
    holders = Holders(A2c(), 3)
    holders.apply(gradients(1)[0])
    holders.collect()
    collected = holders.parameters.clone()
    for holder in holders.each:
        views = torch.cat([parameter.detach().reshape(-1) for parameter in holder.network.parameters()])
        assert torch.equal(views, collected)
    holders.apply(gradients(1)[0])

    state = holders.each[1].get_state()

    assert torch.equal(state["parameters"], collected), "whole, of one moment"
    assert (state["updates"], state["environment_steps"]) == (1, 20)
    assert not torch.equal(holders.parameters, collected)


def test_the_state_of_new_holders_is_whole() -> None:
    fresh = snapshot(Holders(A2c(), 1).each[0].get_state())
    for holder in Holders(A2c(), 3).each:
        state = holder.get_state()
        assert torch.equal(state["parameters"], fresh["parameters"])
        assert torch.equal(state["optimizer"]["square"], fresh["optimizer"]["square"])
        assert (state["updates"], state["environment_steps"]) == (0, 0)


def test_synchronous_gradients_are_clipped_here_asynchronous_ones_where_they_are_made() -> None:
    plain = {"optimizer": OPTIMIZERS["sgd"], "learning_rate": 1.0, "gradient_clip": 0.5}
    gradient = gradients(1)[0]
    steps = {}
    for name, settings in {"sync": A2c(**plain), "async": A3c(**plain)}.items():
        holder = ParameterHolder(make_network()[0], settings, None)
        before = holder.parameters.clone()
        holder.apply(gradient.clone(), 1)
        steps[name] = before - holder.parameters

    for run in steps["sync"].split(holder.network.clip_sizes):
        assert run.norm().item() == pytest.approx(0.5, rel=1e-4), "policy and value are clipped apart"
    assert torch.allclose(steps["async"], gradient, atol=1e-6)


@pytest.mark.parametrize(
    ("schedule", "total", "steps", "expected"),
    [
        ("Constant", 100, 90, 1.0),
        ("Linear", 100, 0, 1.0),
        ("Linear", 100, 25, 0.75),
        ("Linear", 100, 100, 0.0),
        ("Linear", 100, 130, 0.0),
        ("Linear", None, 130, 1.0),
    ],
)
def test_the_learning_rates_schedule(schedule: Any, total: int | None, steps: int, expected: float) -> None:
    """IMPALA's learner has a separate schedule, which must be equal."""
    settings = {"learning_rate": 0.002, "learning_rate_schedule": schedule}
    holder = ParameterHolder(make_network()[0], A3c(**settings), total)
    impala = ImpalaLearner(*make_network(), Impala(**settings), total)

    assert holder.learning_rate(steps) == pytest.approx(0.002 * expected)
    assert impala.learning_rate(steps) == holder.learning_rate(steps)


@pytest.mark.parametrize(
    ("settings", "bad"), [(A2c(), math.nan), (A2c(gradient_clip=None), math.inf), (A3c(), math.inf)]
)
def test_a_gradient_that_is_not_finite_ends_the_run_and_changes_nothing(
    settings: A2c | A3c, bad: float
) -> None:
    holder = ParameterHolder(make_network()[0], settings, None)
    first, second = gradients(2)
    holder.apply(first, 5)
    before = snapshot(holder.get_state())
    second[3] = bad

    with pytest.raises(Diverged, match=r"update 1 \(gradient_norm .*\): lower spec\.algorithm\.a[23]c\."):
        holder.apply(second, 5)

    after = holder.get_state()
    assert torch.equal(after["parameters"], before["parameters"])
    assert torch.equal(after["optimizer"]["square"], before["optimizer"]["square"])
    assert (after["updates"], after["environment_steps"]) == (1, 5)


@pytest.mark.parametrize("count", [1, 2])
def test_the_state_of_another_network_or_optimizer_is_refused(count: int) -> None:
    made = {
        name: ParameterHolder(make_network()[0], A2c(optimizer=o), None) for name, o in OPTIMIZERS.items()
    }
    states = {name: snapshot(holder.get_state()) for name, holder in made.items()}
    lstm, _ = make_network(lstm=True)
    states["lstm"] = snapshot(ParameterHolder(lstm, A2c(optimizer=OPTIMIZERS["rmsprop"]), None).get_state())
    holder = ParameterHolder(make_network()[0], A2c(optimizer=OPTIMIZERS["rmsprop"]), None, count=count)

    for name, state in states.items():
        if name == "rmsprop":
            holder.set_state(state)
        else:
            with pytest.raises((ValueError, RuntimeError, KeyError)):
                holder.set_state(state)
