"""The data between learners and samplers: versioned parameters, trajectories, gradients and replay."""

from rltraining_trainer.dataflow.flat import check_gradient, flatten_parameters, load_flat
from rltraining_trainer.dataflow.model_server import FIRST_VERSION, WANTS_NONE, ModelServer
from rltraining_trainer.dataflow.moments import NO_MOMENTS
from rltraining_trainer.dataflow.trajectories import TrajectoryServer
from rltraining_trainer.dataflow.trajectory_queue import Source, Trajectory, TrajectoryQueue

__all__ = [
    "FIRST_VERSION",
    "NO_MOMENTS",
    "WANTS_NONE",
    "ModelServer",
    "Source",
    "Trajectory",
    "TrajectoryQueue",
    "TrajectoryServer",
    "check_gradient",
    "flatten_parameters",
    "load_flat",
]
