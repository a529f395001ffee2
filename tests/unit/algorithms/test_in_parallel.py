"""Parts of a loss that are computed in two threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from apex_learners import NETWORK, OBSERVATION, AnyLearner, batch_for, ddpg, sac
from gymnasium import spaces
from rltraining_api.network import Network
from rltraining_trainer.algorithms import in_parallel
from rltraining_trainer.algorithms.in_parallel import both, can_be_parallel
from rltraining_trainer.algorithms.sac import build_network
from torch import nn


def thread() -> str:
    return threading.current_thread().name


@pytest.mark.parametrize("make", [sac, ddpg])
def test_two_threads_make_the_same_updates_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], AnyLearner]
) -> None:
    def updates(learner: AnyLearner) -> tuple[torch.Tensor, list[dict[str, Any]]]:
        torch.manual_seed(7)
        terms = [learner.step(batch_for(learner, seed))[1] for seed in range(30)]
        return learner.parameters.detach(), [
            {name: float(term) for name, term in one.items()} for one in terms
        ]

    alone = updates(make())
    monkeypatch.setattr(in_parallel, "LEAST_WORK", 0)
    threads = updates(make())
    assert torch.equal(alone[0], threads[0])
    assert alone[1] == threads[1]


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def test_more_threads_than_cores_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    large = nn.Linear(256, 256)
    assert can_be_parallel(large, 256)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert not can_be_parallel(large, 256)


def test_large_networks_of_the_project_are_used_by_two_threads() -> None:
    large = nn.Linear(256, 256)
    assert can_be_parallel(large, 256)
    assert not can_be_parallel(large, 64), "the switches between threads would cost more"
    assert not can_be_parallel(large.to("meta"), 256), "not on the CPU"


def test_a_network_of_the_user_is_used_by_one_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(in_parallel, "LEAST_WORK", 0)
    (tmp_path / "dropping.py").write_text(
        "from torch import nn\n\n\ndef make(space):\n    return nn.Sequential(nn.Linear(3, 8), nn.Dropout())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for network, expected in ((NETWORK, True), (Network(entry_point="dropping:make"), False)):
        built, _ = build_network(network, OBSERVATION, spaces.Box(-1, 1, (2,)))
        assert can_be_parallel(built, 1) is expected


def test_the_second_function_runs_beside_the_first() -> None:
    met = threading.Barrier(2, timeout=10)
    names = both(lambda: (met.wait(), thread())[1], lambda: (met.wait(), thread())[1], parallel=True)
    assert names[0] == thread() != names[1]
    assert both(thread, thread, parallel=False) == (thread(), thread())


@pytest.mark.parametrize("parallel", [True, False])
def test_an_error_of_either_function_is_raised_after_both_have_ended(*, parallel: bool) -> None:
    ended = []

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        both(lambda: ended.append(1), fails, parallel=parallel)
    assert ended == [1]
    with pytest.raises(ValueError, match="no"):
        both(fails, lambda: ended.append(2), parallel=parallel)
    assert ended == ([1, 2] if parallel else [1])
