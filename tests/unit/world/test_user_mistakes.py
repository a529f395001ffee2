"""Mistakes in a user's algorithm that a run reports at the user's line, instead of later or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_runs import Begin, make_context
from rltraining_api.algorithms import Aggregate
from rltraining_trainer.dataflow import flatten_parameters
from rltraining_trainer.errors import user_code_error
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
