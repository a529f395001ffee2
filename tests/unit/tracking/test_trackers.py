"""What trackers receive of a job, and what a job must have before it starts."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import parse_job
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.tracking.backends import flat
from rltraining_trainer.tracking.trackers import _points, hyperparameters, start_trackers


def job(**tracking: Any) -> RLTrainingJob:
    container = {"name": "trainer", "env": [{"name": "PASSWORD", "value": "hidden"}]}
    spec = {
        "algorithm": {"ppo": {"epochs": 3}},
        "environment": {"id": "CartPole-v1"},
        "learner": {"template": {"spec": {"containers": [container]}}},
        "stop": {"seconds": 10},
        "tracking": tracking,
    }
    header = {"apiVersion": "rltraining.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "demo"}}
    return parse_job(header | {"spec": spec})


def test_hyperparameters_are_the_spec_without_what_may_be_secret() -> None:
    config = hyperparameters(job(wandb={"project": "p"}, secretName="keys"))
    values = dict(flat(config))
    assert (values["algorithm.ppo.epochs"], values["environment.id"]) == (3, "CartPole-v1")
    assert values["learner.replicas"] == 1
    assert "hidden" not in str(config)
    assert "tracking" not in config


def test_a_missing_package_is_refused_with_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        BadConfiguration, match=r"^spec.tracking.wandb .*: pip install .* 'rltraining\[wandb\]' "
    ):
        start_trackers(job(wandb={"project": "p"}), tmp_path)


def test_a_folder_with_the_name_of_a_package_is_not_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(BadConfiguration, match="not installed"):
        start_trackers(job(wandb={"project": "p"}), tmp_path)


def test_mlflow_without_a_server_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(BadConfiguration, match="set trackingUri, or the environment variable"):
        start_trackers(job(mlflow={"experiment": "e"}), tmp_path)


def test_values_that_are_not_finite_are_left_out_and_evaluations_are_of_their_policy() -> None:
    values = {
        "updates": 7,
        "loss/total": math.nan,
        "meanReturn": None,
        "evaluation/environmentSteps": 40,
        "evaluation/return": 1.5,
    }
    evaluated, point = _points(100, values, 12.5)
    assert (evaluated.step, evaluated.values) == (
        40,
        {"evaluation/environmentSteps": 40.0, "evaluation/return": 1.5},
    )
    assert (point.step, point.time, point.values) == (100, 12.5, {"updates": 7.0})
