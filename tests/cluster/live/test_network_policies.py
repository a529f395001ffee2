"""NetworkPolicies of jobs and of the operator with an engine that enforces them: `make partners`, which is not part of
`make live`."""

from __future__ import annotations

from collections.abc import Iterator

import policy_engine
import pytest
from jobs import Job, Team, every, example, listening, pause_pod, processes_of
from rltraining_api.contract import HTTP_PORT, TLS_PORT

pytestmark = pytest.mark.timeout(300)
CONNECT = """
import socket, sys
for target in sys.argv[1:]:
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
        print("open")
    except TimeoutError:
        print("dropped")
    except ConnectionRefusedError:
        print("refused")
"""


@pytest.fixture(scope="module", autouse=True)
def _engine(team: Team) -> Iterator[None]:
    team.cluster.need_local("it adds the engine's image to the node")
    with policy_engine.installed(team.cluster):
        yield


@pytest.mark.parametrize("encryption", ["None", "TLS"])
def test_only_members_and_the_operator_reach_a_job(team: Team, encryption: str) -> None:
    name = f"guarded-{encryption.lower()}"
    spec = example("cartpole-impala", stop={"environmentSteps": 10**9}, sampler={"replicas": 1})
    with (
        team.job(name, spec | team.gentle(name) | {"encryption": encryption}) as job,
        team.job("stranger", spec | team.gentle("stranger")) as stranger,
        pause_pod(team, "unguarded"),
    ):
        # Samplers send unrolls to the learner, and the operator reads its progress.
        for one in (job, stranger):
            one.until_ready("1/1", "1/1")
            one.until_steps()

        # A pod of another job reaches pods without a policy, but not the job's.
        learner = job.pods()[f"{name}-learner-0"]["status"]["podIP"]
        ports = {HTTP_PORT} | ({TLS_PORT} if encryption == "TLS" else _rpc_ports(job, learner))
        targets = [f"{learner}:{port}" for port in ports]
        unguarded = team.kubectl("get", "pod", "unguarded", "-o", "jsonpath={.status.podIP}")
        assert _connect(stranger, f"{unguarded}:{HTTP_PORT}", *targets) == ["refused"] + ["dropped"] * len(
            ports
        )
        assert _connect(job, *targets) == ["open"] * len(ports)

        # New members are admitted, too, and connections of a restarted learner.
        team.kubectl("scale", "rlj", name, "--replicas=2")
        team.kubectl("delete", "pod", f"{name}-learner-0", "--grace-period=1")
        job.until(lambda status: status["learner"]["restarts"] == 1, "counted for a learner")
        job.until_ready("1/1", "2/2")
        job.until_steps()
        assert job.status["failures"] == 0


def test_no_job_reaches_the_operator(team: Team) -> None:
    spec = example("cartpole-impala", stop={"environmentSteps": 10**9}, sampler={"replicas": 1})
    with team.job("curious", spec | team.gentle("curious")) as job:
        job.until_ready("1/1", "1/1")
        addresses = [pod["status"]["podIP"] for pod in team.operator_pods()]
        assert addresses
        assert _connect(job, *(f"{address}:{HTTP_PORT}" for address in addresses)) == ["dropped"] * len(
            addresses
        )
        job.until_steps()


def _rpc_ports(job: Job, address: str) -> set[int]:
    """Ports on which the learner's process listens for RPC."""
    (process, *_) = processes_of(f"{job.name}-learner-0")
    ports: set[int] = set()
    for _ in every(0.5, seconds=20):
        ports = listening(process.pid, address) - {HTTP_PORT}
        if ports:
            break
    assert ports
    return ports


def _connect(job: Job, *targets: str) -> list[str]:
    """Opens connections from a sampler of a job. Returns the result of each."""
    arguments = ("exec", f"{job.name}-sampler-0", "--", "python", "-c", CONNECT, *targets)
    return job.team.kubectl(*arguments, seconds=60).split()
