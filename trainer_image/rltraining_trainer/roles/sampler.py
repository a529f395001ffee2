"""The sampler: acts with the newest parameters it has, and gives what happened to the learner.

It outlives every learner: when one is lost it waits for the next, takes that one's parameters and goes on where its
environments are.
"""

from __future__ import annotations

from rltraining_api.algorithms import A2c, A3c, DdpgApex, DqnApex, Impala, Ppo
from rltraining_api.contract import ExitCode

from rltraining_trainer.environments import close_environments, make_environments
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.gradient_sampler import sample_gradients
from rltraining_trainer.roles.replay_sampler import sample_into_replay
from rltraining_trainer.roles.trajectory_flow import sample_trajectories


def run_sampler(context: Context) -> int:
    """Sample until the learner says that the run is done. Returns the exit code."""
    spec = context.job.spec
    environments = make_environments(spec.environment, spec.environment.num_envs)
    settings = spec.algorithm.parameters
    if isinstance(settings, Impala):
        sample_trajectories(context, settings, environments)
    elif isinstance(settings, A3c | A2c | Ppo):
        sample_gradients(context, settings, environments)
    else:
        assert isinstance(settings, DqnApex | DdpgApex), "no other algorithm is left"
        sample_into_replay(context, settings, environments)
    close_environments(environments, spec.environment.id)
    return ExitCode.DONE
