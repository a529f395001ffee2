"""The commands on a cluster, against a fake API server."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import refused, rltrain, succeeded
from fake_api import END, TIMEOUT, FakeApi, failure, forbidden
from rltraining import workdir
from rltraining.cluster import observer
from rltraining.cluster import watch as watch_command
from rltraining.cluster.context import OPTIONS, ClusterContext, with_cluster_options
from rltraining.jobfile import load
from rltraining.snapshot import Snapshot

pytestmark = pytest.mark.usefixtures("cluster")


def test_submit(file: Path, api: FakeApi) -> None:
    options = ("--set", "sampler.replicas=4", "--seed", "7", "--name", "mine", "-n", "team")
    result = rltrain("submit", file, *options)
    assert result.stdout == "rltrainingjob.rltraining.dev/mine created\n"
    assert result.stderr == "see it with: rltrain watch mine\n"
    spec = api.job("mine", "team")["spec"]
    assert (spec["sampler"], spec["seed"]) == ({"replicas": 4}, 7)
    succeeded("submit", "-", "--generate-name", stdin=file.read_text())
    assert api.job("cartpole-x7k2p")
    elsewhere = rltrain("submit", file, "--set", "metadata.namespace=team").stderr
    assert elsewhere == "see it with: rltrain watch cartpole -n team\n"


def test_submit_warns_of_code_that_would_be_missing(file: Path) -> None:
    result = rltrain("submit", file, "--set", "environment.id=my_module:Mine-v0")
    assert result.exit_code == 0
    note = "note: environment.id names the module my_module: send the files with --code"
    assert note in result.stderr
    wrappers = 'environment.wrappers=[{"entryPoint": "wraps:Mine"}]'
    result = rltrain("submit", file, "--set", wrappers, "--name", "first")
    assert "environment.wrappers[0].entryPoint names the module wraps: " in result.stderr
    changes = ('algorithm={"entryPoint": {"module": "mine"}}', 'network={"entryPoint": "nets:torso"}')
    result = rltrain("submit", file, "--set", changes[0], "--set", changes[1], "--name", "second")
    assert "names the module nets and algorithm.entryPoint.module names the module mine: " in result.stderr


def test_submit_sends_code_along(file: Path, api: FakeApi, tmp_path: Path) -> None:
    modules = [tmp_path / "my_env.py", tmp_path / "my_net.py"]
    for module in modules:
        module.write_text(f"name = {module.stem!r}\n")
    code = [word for module in modules for word in ("--code", module)]
    for name in ("first", "second"):
        result = rltrain("submit", file, "--set", "environment.id=my_env:Mine-v0", "--name", name, *code)
        assert result.exit_code == 0, result.output
        assert "note:" not in result.stderr
    name = api.job("first")["spec"]["code"]["configMap"]["name"]
    assert name.startswith("code-")
    config_map = api.objects["configmaps"]["default", name]
    assert config_map["data"] == {f"{m.stem}.py": f"name = {m.stem!r}\n" for m in modules}
    assert config_map["immutable"] is True

    modules[0].write_text("name = 'another'")
    rltrain("submit", file, *code, "--name", "other")
    assert len(api.objects["configmaps"]) == 2, "jobs that began with the old code keep it"

    succeeded("submit", file, *code, "--name", "many", "--seeds", "2")
    assert len(api.objects["configmaps"]) == 2, "the same files are the same ConfigMap"
    for name in ("many-0", "many-1"):
        assert ("default", api.job(name)["spec"]["code"]["configMap"]["name"]) in api.objects["configmaps"]


def test_code_that_cannot_be_sent_is_refused(file: Path, api: FakeApi, tmp_path: Path) -> None:
    places = {"picture.py": b"\xff\xd8", "my env.py": b"", "sub/a.py": b"", "a.py": b""}
    for name, content in places.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    given = ("--set", 'code={"configMap": {"name": "there"}}')
    for names, more, words in (
        (["nothing.py"], (), "nothing.py: cannot be read: No such file or directory"),
        (["picture.py"], (), "picture.py: is not text: put data into an image"),
        (["my env.py"], (), "my env.py: its name may have letters, digits, - _ . only"),
        (["sub"], (), "sub: is a folder: name its files; put packages into an image"),
        (["a.py", "sub/a.py"], (), "sub/a.py: there are two files a.py: give each its own name"),
        (["a.py"], given, "spec.code: names a ConfigMap already: leave that out, or send no files"),
    ):
        code = [word for name in names for word in ("--code", tmp_path / name)]
        assert words in refused("submit", file, *code, *more)
    assert api.requests == []


def test_what_is_refused(file: Path, api: FakeApi) -> None:
    for arguments, words in (
        (("--set", "sampler.replicas=-1"), "spec.sampler.replicas: must be at least 1, got -1"),
        (("--name", "My_Job"), "metadata.name: must be lower-case letters, digits and '-'"),
        (("--wait", "--follow"), "--wait and --follow exclude each other: leave one out"),
    ):
        assert words in refused("submit", file, *arguments)
    cause = {"field": "spec", "message": 'Invalid value: "object": too many samplers for this cluster'}
    api.fail("POST", "jobs", failure(422, "Invalid", "x", causes=[cause]))
    assert refused("submit", file) == "spec: too many samplers for this cluster"
    rltrain("submit", file)
    assert refused("submit", file).startswith("job cartpole exists already in namespace default")


def test_get(api: FakeApi, job: Any, manifest: str) -> None:
    progress = {"environmentSteps": 412160, "meanReturn": 213.25, "stepsPerSecond": 251034.5}
    sizes = {"learner": {"summary": "1/1"}, "sampler": {"summary": "2/2"}}
    api.status(phase="Running", algorithm="impala", progress=progress, restarts=1, **sizes)
    other = {"metadata": {"name": "other", "namespace": "team"}}
    api.put("rltrainingjobs", yaml.safe_load(manifest) | other)
    assert succeeded("get") == (
        "NAME       PHASE     ALGORITHM   LEARNERS   SAMPLERS   STEPS    RETURN   AGE\n"
        "cartpole   Running   impala      1/1        2/2        412160   213.25   2026-11-21T10:00:00Z\n"
    )
    assert succeeded("get", "cartpole", "-o", "wide").splitlines()[1].endswith("1          251034.5")
    everywhere = [line.split()[:2] for line in succeeded("get", "-A").splitlines()]
    assert everywhere == [["NAMESPACE", "NAME"], ["default", "cartpole"], ["team", "other"]]
    assert succeeded("get", "-o", "name", "-n", "team") == "rltrainingjob.rltraining.dev/other\n"
    one = yaml.safe_load(succeeded("get", "cartpole", "-o", "yaml"))
    assert (one["kind"], one["status"]["phase"]) == ("RLTrainingJob", "Running")
    every = json.loads(succeeded("get", "-A", "-o", "json"))
    assert (every["kind"], [item["kind"] for item in every["items"]]) == ("List", ["RLTrainingJob"] * 2)
    assert rltrain("get", "-n", "empty").stderr == "no jobs in namespace empty\n"
    assert refused("get", "nope") == "there is no job nope in namespace default"


def test_options_before_the_command_count_too(api: FakeApi, job: Any, kubeconfig: Path) -> None:
    assert rltrain("-n", "empty", "get").stderr == "no jobs in namespace empty\n"
    assert succeeded("-n", "empty", "get", "-n", "default").splitlines()[1].startswith("cartpole")
    told = refused("--context", "nope", "get", code=3)
    assert told == f"context nope is not in kubeconfig {kubeconfig}: it has here"
    for command in ("why", "plan"):
        assert refused("-n", "team", command, "nope") == "there is no job nope in namespace team"
    told = refused("-n", "team", "validate", "job.yaml")
    assert told.startswith("--namespace: is for commands on a cluster: submit, get, watch")


def test_scaling_turns_autoscale_off_or_is_refused(api: FakeApi, job: Any) -> None:
    api.job()["spec"]["sampler"] = {"replicas": 2, "autoscale": {"min": 1, "max": 9}}
    told = refused("scale", "cartpole", "--samplers", "2")
    assert told.startswith("cartpole: spec.sampler.replicas is 2 already, so sampler.autoscale stays on")
    told = succeeded("scale", "cartpole", "--samplers", "3")
    assert told == "cartpole: scaled to 3 samplers; sampler.autoscale is off until it is changed\n"


def test_scaling_a_run_on_this_machine_changes_its_manifest(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("runs", "one")
    told = refused("scale", run, "--samplers", "3")
    assert told == f"{run}: is no folder of a run: name one, or a job in a cluster"
    load(str(file)).save(run / workdir.JOB_FILE)
    told = refused("scale", run, "--samplers", "3")
    again = f"rltrain run {run} --resume --set sampler.replicas=3"
    assert told == f"{run}: this run has ended: continue it with: {again}"
    with workdir.locked(run):
        assert succeeded("scale", run, "--samplers", "3") == f"{run}: scaled to 3 samplers\n"
    assert load(str(run)).job.spec.sampler.replicas == 3


def test_a_folder_without_a_slash_is_scaled_if_no_job_has_its_name(
    api: FakeApi, job: Any, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cartpole", "mine"):
        load(str(file)).save(Path(name, workdir.JOB_FILE))
        with workdir.locked(Path(name)):
            assert succeeded("scale", name, "--samplers", "3") == f"{name}: scaled to 3 samplers\n"
    assert load("mine").job.spec.sampler.replicas == 3
    assert load("cartpole").job.spec.sampler.replicas != 3, "that of the job in the cluster"
    assert api.job()["spec"]["sampler"]["replicas"] == 3


def test_changes(api: FakeApi, job: Any) -> None:
    assert succeeded("scale", "cartpole", "--samplers", "8") == "cartpole: scaled to 8 samplers\n"
    assert api.job()["spec"]["sampler"]["replicas"] == 8
    api.job()["spec"]["checkpoint"] = {"uri": "s3://bucket/jobs"}
    told = "cartpole: suspended: continue it with: rltrain resume cartpole\n"
    assert succeeded("suspend", "cartpole") == told
    assert api.job()["spec"]["runPolicy"] == {"suspend": True}
    assert succeeded("resume", "cartpole") == "cartpole: resumed: see it with: rltrain watch cartpole\n"
    assert api.job()["spec"]["runPolicy"] == {"suspend": False}
    api.finish()
    for change in (["suspend"], ["resume"], ["scale", "--samplers", "2"]):
        told = "cartpole: is over already (Succeeded): this changes nothing\n"
        assert rltrain(*change, "cartpole").output == told
    assert succeeded("delete", "cartpole", "--wait") == "cartpole: deleted\n"
    assert refused("delete", "cartpole") == "there is no job cartpole in namespace default"


def test_what_is_lost_with_the_learners_pod_is_said(api: FakeApi, job: Any) -> None:
    assert "neither uri nor volume: start it again with: rltrain resume" in succeeded("suspend", "cartpole")
    checkpoint = {"uri": "file:///output/checkpoints/step-000000000010", "step": 10, "time": END}
    api.finish(checkpoint=checkpoint, policyUri="file:///output/policy")
    told = (
        "  kept       nothing: the output was stored in the learner's pod, "
        "because spec.checkpoint has neither uri nor volume\n"
    )
    places = "  policy     file:///output/policy\n  checkpoint file:///output/checkpoints/step-000000000010\n"
    output = succeeded("watch", "cartpole")
    assert told in output
    assert "file://" not in output
    api.job()["spec"]["checkpoint"] = {"uri": "s3://bucket/jobs"}
    output = succeeded("watch", "cartpole")
    assert told not in output
    assert places in output


def test_watch_shows_a_job_to_its_end(api: FakeApi, job: dict[str, Any]) -> None:
    api.pod("cartpole-learner-0", None)
    times = {"lastTimestamp": "2026-11-21T10:00:07Z", "count": 2}
    for uid, reason in ((job["metadata"]["uid"], "Restarted"), ("of-another", "Old")):
        api.event(reason.lower(), uid, type="Warning", reason=reason, message="it was killed", **times)
    api.status(phase="Running", startTime="2026-11-21T10:00:00Z")
    progress = {"environmentSteps": 412160, "meanReturn": 480.5, "percent": 100}
    api.after(3, lambda: api.finish(message="mean return 480.5", progress=progress))
    lines = succeeded("watch", "cartpole").splitlines()
    assert "00:07  Warning   Restarted: it was killed (2 times)" in lines
    assert "1:00:00  Succeeded mean return 480.5" in lines
    assert not [line for line in lines if "Old" in line]
    assert "Succeeded: cartpole: impala on CartPole-v1" in lines
    assert "  steps      412,160 used for learning" in lines


def test_events_from_before_a_job_was_resumed_stay_in_their_order(api: FakeApi, job: dict[str, Any]) -> None:
    for name, reason, second in (("a", "Resumed", 9), ("b", "Suspended", 5), ("c", "Running", 2)):
        moment = f"2026-11-21T10:00:0{second}Z"
        api.event(name, job["metadata"]["uid"], reason=reason, lastTimestamp=moment)
    api.status(phase="Running", startTime="2026-11-21T10:00:10Z")
    api.after(3, api.finish)
    lines = succeeded("watch", "cartpole").splitlines()
    told = [line.split()[2] for line in lines if line.startswith("00:00  Event")]
    assert told == ["Running:", "Suspended:", "Resumed:"]


@pytest.fixture
def await_notice(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Waits until a watched job is shown with a notice that has these words."""
    shown, changed, take = set[str](), threading.Condition(), observer.ClusterObserver.snapshot

    def snapshot(watched: observer.ClusterObserver, now: datetime) -> Snapshot:
        taken = take(watched, now)
        with changed:
            shown.add(taken.notice)
            changed.notify_all()
        return taken

    def wait(words: str) -> None:
        with changed:
            assert changed.wait_for(lambda: any(words in notice for notice in shown), TIMEOUT), shown

    monkeypatch.setattr(observer.ClusterObserver, "snapshot", snapshot)
    return wait


NO_OPERATOR, SILENT = "No operator has acted on this job yet", "or the operator is not running"


@pytest.mark.parametrize(
    ("status", "policy", "seconds", "told"),
    [
        ({}, {}, 60, [NO_OPERATOR]),
        ({}, {"managedBy": "example.com/other"}, 60, []),
        ({"phase": "Pending", "observedGeneration": 1}, {}, 0, []),
        ({"phase": "Running", "observedGeneration": 1}, {}, 0, [SILENT]),
        ({"phase": "Running", "observedGeneration": 1}, {}, 60, []),
    ],
)
def test_watch_reports_a_job_that_no_operator_updates(
    api: FakeApi,
    job: Any,
    monkeypatch: pytest.MonkeyPatch,
    await_notice: Callable[[str], None],
    status: Any,
    policy: Any,
    seconds: int,
    told: Any,
) -> None:
    """The job is old. A job that another controller manages has no operator."""
    monkeypatch.setattr(observer, "SILENT_SECONDS", seconds)
    job["spec"]["runPolicy"] = policy
    api.put("rltrainingjobs", {**job, "status": status})

    def finish() -> None:
        for words in told:
            await_notice(words)
        api.finish()

    api.after(3, finish)
    output = succeeded("watch", "cartpole")
    assert [words for words in (NO_OPERATOR, SILENT) if words in output] == told


def test_a_watched_job_that_fails_or_is_deleted(file: Path, api: FakeApi) -> None:
    api.after(3, lambda: api.finish(phase="Failed", message="learner: ValueError: x"))
    result = rltrain("submit", file, "--wait")
    assert (result.exit_code, result.stderr) == (1, "error: learner: ValueError: x\n")
    assert "Failed: cartpole: impala on CartPole-v1" in result.stdout
    api.status(phase="Pending", completionTime=None)
    api.after(api.streams + 3, lambda: api.remove("rltrainingjobs", "cartpole"))
    result = rltrain("watch", "cartpole", "--plain")
    assert (result.exit_code, result.stderr) == (2, "error: job cartpole was deleted; it was Pending\n")


def test_watch_continues_without_pods_that_may_not_be_seen(
    api: FakeApi, job: Any, await_notice: Callable[[str], None]
) -> None:
    api.fail("GET", "/pods", forbidden("list", "pods"))
    api.after(2, lambda: (await_notice("pods cannot be shown"), api.finish()))
    told = succeeded("watch", "cartpole")
    assert "pods cannot be shown: ann may not list pods in namespace default" in told


def test_ctrl_c_ends_only_the_watching(api: FakeApi, job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch_command.time, "sleep", interrupt)
    result = rltrain("watch", "cartpole")
    assert result.exit_code == 130
    assert result.stderr == "The job continues; look again with: rltrain watch cartpole\n"


def test_a_command_that_is_terminated_ends_in_order() -> None:
    @with_cluster_options
    def command(context: ClusterContext) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        command(**dict.fromkeys(OPTIONS))
    assert (ended.value.code, signal.getsignal(signal.SIGTERM)) == (143, before)
