"""The runtime of all algorithms: members by name, services, shared values, a replay, a trajectory queue, gradients, a group of
learners, and the run with its curves and checkpoints (docs/own-algorithm.md).
"""

from rltraining_trainer.dataflow import flatten_parameters, load_flat
from rltraining_trainer.group import GroupChanged
from rltraining_trainer.transport import DeferredReply, Handler, Payload, PeerLost, RemoteError, Stopped
from rltraining_trainer.world.gradient import Gradient, RolloutStats
from rltraining_trainer.world.gradients import LearnerGradients, SamplerGradients
from rltraining_trainer.world.members import Member, Members, Pending
from rltraining_trainer.world.replay import Replay
from rltraining_trainer.world.run import Run
from rltraining_trainer.world.run_state import Algorithm
from rltraining_trainer.world.shared import Shared
from rltraining_trainer.world.trajectories import Trajectories
from rltraining_trainer.world.world import World

__all__ = [
    "Algorithm",
    "DeferredReply",
    "Gradient",
    "GroupChanged",
    "Handler",
    "LearnerGradients",
    "Member",
    "Members",
    "Payload",
    "PeerLost",
    "Pending",
    "RemoteError",
    "Replay",
    "RolloutStats",
    "Run",
    "SamplerGradients",
    "Shared",
    "Stopped",
    "Trajectories",
    "World",
    "flatten_parameters",
    "load_flat",
]
