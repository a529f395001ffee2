"""A job that cannot work ends immediately, with a message that helps its user."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rltraining_operator.local import backoff
from small_jobs import CODE, code, job_of, role_with, small_job
from training import SAMPLER, Run, Train
from transport_processes import HANG_SECONDS
from user_errors import BASE, Case

NETS = """
import torch

class Refuses(torch.nn.Linear):
    def forward(self, observation):
        if len(observation) in self.refused:
            raise RuntimeError(f"{len(observation)} are too many")
        return super().forward(observation)

def acts_badly(observation_space):  # eight environments
    return refuses(observation_space, range(8, 9))

def learns_badly(observation_space):
    return refuses(observation_space, range(9, 1000))

def refuses(observation_space, sizes):
    net = Refuses(observation_space.shape[0], 16)
    net.refused = sizes
    return net
"""


def environment(id: str) -> dict[str, Any]:
    return {"environment": {"id": id, "numEnvs": 4}, "code": CODE}


REMEDY = "if it happens only now and then, environment.onError: Reset lets training continue"
CASES = {
    "step raises": Case(
        environment("mazes:Step-v0"),
        "UserCodeError",
        "environment 'mazes:Step-v0': step raised ValueError: the maze has no exit (mazes.py, line 23); "
        f"{REMEDY}\n",
        ["mazes.py", "line 23, in reward", 'raise ValueError("the maze has no exit")'],
    ),
    "step panics": Case(
        environment("mazes:Panics-v0"),
        "UserCodeError",
        "environment 'mazes:Panics-v0': step raised Panic: index out of bounds (mazes.py, line 41); "
        f"{REMEDY}\n",
        ["mazes.py", "line 41, in reward"],
    ),
    "constructor raises": Case(
        environment("mazes:Make-v0"),
        "UserCodeError",
        "making environment 'mazes:Make-v0' raised OSError: no licence for this simulator (mazes.py, line 32)\n",
        ["mazes.py", "line 32, in __init__"],
    ),
    "unknown environment": Case(
        {"environment": {"id": "CartPool-v1"}},
        "BadConfiguration",
        "spec.environment.id: there is no environment 'CartPool-v1': ",
    ),
    "network that raises while it acts": Case(
        {"network": {"entryPoint": "nets:acts_badly"}, "code": CODE},
        "UserCodeError",
        "spec.network.entryPoint: the network of nets:acts_badly raised RuntimeError: 8 are too many (nets.py, line 7)\n",
        ['raise RuntimeError(f"{len(observation)} are too many")'],
    ),
    "network that raises while it learns": Case(
        {"network": {"entryPoint": "nets:learns_badly"}, "code": CODE},
        "UserCodeError",
        "spec.network.entryPoint: the network of nets:learns_badly raised RuntimeError: ",
        [" are too many (nets.py, line 7)\n", 'raise RuntimeError(f"{len(observation)} are too many")'],
    ),
    "reward of NaN": Case(
        environment("mazes:NaN-v0"),
        "Diverged",
        f"environment 'mazes:NaN-v0' returned a reward that is NaN or infinite; {REMEDY}",
    ),
    "more errors than are survived": Case(
        {
            "environment": {"id": "mazes:Step-v0", "numEnvs": 8, "onError": "Reset", "maxErrorsPerHour": 3},
            "code": CODE,
        },
        "UserCodeError",
        "more than 3 errors of environments within an hour (spec.environment.maxErrorsPerHour): fix the environment, "
        "or set the limit above a sampler's steps per hour times the rate of errors; the last: "
        "environment 'mazes:Step-v0': step raised ValueError: the maze has no exit (mazes.py, line 23)\n",
        ['raise ValueError("the maze has no exit")'],
    ),
}

MODULES = code(mazes=BASE, nets=NETS)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_fails_at_once_with_the_message(train: Train, monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    monkeypatch.setattr(backoff, "FIRST_SECONDS", HANG_SECONDS)  # longer than a busy operator takes

    train(small_job(**case.spec), case.check, MODULES)


def test_an_environment_that_cannot_be_closed_after_training_costs_nothing(train: Train) -> None:
    async def scenario(run: Run) -> None:
        job = await run.until_ended()
        assert (job.status.phase, job.status.failures) == ("Succeeded", 0)
        log = (run.cluster.workdir / "logs" / f"{SAMPLER}.log").read_text()
        assert "environment 'mazes:Tired-v0': close raised OSError: the simulator is gone" in log

    learner = role_with(
        TEST_LINGER_SECONDS="4"
    )  # a sampler of a busy machine asks late whether the run is over
    job = small_job(**environment("mazes:Tired-v0"), stop={"environmentSteps": 500}, learner=learner)
    train(job, scenario, MODULES)


@pytest.mark.parametrize("algorithm", ["impala", "ppo", "ppoAtSamplers", "dqnApex"])
def test_environments_that_fail_are_reset_and_the_run_succeeds(train: Train, algorithm: str) -> None:
    """An environment that raises from its 51st step on fails again after a reset, until it is recreated."""
    settings = {"id": "mazes:Step-v0", "numEnvs": 8, "onError": "Reset", "maxErrorsPerHour": 100_000}
    spec = {"environment": settings, "code": CODE, "stop": {"environmentSteps": 3000}}

    async def scenario(run: Run) -> None:
        job = await run.until_ended()
        assert (job.status.phase, job.status.failures) == ("Succeeded", 0)
        (warning,) = (text for text in job.status.warnings if text.startswith("EnvironmentsReset: "))
        assert "step raised ValueError: the maze has no exit (mazes.py, line 23)" in warning
        *_, last = map(json.loads, (run.cluster.workdir / "progress.jsonl").read_text().splitlines())
        assert last["episodes/discarded"] >= 8
        assert last["episodes"] == 0

    train(job_of(algorithm, **spec), scenario, MODULES)
