"""Jobs in a cluster, one request at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import FakeApi, failure, forbidden
from rltraining import (
    AccessDeniedError,
    ClusterUnreachableError,
    JobExistsError,
    JobNotFoundError,
    JobRejectedError,
    NotInstalledError,
    RLTrainingClient,
    ServerError,
    UnreadableJobError,
)
from rltraining_api.manifest import load_manifest

JOBS = "/apis/rltraining.dev/v1alpha1/namespaces/default/rltrainingjobs"


def test_a_job_is_created_as_it_was_written(
    client: RLTrainingClient, api: FakeApi, manifest: str, file: Path
) -> None:
    for source in (load_manifest(manifest), yaml.safe_load(manifest), file, str(file)):
        job = client.create(source)
        assert (job.metadata.name, job.metadata.namespace) == ("cartpole", "default")
        assert job.spec.seed == 0, "defaults are filled in for who reads"
        stored = api.objects["rltrainingjobs"].pop(("default", "cartpole"))
        assert stored["spec"] == yaml.safe_load(manifest)["spec"], "but they are the API server's to set"
        assert "annotations" not in stored["metadata"], "a path on this machine means nothing there"
    job = client.create(file, "team", overrides=["seed=7"], name="other", generate_name=True)
    assert (job.metadata.name, job.metadata.namespace, job.spec.seed) == ("other-x7k2p", "team", 7)
    assert client.create(file, name="second").metadata.name == "second"


def test_config_maps_beside_the_job_go_with_it(client: RLTrainingClient, api: FakeApi, file: Path) -> None:
    code = {"metadata": {"name": "code"}, "data": {"a.py": "x = 1"}}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", **code}
    file.write_text(f"{file.read_text()}\n---\n{yaml.safe_dump(config_map)}")
    client.create(file)
    assert api.objects["configmaps"]["default", "code"]["data"] == {"a.py": "x = 1"}
    with pytest.raises(JobExistsError):
        client.create(file, overrides=["seed=1"])
    patches = [path for method, path in api.requests if method == "PATCH"]
    assert len(patches) == 1, "nothing is left by a refused job"


def test_a_bad_manifest_is_refused_before_any_request(client: RLTrainingClient, api: FakeApi) -> None:
    with pytest.raises(JobRejectedError, match=r"no-such-file\.yaml: there is no such file"):
        client.create("no-such-file.yaml")
    with pytest.raises(JobRejectedError) as caught:
        client.create({"kind": "Pod"})
    assert caught.value.problems[0] == "manifest: apiVersion: is required: rltraining.dev/v1alpha1"
    assert caught.value.problems[1].startswith("manifest: kind: must be")
    assert api.requests == []


def test_two_namespaces_are_one_too_many(client: RLTrainingClient, manifest: str) -> None:
    data = yaml.safe_load(manifest)
    data["metadata"]["namespace"] = "mine"
    with pytest.raises(
        JobRejectedError, match=r"metadata\.namespace: is mine, but namespace team was asked for"
    ):
        client.create(data, "team")
    assert client.create(data).metadata.namespace == "mine"


def test_get_list_scale_suspend_resume_delete(
    client: RLTrainingClient, api: FakeApi, job: dict[str, Any], manifest: str
) -> None:
    api.status("cartpole", phase="Running", ofANewerVersion=1)
    assert client.get("cartpole").status.phase == "Running"
    metadata = {"name": "other", "namespace": "team", "labels": {"stage": "test"}}
    api.put("rltrainingjobs", yaml.safe_load(manifest) | {"metadata": metadata})
    assert [job.metadata.name for job in client.list()] == ["cartpole"]
    assert [job.metadata.name for job in client.list(all_namespaces=True)] == ["cartpole", "other"]
    assert [job.metadata.name for job in client.list("stage=test", all_namespaces=True)] == ["other"]
    assert client.in_namespace("team").get("other").metadata.labels == {"stage": "test"}

    client.scale("cartpole", 5)
    assert ("PATCH", f"{JOBS}/cartpole/scale?fieldManager=rltrain") in api.requests
    assert client.get("cartpole").spec.sampler.replicas == 5
    assert client.suspend("cartpole").spec.run_policy.suspend
    assert not client.resume("cartpole").spec.run_policy.suspend
    client.delete("cartpole")
    assert client.list() == []


def test_a_long_list_comes_in_pages(
    client: RLTrainingClient, api: FakeApi, manifest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltraining.sdk.watching.PAGE", 2)
    for number in range(5):
        api.put("rltrainingjobs", {**yaml.safe_load(manifest), "metadata": {"name": f"job-{number}"}})
    assert [job.metadata.name for job in client.list()] == [f"job-{number}" for number in range(5)]
    assert len(api.requests) == 3


REFUSALS = {
    "CEL": (
        failure(422, "Invalid", "x", causes=[{"field": "spec.a", "message": 'Invalid value: "object": no'}]),
        JobRejectedError,
        r"^spec\.a: no$",
    ),
    "RBAC": (
        forbidden("create", "rltrainingjobs"),
        AccessDeniedError,
        "^ann may not create rltrainingjobs in",
    ),
    "quota": (failure(403, "Forbidden", "exceeded quota: gpus"), JobRejectedError, "^exceeded quota: gpus$"),
    "unknown user": (failure(401, "Unauthorized", "x"), AccessDeniedError, "Authentication failed"),
    "no namespace": (
        failure(404, "NotFound", 'namespaces "x" not found', name="x", kind="namespaces"),
        JobRejectedError,
        "there is no namespace x: create it with kubectl create namespace",
    ),
    "server": (
        failure(500, "InternalError", "etcdserver: request timed out"),
        ServerError,
        r"the API server of context here of .* answers 500: etcdserver: request timed out: try again later",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_is_a_sentence(case: str, client: RLTrainingClient, api: FakeApi, file: Path) -> None:
    status, error, words = REFUSALS[case]
    api.fail("POST", "rltrainingjobs", status, times=3)
    with pytest.raises(error, match=words):
        client.create(file)
    assert len(api.requests) == 1, "what may have been done is not asked for again"


def test_a_job_that_is_not_there(client: RLTrainingClient, job: dict[str, Any]) -> None:
    for action in (client.get, client.suspend, client.delete, client.wait):
        with pytest.raises(JobNotFoundError, match=r"^there is no job nope in namespace default$"):
            action("nope")


def test_a_cluster_without_the_operator(client: RLTrainingClient, api: FakeApi) -> None:
    api.fail("GET", "rltrainingjobs", text="404 page not found\n")
    with pytest.raises(
        NotInstalledError, match=r"has no kind RLTrainingJob: .* helm upgrade --install .*REGISTRY"
    ):
        client.list()


def test_a_proxy_that_answers_with_a_page_of_its_own(
    client: RLTrainingClient, job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.jobs.api, "_whole", lambda response: b"<html>log in</html>")
    with pytest.raises(ClusterUnreachableError, match="the answer is not from an API server"):
        client.get("cartpole")


def test_a_job_of_another_version(client: RLTrainingClient, api: FakeApi) -> None:
    api.put("rltrainingjobs", {"metadata": {"name": "odd"}, "spec": {"algorithm": {"sarsa": {}}}})
    with pytest.raises(UnreadableJobError, match=r"job odd cannot be read: .*: upgrade rltraining"):
        client.get("odd")


@pytest.mark.parametrize("code", [0, 429, 500, 503])
def test_a_fault_that_passes_is_not_noticed(
    code: int, client: RLTrainingClient, api: FakeApi, job: dict[str, Any]
) -> None:
    fault = failure(code, "ForAWhile", "x") if code else None
    api.fail("GET", "cartpole", fault, times=2)
    assert client.get("cartpole").metadata.name == "cartpole"
    api.fail("PATCH", "scale", fault, times=2)
    client.scale("cartpole", 3)
    assert client.get("cartpole").spec.sampler.replicas == 3


def test_a_throttled_create_is_asked_for_again(client: RLTrainingClient, api: FakeApi, manifest: str) -> None:
    api.fail("POST", "rltrainingjobs", failure(429, "TooManyRequests", "slow down"), times=2)
    assert client.create(yaml.safe_load(manifest)).metadata.name == "cartpole"
