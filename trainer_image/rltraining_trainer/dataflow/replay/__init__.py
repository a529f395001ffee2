"""The replay memory of one process: a ring of transitions that are drawn by priority, or all alike."""

from rltraining_trainer.dataflow.replay.buffer import Draw, ReplayBuffer, ReplayCounts, Updated
from rltraining_trainer.dataflow.replay.storage import Column
from rltraining_trainer.dataflow.replay.sum_tree import SumTree

__all__ = ["Column", "Draw", "ReplayBuffer", "ReplayCounts", "SumTree", "Updated"]
