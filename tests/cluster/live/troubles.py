"""Jobs that cannot run, or end badly."""

from __future__ import annotations

from typing import Any

from jobs import Json, Team

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
NOWHERE = {"spec": {"nodeSelector": {"no-node": "has-this"}}}
PLAIN: Json = {"learner": {"template": NOWHERE}, "sampler": {"template": NOWHERE, "replicas": 1}}


def _template(**spec: Any) -> Json:
    return {"learner": {"template": {"spec": spec}}, "sampler": {"replicas": 1, "template": {"spec": spec}}}


def _trainer(**fields: Any) -> Json:
    return _template(containers=[{"name": "trainer", **fields}])


def troubles(team: Team) -> dict[str, Json]:
    """By name: what is wrong with each."""
    crash = team.code("crash", crash=CRASH)
    raises = team.code("raises", raises=RAISES)
    return {
        "nowhere": PLAIN,
        "no-image": {"image": "127.0.0.1:1/nothing/here:1"},
        "small": _trainer(resources={"limits": {"memory": "40Mi"}}) | {"runPolicy": {"backoffLimit": 0}},
        "privileged": _trainer(securityContext={"allowPrivilegeEscalation": True}),
        "late": PLAIN | {"runPolicy": {"activeDeadlineSeconds": 5}},
        "brief": {"environment": {"id": "Nothing-v0"}, "runPolicy": {"ttlSecondsAfterFinished": 1}},
        "crash": {
            "environment": {"id": "crash:Crash-v0"},
            "code": crash,
            "runPolicy": {"backoffLimit": 1},
        },
        "raises": {"environment": {"id": "raises:Raises-v0"}, "code": raises},
    }
