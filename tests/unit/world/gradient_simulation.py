"""Learners of asynchronous gradients in simulated time, and the messages of their samplers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from rltraining_api.algorithms import A3c
from rltraining_trainer.dataflow import ModelServer
from rltraining_trainer.dataflow.gradients import GradientReader
from rltraining_trainer.world.gradients import LearnerGradients


def make_learner(
    index: int,
    learners: int,
    samplers: list[str],
    models: ModelServer,
    clock: Callable[[], float],
    **aggregate: Any,
) -> LearnerGradients[Any]:
    """Returns learner ``index`` of a group that has formed. Gradients are ``[1]``."""
    gradients: LearnerGradients[Any] = LearnerGradients(
        A3c.model_validate({"aggregate": aggregate}).aggregate,
        GradientReader(1),
        name="gradients",
        models=models,
        index=index,
        learners=learners,
        samplers=lambda: samplers,
        exchanges=lambda: 1,
        remaining=lambda: 1.0,
        incarnation="life",
        gather_state=lambda reduce: None,
        large=False,
        stopping=threading.Event(),
        clock=clock,
    )
    gradients.on_group_formed(index, learners)
    if learners > 1:  # all have the epoch of the first
        gradients.set_common_state({"epoch": "life.1"})
        gradients.on_group_formed(index, learners)
    return gradients


def make_push(sequence: int, answer: dict[str, Any]) -> dict[str, Any]:
    """Returns the message with a gradient that was computed with the parameters of ``answer``."""
    return {
        "incarnation": "a",
        "sequence": sequence,
        "version": answer["version"],
        "place": answer["place"],
        "gradient": torch.zeros(1),
        "weight": 1.0,
        "steps": 1,
        "episodes": 0,
        "returns": torch.zeros(0),
        "terms": {},
        "moments": torch.zeros(0, 0, dtype=torch.float64),
    }
