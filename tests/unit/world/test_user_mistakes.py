"""Mistakes in a user's algorithm that a run reports at the user's line, instead of later or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from own_runs import Begin, make_context
from rltraining_api.algorithms import Aggregate
from rltraining_trainer.checkpoint import UnsupportedValue
from rltraining_trainer.dataflow import flatten_parameters
from rltraining_trainer.errors import UserCodeError, user_code_error
from rltraining_trainer.networks import ActorCritic
from rltraining_trainer.roles.entry_point import _call
from rltraining_trainer.transport import Traffic
from rltraining_trainer.world import World
from rltraining_trainer.world.run import Run


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    return Begin(make_context(tmp_path))


@pytest.fixture
def run(begin: Begin) -> Iterator[Run]:
    run = begin()
    yield run
    run.close()


def test_an_object_that_cannot_be_saved_is_refused_when_the_run_begins(begin: Begin) -> None:
    with pytest.raises(TypeError, match=r"^world\.run\(alpha=\.\.\.\): a Parameter has no state_dict\(\)"):
        begin(alpha=torch.nn.Parameter(torch.zeros(())))


def test_a_vector_that_lost_its_gradient_is_refused_when_it_is_published(begin: Begin, run: Run) -> None:
    parameters = flatten_parameters(begin.policy())
    run.publish(parameters)
    parameters.grad = None  # as optimizer.zero_grad() does
    with pytest.raises(ValueError, match=r"call parameters\.grad\.zero_\(\) instead"):
        run.publish(parameters)
    run.publish(torch.zeros(3))


def test_a_term_of_many_numbers_is_refused_with_its_name(run: Run) -> None:
    with pytest.raises(ValueError, match=r"^run\.update\(error=\.\.\.\): a term is one number, not \[8\]"):
        run.update(error=torch.zeros(8))


@pytest.mark.parametrize("call", [lambda: np.random.default_rng(-1), lambda: Aggregate(mode="Never")])  # type: ignore[arg-type]
def test_an_error_in_a_library_is_located_at_the_users_line(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"non-negative|Never") as error:
        call()
    message = str(user_code_error("mine", error.value))
    assert re.search(r"\(test_user_mistakes\.py, line \d+\)\n", message), message


class Statistics:
    """Saves what this test sets, and loads a state that has a mean."""

    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state = {"mean": state_dict["mean"]}


def test_a_value_that_cannot_be_saved_is_reported_with_its_object_and_name(begin: Begin) -> None:
    """It was reported as a value that cannot be sent, without its name."""
    run = begin(statistics=Statistics(mean=np.float64(1.0)))
    with pytest.raises(
        UnsupportedValue,
        match=r"^world\.run\(statistics=\.\.\.\): state\.mean is a numpy\.float64; a checkpoint",
    ):
        run.save()
    run.close()


def test_an_error_while_a_users_object_loads_its_state_is_shown_with_its_traceback(begin: Begin) -> None:
    """It was reported as a checkpoint of another job, with the text 'mean' alone."""
    run = begin(statistics=Statistics(average=1.0))
    run.save()
    run.close()
    with pytest.raises(
        UserCodeError, match=r"^loading checkpoint .* raised KeyError: 'mean' \(test_user_"
    ) as error:
        begin(statistics=Statistics())
    assert 'state_dict["mean"]' in str(error.value)


class Counting:
    """An algorithm that counts its updates in numpy's integers."""

    def __init__(self, policy: ActorCritic) -> None:
        self.network, self.updates = policy, 0
        self.total_steps: int | None = None
        self.parameters = flatten_parameters(policy)

    def learning_rate(self, environment_steps: int) -> float:
        return 0.0

    def get_state(self) -> dict[str, Any]:
        return {"updates": np.int64(self.updates)}

    def set_state(self, state: dict[str, Any]) -> None:
        raise AssertionError


def test_a_state_that_cannot_be_saved_fails_the_job_without_retries(begin: Begin) -> None:
    """The learner restarted until `backoffLimit`, each time from zero."""
    run = begin.make(SimpleNamespace(incarnation="a life", traffic=Traffic()))
    run.begin(None, {}, begin.spaces, Counting(begin.policy()))
    world: Any = SimpleNamespace()
    with pytest.raises(
        UserCodeError, match=r"state\.learner\.updates is a numpy\.int64; a checkpoint holds only"
    ):
        _call(lambda world: run.save(), world, "learner(world)")
    run.close()


@pytest.mark.parametrize(
    "name", [dict(policy=True), dict(optimizer=Statistics())], ids=["policy", "further objects"]
)
def test_state_beside_an_algorithm_is_refused(tmp_path: Path, name: dict[str, Any]) -> None:
    """It was not saved."""
    begin = Begin(make_context(tmp_path))
    run, policy = begin.make(SimpleNamespace(incarnation="a life", traffic=Traffic())), begin.policy()
    state = {} if "policy" in name else name
    with pytest.raises(
        TypeError, match=r"^world\.run\(algorithm=\.\.\., (policy|optimizer=\.\.\.)\): checkpoints would"
    ):
        run.begin(policy if "policy" in name else None, state, begin.spaces, Counting(policy))
    run.close()


PATHS: dict[str, Callable[[World], Any]] = {
    "replay": lambda world: world.replay(batch_size=4),
    "trajectories": lambda world: world.trajectories(),
    "gradients": lambda world: world.gradients(Aggregate(), 3),
}


@pytest.mark.parametrize("name", PATHS)
def test_a_sampler_makes_each_data_path_once_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The items of the second queue were dropped, and a path made after the start received no parameters."""
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    world = World(make_context(tmp_path, "pole-sampler-0"), lambda failure: None)
    PATHS[name](world)
    with pytest.raises(RuntimeError, match=rf"^world\.{name}\(\) was called twice"):
        PATHS[name](world)
    world.close()
    world = World(make_context(tmp_path, "pole-sampler-0"), lambda failure: None)
    world.start()
    with pytest.raises(RuntimeError, match=rf"^call world\.{name}\(\) before world\.start\(\)$"):
        PATHS[name](world)
    world.close()


@pytest.mark.parametrize("count", [0, -1])
def test_a_request_for_no_items_is_refused(tmp_path: Path, count: int) -> None:
    """A loop ran forever without an item, a wait or a message."""
    world = World(make_context(tmp_path), lambda failure: None)
    with pytest.raises(ValueError, match=rf"^trajectories\.get\(\): count must be at least 1, not {count}$"):
        world.trajectories().get(count)
    world.close()
