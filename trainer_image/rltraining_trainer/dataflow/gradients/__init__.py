"""Collects gradients or unrolls of samplers for updates, in mode Async or Sync, and counts them."""

from rltraining_trainer.dataflow.gradients.accounts import (
    GradientPush,
    GradientSource,
    Push,
    UnrollPush,
)
from rltraining_trainer.dataflow.gradients.messages import GradientReader, Reader, UnrollReader
from rltraining_trainer.dataflow.gradients.queue import GradientQueue
from rltraining_trainer.dataflow.gradients.reduction import reduce_gradients
from rltraining_trainer.dataflow.gradients.server import GradientServer
from rltraining_trainer.dataflow.gradients.stragglers import StragglerPolicy
from rltraining_trainer.dataflow.gradients.synchronous import SynchronousGradients

__all__ = [
    "GradientPush",
    "GradientQueue",
    "GradientReader",
    "GradientServer",
    "GradientSource",
    "Push",
    "Reader",
    "StragglerPolicy",
    "SynchronousGradients",
    "UnrollPush",
    "UnrollReader",
    "reduce_gradients",
]
