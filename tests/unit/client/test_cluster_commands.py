"""The commands on a cluster, against a fake API server."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import rltrain
from fake_api import FakeApi, failure, when_streams
from rltraining.cluster import observer
from rltraining.cluster import watch as watch_command
from rltraining.cluster.place import OPTIONS, Place, with_place

COMMANDS = ("submit", "get", "watch", "report", "logs", "suspend", "resume", "scale", "delete")
END = "2026-11-21T11:00:00Z"


pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_by_example_and_says_where(command: str) -> None:
    result = rltrain(command, "--help")
    assert result.exit_code == 0
    assert f"rltrain {command}" in result.output
    assert all(option in result.output for option in ("--namespace", "--context", "--kubeconfig"))


@pytest.mark.parametrize("command", ["submit", "watch"])
def test_exit_codes_are_documented(command: str) -> None:
    assert "Exit code: 0 when it" in rltrain(command, "--help").output.replace("the job succeeded", "it")


def test_submit(file: Path, api: FakeApi) -> None:
    result = rltrain(
        "submit", file, "--set", "sampler.replicas=4", "--seed", "7", "--name", "mine", "-n", "team"
    )
    assert result.stdout == "rltrainingjob.rltraining.dev/mine created\n"
    assert result.stderr == "see it with: rltrain watch mine\n"
    spec = api.objects["rltrainingjobs"]["team", "mine"]["spec"]
    assert (spec["sampler"], spec["seed"]) == ({"replicas": 4}, 7)
    assert rltrain("submit", "-", "--generate-name", stdin=file.read_text()).exit_code == 0
    assert ("default", "cartpole-x7k2p") in api.objects["rltrainingjobs"]


def test_submit_says_where_the_job_is(file: Path) -> None:
    result = rltrain("submit", file, "--set", "metadata.namespace=team")
    assert result.stderr == "see it with: rltrain watch cartpole -n team\n"


def test_submit_warns_of_code_that_would_be_missing(file: Path) -> None:
    result = rltrain("submit", file, "--set", "environment.id=my_module:Mine-v0")
    assert result.exit_code == 0
    assert (
        "note: environment.id names the module my_module: send the files along with --code" in result.stderr
    )
    own = '{"entryPoint": {"module": "mine"}}'
    torso = '{"entryPoint": "nets:torso"}'
    changes = ("--set", f"algorithm={own}", "--set", f"network={torso}")
    result = rltrain("submit", file, *changes, "--name", "second")
    assert (
        "note: network.entryPoint names the module nets and algorithm.entryPoint.module names the module mine: "
        in result.stderr
    )


def test_submit_sends_code_along(file: Path, api: FakeApi, tmp_path: Path) -> None:
    modules = [tmp_path / "my_env.py", tmp_path / "my_net.py"]
    for module in modules:
        module.write_text(f"name = {module.stem!r}\n")
    code = [word for module in modules for word in ("--code", module)]
    for _ in range(2):
        result = rltrain("submit", file, "--set", "environment.id=my_env:Mine-v0", "--generate-name", *code)
        assert result.exit_code == 0, result.output
        assert "note:" not in result.stderr
        api.objects["rltrainingjobs"]["default", "first"] = api.objects["rltrainingjobs"].pop(
            ("default", "cartpole-x7k2p")
        )  # the fake makes this one name only
    spec = api.objects["rltrainingjobs"]["default", "first"]["spec"]
    name = spec["code"]["configMap"]["name"]
    assert name.startswith("code-")
    config_map = api.objects["configmaps"]["default", name]
    assert config_map["data"] == {f"{m.stem}.py": f"name = {m.stem!r}\n" for m in modules}
    assert config_map["immutable"] is True

    modules[0].write_text("name = 'another'")
    rltrain("submit", file, *code, "--name", "other")
    assert len(api.objects["configmaps"]) == 2, "jobs that began with the old code keep it"

    assert rltrain("submit", file, *code, "--name", "many", "--seeds", "2").exit_code == 0
    assert len(api.objects["configmaps"]) == 2, "the same files are the same ConfigMap"
    for number in range(2):
        job = api.objects["rltrainingjobs"]["default", f"many-{number}"]
        assert ("default", job["spec"]["code"]["configMap"]["name"]) in api.objects["configmaps"]


def test_code_that_cannot_be_sent_is_refused(file: Path, api: FakeApi, tmp_path: Path) -> None:
    places = {"picture.py": b"\xff\xd8", "my env.py": b"", "sub/a.py": b"", "a.py": b""}
    for name, content in places.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    given = ("--set", 'code={"configMap": {"name": "there"}}')
    for names, more, words in (
        (["nothing.py"], (), "nothing.py: cannot be read: No such file or directory"),
        (["picture.py"], (), "picture.py: is not text: data go into an image"),
        (["my env.py"], (), "my env.py: its name may have letters, digits, - _ . only"),
        (["sub"], (), "sub: is a folder: name its files; packages go into an image"),
        (["a.py", "sub/a.py"], (), "sub/a.py: there are two files a.py: give each its own name"),
        (["a.py"], given, "spec.code: names a ConfigMap already: leave that out, or send no files"),
    ):
        code = [word for name in names for word in ("--code", tmp_path / name)]
        result = rltrain("submit", file, *code, *more)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr
    assert api.requests == []


def test_what_is_refused(file: Path, api: FakeApi) -> None:
    for arguments, words in (
        (("--set", "sampler.replicas=-1"), "spec.sampler.replicas: must be at least 1, got -1"),
        (
            ("--set", "sampler.replica=1"),
            "spec.sampler.replica: is not a known field: did you mean replicas?",
        ),
        (("--name", "My_Job"), "metadata.name: must be lower-case letters, digits and '-'"),
        (("--wait", "--follow"), "--wait and --follow exclude each other: leave one out"),
    ):
        result = rltrain("submit", file, *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr
    cause = {"field": "spec", "message": 'Invalid value: "object": too many samplers for this cluster'}
    api.fail("POST", "jobs", failure(422, "Invalid", "x", causes=[cause]))
    result = rltrain("submit", file)
    assert (result.exit_code, result.stderr) == (2, "error: spec: too many samplers for this cluster\n")
    rltrain("submit", file)
    result = rltrain("submit", file)
    assert (result.exit_code, result.stderr.split(":")[:2]) == (
        2,
        ["error", " job cartpole exists already in namespace default"],
    )


def test_get(api: FakeApi, job: Any, manifest: str) -> None:
    api.status(
        "cartpole",
        phase="Running",
        algorithm="impala",
        learner={"summary": "1/1"},
        sampler={"summary": "2/2"},
        progress={"environmentSteps": 412160, "meanReturn": 213.25, "stepsPerSecond": 251034.5},
        restarts=1,
    )
    api.put(
        "rltrainingjobs", {**yaml.safe_load(manifest), "metadata": {"name": "other", "namespace": "team"}}
    )
    assert rltrain("get").output == (
        "NAME       PHASE     ALGORITHM   LEARNERS   SAMPLERS   STEPS    RETURN   AGE\n"
        "cartpole   Running   impala      1/1        2/2        412160   213.25   2026-11-21T10:00:00Z\n"
    )
    assert rltrain("get", "cartpole", "-o", "wide").output.splitlines()[1].endswith("1          251034.5")
    everywhere = rltrain("get", "-A").output.splitlines()
    assert [line.split()[:2] for line in everywhere] == [
        ["NAMESPACE", "NAME"],
        ["default", "cartpole"],
        ["team", "other"],
    ]
    assert rltrain("get", "-o", "name", "-n", "team").output == "rltrainingjob.rltraining.dev/other\n"
    one = yaml.safe_load(rltrain("get", "cartpole", "-o", "yaml").output)
    assert (one["kind"], one["status"]["phase"]) == ("RLTrainingJob", "Running")
    every = json.loads(rltrain("get", "-A", "-o", "json").output)
    assert (every["kind"], [item["kind"] for item in every["items"]]) == ("List", ["RLTrainingJob"] * 2)
    assert rltrain("get", "-n", "empty").stderr == "no jobs in namespace empty\n"
    assert rltrain("get", "nope").stderr == "error: there is no job nope in namespace default\n"


def test_options_before_the_command_count_too(api: FakeApi, job: Any, kubeconfig: Path) -> None:
    assert rltrain("-n", "empty", "get").stderr == "no jobs in namespace empty\n"
    assert rltrain("-n", "empty", "get", "-n", "default").output.splitlines()[1].startswith("cartpole")
    result = rltrain("--context", "nope", "get")
    assert (result.exit_code, result.stderr) == (
        3,
        f"error: context nope is not in kubeconfig {kubeconfig}: it has here\n",
    )
    result = rltrain("-n", "team", "validate", "job.yaml")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --namespace: is for commands on a cluster: submit, get, watch")


def test_changes(api: FakeApi, job: Any) -> None:
    def spec() -> Any:
        return api.objects["rltrainingjobs"]["default", "cartpole"]["spec"]

    assert rltrain("scale", "cartpole", "--samplers", "8").output == "cartpole: scaled to 8 samplers\n"
    assert spec()["sampler"]["replicas"] == 8
    spec()["checkpoint"] = {"uri": "s3://bucket/jobs"}
    assert (
        rltrain("suspend", "cartpole").output
        == "cartpole: suspended: it goes on with: rltrain resume cartpole\n"
    )
    assert spec()["runPolicy"] == {"suspend": True}
    assert rltrain("resume", "cartpole").output == "cartpole: resumed: see it with: rltrain watch cartpole\n"
    assert spec()["runPolicy"] == {"suspend": False}
    api.status("cartpole", phase="Succeeded", completionTime=END)
    for change in (["suspend"], ["resume"], ["scale", "--samplers", "2"]):
        said = rltrain(*change, "cartpole").output
        assert said == "cartpole: is over already (Succeeded): this changes nothing\n"
    assert rltrain("delete", "cartpole", "--wait").output == "cartpole: deleted\n"
    result = rltrain("delete", "cartpole")
    assert (result.exit_code, result.stderr) == (2, "error: there is no job cartpole in namespace default\n")


def test_what_is_lost_with_the_learners_pod_is_said(api: FakeApi, job: Any) -> None:
    assert rltrain("suspend", "cartpole").output == (
        "cartpole: suspended: spec.checkpoint has neither uri nor volume, so it begins anew with: rltrain resume cartpole\n"
    )
    checkpoint = {"uri": "file:///output/checkpoints/step-000000000010", "step": 10, "time": END}
    over = {"phase": "Succeeded", "completionTime": END, "checkpoint": checkpoint}
    api.status("cartpole", **over, policyUri="file:///output/policy")
    told = "  kept       nothing, it lay in the learner's pod: spec.checkpoint has neither uri nor volume\n"
    places = "  policy     file:///output/policy\n  checkpoint file:///output/checkpoints/step-000000000010\n"
    output = rltrain("watch", "cartpole").output
    assert told in output
    assert "file://" not in output
    api.objects["rltrainingjobs"]["default", "cartpole"]["spec"]["checkpoint"] = {"uri": "s3://bucket/jobs"}
    output = rltrain("watch", "cartpole").output
    assert told not in output
    assert places in output


def story(api: FakeApi, job: dict[str, Any]) -> None:
    """A pod and events: of this job, of one of its name before it, and without a time."""
    labels = {
        f"rltraining.dev/{key}": value
        for key, value in {"job-name": "cartpole", "role": "learner", "index": "0"}.items()
    }
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    api.put(
        "pods",
        {
            "metadata": {"name": "cartpole-learner-0", "labels": labels},
            "status": {"conditions": [unscheduled]},
        },
    )
    for uid, reason in ((job["metadata"]["uid"], "Restarted"), ("of-another", "Old")):
        event = {
            "metadata": {"name": reason.lower()},
            "involvedObject": {"kind": "RLTrainingJob", "name": "cartpole", "uid": uid},
            "type": "Warning",
            "reason": reason,
            "message": "cartpole-sampler-0 was killed",
            "lastTimestamp": "2026-11-21T10:00:07Z",
            "count": 2,
        }
        api.put("events", event)


def test_watch_shows_a_job_to_its_end(api: FakeApi, job: dict[str, Any]) -> None:
    story(api, job)
    api.status("cartpole", phase="Running", startTime="2026-11-21T10:00:00Z")

    def finish() -> None:
        progress = {"environmentSteps": 412160, "meanReturn": 480.5, "percent": 100}
        api.status(
            "cartpole", phase="Succeeded", message="mean return 480.5", progress=progress, completionTime=END
        )

    when_streams(api, 3, finish)
    result = rltrain("watch", "cartpole")
    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert "00:07  Warning   Restarted: cartpole-sampler-0 was killed (2 times)" in lines
    assert "1:00:00  Succeeded mean return 480.5" in lines
    assert not [line for line in lines if "Old" in line]
    assert "Succeeded: cartpole: impala on CartPole-v1" in lines
    assert "  steps      412,160 used for learning" in lines


def test_events_from_before_a_job_was_resumed_stay_in_their_order(api: FakeApi, job: dict[str, Any]) -> None:
    for name, reason, second in (("a", "Resumed", 9), ("b", "Suspended", 5), ("c", "Running", 2)):
        event = {
            "metadata": {"name": name},
            "involvedObject": {"kind": "RLTrainingJob", "name": "cartpole", "uid": job["metadata"]["uid"]},
            "reason": reason,
            "lastTimestamp": f"2026-11-21T10:00:0{second}Z",
        }
        api.put("events", event)
    api.status("cartpole", phase="Running", startTime="2026-11-21T10:00:10Z")
    when_streams(api, 3, lambda: api.status("cartpole", phase="Succeeded", completionTime=END))
    lines = rltrain("watch", "cartpole").output.splitlines()
    told = [line.split()[2] for line in lines if line.startswith("00:00  Event")]
    assert told == ["Running:", "Suspended:", "Resumed:"]


@pytest.mark.parametrize(
    ("status", "managed_by", "told"),
    [
        ({}, None, True),
        ({}, "example.com/other", False),
        ({"phase": "Pending", "observedGeneration": 1}, None, False),
    ],
)
def test_watch_says_of_an_old_job_that_no_operator_has_done_anything_with_it(
    api: FakeApi, job: dict[str, Any], status: dict[str, Any], managed_by: str | None, told: bool
) -> None:
    job["spec"]["runPolicy"] = {"managedBy": managed_by} if managed_by else {}
    api.put("rltrainingjobs", job)
    api.status("cartpole", **status)
    when_streams(api, 3, lambda: api.status("cartpole", phase="Succeeded", completionTime=END))
    output = rltrain("watch", "cartpole").output
    assert ("no operator has done anything with this job yet" in output) == told


@pytest.mark.parametrize(
    ("phase", "seconds", "told"), [("Running", 0, True), ("Running", 60, False), ("Pending", 0, False)]
)
def test_watch_says_of_a_running_job_that_nothing_is_heard_of_it(
    api: FakeApi, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch, phase: str, seconds: float, told: bool
) -> None:
    monkeypatch.setattr(observer, "SILENT_SECONDS", seconds)
    api.status("cartpole", phase=phase, observedGeneration=1)
    when_streams(api, 3, lambda: api.status("cartpole", phase="Succeeded", completionTime=END))
    assert ("or its operator is away" in rltrain("watch", "cartpole").output) == told


def test_a_watched_job_that_fails(api: FakeApi, job: Any) -> None:
    when_streams(
        api,
        3,
        lambda: api.status("cartpole", phase="Failed", message="learner: ValueError: x", completionTime=END),
    )
    result = rltrain("watch", "cartpole", "--plain")
    assert result.exit_code == 1
    assert result.stderr == "error: learner: ValueError: x\n"


def test_a_watched_job_that_is_deleted(api: FakeApi, job: Any) -> None:
    when_streams(api, 3, lambda: api.remove("rltrainingjobs", "cartpole"))
    result = rltrain("watch", "cartpole")
    assert (result.exit_code, result.stderr) == (2, "error: job cartpole was deleted; it was Pending\n")


def test_watch_goes_on_without_pods_that_may_not_be_seen(api: FakeApi, job: Any) -> None:
    message = 'User "ann" cannot list resource "pods" in API group "" in the namespace "default"'
    api.fail("GET", "/pods", failure(403, "Forbidden", message))
    when_streams(api, 2, lambda: api.status("cartpole", phase="Succeeded", completionTime=END))
    result = rltrain("watch", "cartpole")
    assert result.exit_code == 0
    assert "pods cannot be shown: ann may not list pods in namespace default" in result.output


def test_ctrl_c_ends_only_the_watching(api: FakeApi, job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch_command.time, "sleep", interrupt)
    result = rltrain("watch", "cartpole")
    assert result.exit_code == 130
    assert result.stderr == "the job goes on; look again with: rltrain watch cartpole\n"


def test_submit_waits(file: Path, api: FakeApi) -> None:
    when_streams(api, 3, lambda: api.status("cartpole", phase="Succeeded", completionTime=END))
    result = rltrain("submit", file, "--wait")
    assert result.exit_code == 0
    assert "Succeeded: cartpole: impala on CartPole-v1" in result.output


def test_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for arguments in (("get",), ("watch", "x"), ("logs", "x"), ("delete", "x")):
        result = rltrain(*arguments)
        assert result.exit_code == 3
        assert result.stderr.startswith("error: no cluster is known: ")
        assert len(result.stderr.splitlines()) == 1


def test_a_command_that_is_terminated_ends_in_order() -> None:
    @with_place
    def command(place: Place) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        command(**dict.fromkeys(OPTIONS))
    assert (ended.value.code, signal.getsignal(signal.SIGTERM)) == (143, before)
