"""The replay: a ring buffer of transitions per shard, and a client that samples from all shards."""

from rltraining_trainer.dataflow.replay.batch import ReplayBatch
from rltraining_trainer.dataflow.replay.buffer import ReplayBuffer, SampleResult
from rltraining_trainer.dataflow.replay.distributed import DistributedReplay
from rltraining_trainer.dataflow.replay.shard import LocalPeer, ReplayShard, ShardPeer
from rltraining_trainer.dataflow.replay.stats import ReplayStats
from rltraining_trainer.dataflow.replay.storage import Column

__all__ = [
    "Column",
    "DistributedReplay",
    "LocalPeer",
    "ReplayBatch",
    "ReplayBuffer",
    "ReplayShard",
    "ReplayStats",
    "SampleResult",
    "ShardPeer",
]
