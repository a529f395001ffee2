"""Sweeps in a cluster, against a fake API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import refused, rltrain, succeeded
from fake_api import FakeApi, failure, forbidden
from rltraining.cluster import sweep
from rltraining.cluster.sweep import jobs
from rltraining_api.job import RLTrainingJob

RATE = "spec.algorithm.impala.learningRate"
SWEEP = ("--sweep", "algorithm.impala.learningRate=1e-3,1e-4", "--seeds", "2")


pytestmark = pytest.mark.usefixtures("cluster")


def learned(final: float, steps: int) -> dict[str, Any]:
    curve = [
        {"environmentSteps": steps // 2, "seconds": 1.0, "meanReturn": 10.0},
        {"environmentSteps": steps, "seconds": 2.0, "meanReturn": final},
    ]
    return {
        "message": "stop.meanReturn is met: the last 100 episodes returned 480",
        "curve": curve,
        "progress": {"meanReturn": final, "environmentSteps": steps},
    }


def test_each_point_is_a_job_that_says_what_it_is(file: Path, api: FakeApi) -> None:
    result = rltrain("submit", file, *SWEEP, "--set", "sampler.replicas=4", "--name", "lr")
    assert [name for _, name in api.objects["rltrainingjobs"]] == ["lr-0", "lr-1", "lr-2", "lr-3"]
    third = "rltrainingjob.rltraining.dev/lr-2 created (learningRate=0.0001,seed=0)"
    assert result.stdout.splitlines()[2] == third
    assert result.stderr == (
        "see them with: rltrain get -l rltraining.dev/sweep=lr\ncompare them with: rltrain compare lr\n"
    )
    job = api.job("lr-3")
    assert job["metadata"]["labels"] == {"rltraining.dev/sweep": "lr"}
    assert json.loads(job["metadata"]["annotations"]["rltraining.dev/point"]) == {RATE: 0.0001}
    assert list(job["metadata"]["annotations"]) == ["rltraining.dev/point"]
    assert (job["spec"]["seed"], job["spec"]["sampler"]) == (1, {"replicas": 4})
    assert job["spec"]["algorithm"] == {"impala": {"learningRate": 0.0001}}, "defaults are the API server's"


def test_nothing_is_created_when_any_job_is_refused(file: Path, api: FakeApi) -> None:
    for arguments, problem in (
        (("--sweep", "sampler.replicas=1,0"), "replicas=0,seed=0: "),
        ((*SWEEP, "--generate-name"), "--generate-name: the jobs of a sweep are numbered"),
        ((*SWEEP, "--follow"), "--follow: is for one job: show a sweep with --wait"),
        ((*SWEEP, "--name", "a" * 49), "metadata.name"),
        ((*SWEEP, "--set", "checkpoint.volume.claimName=mine"), "would write into one claim"),
    ):
        assert problem in refused("submit", file, *arguments)
    api.fail("POST", "dryRun", failure(422, "Invalid", "too many samplers"))
    refused("submit", file, *SWEEP)
    assert not api.objects["rltrainingjobs"]


def test_a_name_that_is_taken_is_told_before_anything_is_created(file: Path, api: FakeApi) -> None:
    rltrain("submit", file, "--name", "cartpole-2")
    assert refused("submit", file, *SWEEP) == (
        "job cartpole-2 exists already: give the sweep another name with --name, or delete the earlier one: "
        "rltrain delete --sweep cartpole"
    )
    assert len(api.objects["rltrainingjobs"]) == 1


def test_what_was_created_before_a_quota_was_used_up_is_told(file: Path, api: FakeApi) -> None:
    rltrain("submit", file, "--seeds", "1", "--name", "other")
    message = 'rltrainingjobs "cartpole-0" is forbidden: exceeded quota: jobs'
    api.fail("POST", r"rltrainingjobs\?(?!.*dryRun)", failure(403, "Forbidden", message))
    result = rltrain("submit", file, *SWEEP)
    assert result.exit_code != 0
    assert "exceeded quota" in result.stderr
    assert "0 of 4 jobs were created: rltrain delete --sweep cartpole deletes them" in result.stderr


def test_a_sweep_is_compared_from_the_status_of_its_jobs(
    file: Path, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rltrain("submit", file, *SWEEP)
    rltrain("submit", file, "--seeds", "1", "--name", "other")
    api.finish("cartpole-0", **learned(480, 300_000))
    api.finish("cartpole-1", **learned(478, 100_000))
    api.finish("cartpole-2", "Failed", message="NaN in the loss")
    picture = tmp_path / "lr.png"
    assert succeeded("compare", "cartpole", "--output", picture) == (
        """\
learningRate     RUNS   FAILED     GOAL        RETURN   STEPS TO GOAL     SECONDS        STEPS/S
0.001               2        -   2 of 2   479.0 ± 1.4     200k ± 141k   2.0 ± 0.0   100k ± 70.7k
0.0001         1 of 2        1   0 of 2             -               -           -              -

learningRate   SEEDS   IQM OF RETURN     95% INTERVAL   P(FIRST IS BETTER)
0.001              2           479.0   478.0 to 480.0                    -
"""
    )
    assert picture.is_file()
    missing = "in namespace default there is no sweep of this name"
    assert refused("compare", "nothing") == f"nothing: there is no such folder, and {missing}"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing").mkdir()
    assert refused("compare", "nothing") == f"nothing: holds neither a run nor a sweep, and {missing}"
    (tmp_path / "cartpole").mkdir()
    assert succeeded("compare", "cartpole").startswith("learningRate "), "a folder of code does not hide it"


def test_waiting_shows_all_jobs_to_their_end_and_compares_them(file: Path, api: FakeApi) -> None:
    def operate() -> None:
        api.finish("cartpole-0", **learned(480, 300_000))
        api.finish("cartpole-1", "Failed", message="the maze has no exit")

    api.after(1, operate)
    result = rltrain("submit", file, "--seeds", "2", "--wait")
    assert result.exit_code == 1, result.output
    assert "cartpole-0  Succeeded  300,000 steps  return 480.0" in result.stdout
    assert "cartpole-1  Failed     the maze has no exit" in result.stdout
    row = "cartpole 2 1 1 of 2 480.0 300k 2.0 150k"
    assert result.stdout.splitlines()[-1].split() == row.split()
    assert "seeds" not in result.stderr, "one run has no interval"


def test_a_job_that_went_before_it_was_watched_is_not_waited_for(
    file: Path, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(*arguments: Any) -> list[RLTrainingJob]:
        found = jobs(*arguments)
        api.objects["rltrainingjobs"].pop(("default", "cartpole-1"), None)
        return found

    monkeypatch.setattr(sweep, "jobs", listed)
    api.after(1, lambda: api.finish("cartpole-0", **learned(480, 300_000)))
    result = rltrain("submit", file, "--seeds", "2", "--wait")
    assert result.exit_code == 1, result.output
    assert "cartpole-1  Deleted" in result.stdout


def test_a_sweep_that_may_not_be_watched(file: Path, api: FakeApi) -> None:
    api.fail("GET", "watch=true", forbidden("watch", "rltrainingjobs"), times=99)
    result = rltrain("submit", file, "--seeds", "2", "--wait")
    assert result.exit_code == 3
    assert "error: ann may not watch rltrainingjobs" in result.stderr, result.output


def test_a_sweep_that_is_deleted_while_it_is_watched_is_told_as_such(file: Path, api: FakeApi) -> None:
    def delete() -> None:
        for name in ("cartpole-0", "cartpole-1"):
            api.status(name, phase="Pending", message="waiting for pod x")
            api.remove("rltrainingjobs", name)

    api.after(1, delete)
    result = rltrain("submit", file, "--seeds", "2", "--wait")
    assert (result.exit_code, result.stderr) == (2, "error: all jobs of sweep cartpole were deleted\n")
    told = [line.split()[1:] for line in result.stdout.splitlines() if "Deleted" in line]
    assert told == [["cartpole-0", "Deleted"], ["cartpole-1", "Deleted"]]


def test_a_sweep_is_deleted_and_nothing_else(file: Path, api: FakeApi) -> None:
    """Also when another client deletes one of the jobs meanwhile."""
    rltrain("submit", file, *SWEEP)
    rltrain("submit", file, "--name", "cartpole-7")
    gone = failure(404, "NotFound", "it is gone", name="cartpole-1", kind="rltrainingjobs")
    api.fail("DELETE", "/cartpole-1", gone)
    succeeded("delete", "--sweep", "cartpole")
    assert [name for _, name in api.objects["rltrainingjobs"]] == ["cartpole-1", "cartpole-7"]
    api.remove("rltrainingjobs", "cartpole-1")
    rltrain("submit", file, *SWEEP)
    deleted = "".join(f"cartpole-{i}: deleted\n" for i in range(4))
    assert succeeded("delete", "--sweep", "cartpole") == deleted
    assert [name for _, name in api.objects["rltrainingjobs"]] == ["cartpole-7"]
    told = "there is no job of a sweep cartpole in namespace default"
    assert refused("delete", "--sweep", "cartpole") == told
    for arguments in ((), ("cartpole-7", "--sweep", "cartpole")):
        assert refused("delete", *arguments) == "name one job, or a sweep with --sweep"
