"""Between learner and samplers: versioned parameters go one way, bounded trajectories the other."""

from rltraining_trainer.dataflow.flat import flatten_parameters, load_flat
from rltraining_trainer.dataflow.model_server import FIRST_VERSION, WANTS_NONE, ModelServer, ModelState
from rltraining_trainer.dataflow.moments import NO_MOMENTS
from rltraining_trainer.dataflow.trajectories import Trajectory, TrajectoryServer
from rltraining_trainer.dataflow.trajectory_queue import QueueState, Source, TrajectoryQueue

__all__ = [
    "FIRST_VERSION",
    "NO_MOMENTS",
    "WANTS_NONE",
    "ModelServer",
    "ModelState",
    "QueueState",
    "Source",
    "Trajectory",
    "TrajectoryQueue",
    "TrajectoryServer",
    "flatten_parameters",
    "load_flat",
]
