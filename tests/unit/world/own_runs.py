"""Runs of a user's own algorithm in this process."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from rltraining_trainer.environments import make_environments
from rltraining_trainer.networks import ActorCritic, build_actor_critic
from rltraining_trainer.roles.context import Context, read_job
from rltraining_trainer.roles.spec_watcher import SpecWatcher
from rltraining_trainer.transport import Traffic
from rltraining_trainer.world.reporter import REPORT
from rltraining_trainer.world.run import Run
from rltraining_trainer.world.services import Services

SPEC: dict[str, Any] = {
    "algorithm": {"entryPoint": {"module": "mine", "parameters": {"learningRate": 0.5}}},
    "environment": {"id": "CartPole-v1"},
    "sampler": {"replicas": 3},
    "stop": {"environmentSteps": 100},
}


def make_context(tmp_path: Path, pod: str = "pole-learner-0", **changes: Any) -> Context:
    header = {"apiVersion": "rltraining.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "pole"}}
    (tmp_path / "job.json").write_text(json.dumps(header | {"spec": SPEC | changes}))
    return Context(
        job=read_job(tmp_path / "job.json"),
        job_file=tmp_path / "job.json",
        token="secret",
        pod=pod,
        index=int(pod[-1]),
        http_port=0,
        learners=("http://127.0.0.1:1",),
        replays=(),
        output=tmp_path,
    )


class Begin:
    """``begin(policy, **state)``: resumes the run that was closed last."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.services = Services(context.pod, lambda error: None)
        """The newest run's services for other members."""
        spaces = make_environments(context.job.spec.environment, 1)
        self.spaces = spaces.single_observation_space, spaces.single_action_space

    def policy(self) -> ActorCritic:
        return build_actor_critic(self.context.job.spec.network, *self.spaces)[0]

    def make(self, endpoint: Any) -> Run:
        """Returns a run that has not started."""
        context = self.context
        live = SpecWatcher(context.job_file, context.job.spec)
        run = Run(context, live, endpoint, None, torch.device("cpu"))
        self.services.add(REPORT, run.paths.reports.report)
        return run

    def __call__(self, policy: ActorCritic | None = None, **state: Any) -> Run:
        run = self.make(SimpleNamespace(incarnation="a life", traffic=Traffic()))
        run.begin(policy, state, self.spaces)
        return run
