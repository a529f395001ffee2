"""Parameter servers: several slices act as one server, checkpoints are complete, and NaN ends the run."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from reduce_together import run_together
from rltraining_api.algorithms import A2c, A3c, Adam, Impala, Optimizer, RmsProp, Sgd
from rltraining_trainer.algorithms.impala import ImpalaLearner
from rltraining_trainer.algorithms.parameter_server import ParameterServer
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


class Servers:
    """All M slices of one network, each with a thread for collective calls."""

    def __init__(self, settings: A3c | A2c, count: int, total_steps: int | None = None) -> None:
        self.each = [
            ParameterServer(make_network()[0], settings, total_steps, index=index, count=count)
            for index in range(count)
        ]

    @property
    def parameters(self) -> Tensor:
        return torch.cat([server.parameters for server in self.each])

    def apply(self, gradient: Tensor, steps: int = 20) -> None:
        parts = gradient.clone().split([server.parameters.numel() for server in self.each])
        for server, part in zip(self.each, parts, strict=True):
            server.apply(part, steps)

    def collect(self) -> None:
        run_together([server.collect for server in self.each])


def gradients(count: int, seed: int = 0) -> list[Tensor]:
    size = sum(parameter.numel() for parameter in make_network()[0].parameters())
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=random) for _ in range(count)]


@every_optimizer
@pytest.mark.parametrize("count", [2, 3])
def test_several_slices_make_the_updates_of_one_server(optimizer: Optimizer, count: int) -> None:
    settings = A3c(optimizer=optimizer, learning_rate_schedule="Linear")
    one, several = Servers(settings, 1, 1000), Servers(settings, count, 1000)
    before = one.parameters.clone()

    for gradient in gradients(10):
        one.apply(gradient)
        several.apply(gradient)

    assert torch.allclose(several.parameters, one.parameters, rtol=1e-6, atol=1e-7)
    assert not torch.allclose(one.parameters, before, rtol=1e-3)
    sizes = {server.parameters.numel() for server in several.each}
    assert max(sizes) - min(sizes) <= 1, "they have as much to do"
    for server in several.each:
        assert (server.updates, server.environment_steps) == (10, 200)


@every_optimizer
@pytest.mark.parametrize(("before", "after"), [(3, 2), (1, 3), (2, 1)])
def test_a_checkpoint_fits_another_number_of_slices(optimizer: Optimizer, before: int, after: int) -> None:
    settings = A3c(optimizer=optimizer, learning_rate_schedule="Linear")
    straight, saved, resumed = (Servers(settings, count, 1000) for count in (1, before, after))
    for gradient in gradients(4):
        straight.apply(gradient)
        saved.apply(gradient)
    saved.collect()
    for one in saved.each:
        state = snapshot(one.get_state())
        assert torch.allclose(state["parameters"], straight.parameters, rtol=1e-6, atol=1e-7), (
            "each has it all"
        )
    for server in resumed.each:
        restore(server, saved.each[0])
    for gradient in gradients(4, seed=1):
        straight.apply(gradient)
        resumed.apply(gradient)

    assert torch.allclose(resumed.parameters, straight.parameters, rtol=1e-6, atol=1e-7)
    for server in resumed.each:
        assert (server.updates, server.environment_steps) == (8, 160)


def test_the_network_has_the_last_collected_parameters() -> None:
    servers = Servers(A3c(), 3)
    servers.apply(gradients(1)[0])
    servers.collect()
    collected = servers.parameters.clone()
    for server in servers.each:
        views = torch.cat([parameter.detach().reshape(-1) for parameter in server.network.parameters()])
        assert torch.equal(views, collected)
    servers.apply(gradients(1)[0])

    state = servers.each[1].get_state()

    assert torch.equal(state["parameters"], collected), "whole, of one moment"
    assert (state["updates"], state["environment_steps"]) == (1, 20)
    assert not torch.equal(servers.parameters, collected)


def test_the_state_of_new_slices_is_complete() -> None:
    fresh = snapshot(Servers(A3c(), 1).each[0].get_state())
    for server in Servers(A3c(), 3).each:
        state = server.get_state()
        assert torch.equal(state["parameters"], fresh["parameters"])
        assert torch.equal(state["optimizer"]["square"], fresh["optimizer"]["square"])
        assert (state["updates"], state["environment_steps"]) == (0, 0)


def test_synchronous_gradients_are_clipped_here_and_asynchronous_ones_in_samplers() -> None:
    plain = {"optimizer": OPTIMIZERS["sgd"], "learning_rate": 1.0, "gradient_clip": 0.5}
    gradient = gradients(1)[0]
    steps = {}
    for name, settings in {"sync": A2c(**plain), "async": A3c(**plain)}.items():
        server = ParameterServer(make_network()[0], settings, None)
        before = server.parameters.clone()
        server.apply(gradient.clone(), 1)
        steps[name] = before - server.parameters

    for run in steps["sync"].split(server.network.clip_sizes):
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
    server = ParameterServer(make_network()[0], A3c(**settings), total)
    impala = ImpalaLearner(*make_network(), Impala(**settings), total)

    assert server.learning_rate(steps) == pytest.approx(0.002 * expected)
    assert impala.learning_rate(steps) == server.learning_rate(steps)


@pytest.mark.parametrize(
    ("settings", "bad"), [(A2c(), math.nan), (A2c(gradient_clip=None), math.inf), (A3c(), math.inf)]
)
def test_a_gradient_that_is_not_finite_ends_the_run_and_changes_nothing(
    settings: A2c | A3c, bad: float
) -> None:
    server = ParameterServer(make_network()[0], settings, None)
    first, second = gradients(2)
    server.apply(first, 5)
    before = snapshot(server.get_state())
    second[3] = bad

    with pytest.raises(Diverged, match=r"update 1 \(gradient_norm .*\): lower spec\.algorithm\.a[23]c\."):
        server.apply(second, 5)

    after = server.get_state()
    assert torch.equal(after["parameters"], before["parameters"])
    assert torch.equal(after["optimizer"]["square"], before["optimizer"]["square"])
    assert (after["updates"], after["environment_steps"]) == (1, 5)


@pytest.mark.parametrize("count", [1, 2])
def test_the_state_of_another_network_or_optimizer_is_refused(count: int) -> None:
    made = {
        name: ParameterServer(make_network()[0], A3c(optimizer=o), None) for name, o in OPTIMIZERS.items()
    }
    states = {name: snapshot(server.get_state()) for name, server in made.items()}
    lstm, _ = make_network(lstm=True)
    states["lstm"] = snapshot(ParameterServer(lstm, A3c(optimizer=OPTIMIZERS["rmsprop"]), None).get_state())
    server = ParameterServer(make_network()[0], A3c(optimizer=OPTIMIZERS["rmsprop"]), None, count=count)

    for name, state in states.items():
        if name == "rmsprop":
            server.set_state(state)
        else:
            with pytest.raises((ValueError, RuntimeError, KeyError)):
                server.set_state(state)
