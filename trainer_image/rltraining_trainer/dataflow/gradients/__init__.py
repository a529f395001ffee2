"""Collects gradients or unrolls of samplers for updates, in mode Async or Sync, and counts them."""

from rltraining_trainer.dataflow.gradients.accounts import (
    GradientCounts,
    GradientPush,
    GradientSource,
    Push,
    UnrollPush,
)
from rltraining_trainer.dataflow.gradients.in_step import GradientsInStep
from rltraining_trainer.dataflow.gradients.messages import GradientReader, Reader, UnrollReader
from rltraining_trainer.dataflow.gradients.patience import Patience
from rltraining_trainer.dataflow.gradients.queue import GradientQueue
from rltraining_trainer.dataflow.gradients.reduction import reduce_gradients
from rltraining_trainer.dataflow.gradients.server import GradientServer

__all__ = [
    "GradientCounts",
    "GradientPush",
    "GradientQueue",
    "GradientReader",
    "GradientServer",
    "GradientSource",
    "GradientsInStep",
    "Patience",
    "Push",
    "Reader",
    "UnrollPush",
    "UnrollReader",
    "reduce_gradients",
]
