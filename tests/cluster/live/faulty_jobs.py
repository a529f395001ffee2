"""Jobs that cannot run, or end badly."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from jobs import Job, Json, Team, example

CRASH = """
import os
import gymnasium as gym

class Crash(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        os._exit(3)

gym.register("Crash-v0", entry_point=Crash)
"""
RAISES = """
import gymnasium as gym

class Raises(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        raise ValueError("the wheel came off")

gym.register("Raises-v0", entry_point=Raises)
"""
CODE = {"crash": CRASH, "raises": RAISES}
NOWHERE = {"spec": {"nodeSelector": {"no-node": "has-this"}}}
PLAIN: Json = {"learner": {"template": NOWHERE}, "sampler": {"template": NOWHERE, "replicas": 1}}


def _template(**spec: Any) -> Json:
    return {"learner": {"template": {"spec": spec}}, "sampler": {"replicas": 1, "template": {"spec": spec}}}


def _trainer(**fields: Any) -> Json:
    return _template(containers=[{"name": "trainer", **fields}])


def faulty_job(team: Team, name: str) -> AbstractContextManager[Job]:
    """Creates a job with the fault of that name."""
    changes: dict[str, Json] = {
        "nowhere": PLAIN,
        "no-image": {"image": "127.0.0.1:1/nothing/here:1"},
        "small": _trainer(resources={"limits": {"memory": "40Mi"}}) | {"runPolicy": {"backoffLimit": 0}},
        "no-code": {"code": {"configMap": {"name": "nothere"}}},
        "typo": _trainer(enw=[{"name": "LEVEL", "value": "3"}]),
        "privileged": _trainer(securityContext={"allowPrivilegeEscalation": True}),
        "late": PLAIN | {"runPolicy": {"activeDeadlineSeconds": 5}},
        "brief": PLAIN | {"runPolicy": {"activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 1}},
        "crash": {"environment": {"id": "crash:Crash-v0"}, "runPolicy": {"backoffLimit": 1}},
        "raises": {"environment": {"id": "raises:Raises-v0"}},
    }
    spec = example("cartpole-impala", sampler={"replicas": 1}) | changes[name]
    if text := CODE.get(name):
        spec["code"] = team.code(name, **{name: text})
    return team.job(name, spec)
