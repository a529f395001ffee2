"""The child objects of a job."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from operator_world import LEARNER, SAMPLER_1, TOKEN, make_world
from rltraining_api import contract
from rltraining_api.manifest import parse_job
from rltraining_operator.pods.children import CHILDREN, Parent, covers
from rltraining_operator.settings import Settings


def pod(name: str = LEARNER, **spec: Any) -> dict[str, Any]:
    world = make_world(**spec).settle()
    return world.pods[name]


def env(made: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in made["spec"]["containers"][0]["env"]}


def template(trainer: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "trainer"} | (trainer or {}), *spec.pop("containers", [])]
    return {"template": {"spec": {"containers": containers} | spec}}


def test_a_member_knows_who_it_is_and_where_the_learner_is() -> None:
    assert env(pod(SAMPLER_1)) == {
        "OMP_NUM_THREADS": "1",
        contract.ENV_JOB_FILE: "/etc/rltraining/job.json",
        contract.ENV_TOKEN_FILE: "/etc/rltraining-token/token",
        contract.ENV_OUTPUT_DIR: "/output",
        contract.ENV_TERMINATION_LOG: "/dev/termination-log",
        contract.ENV_POD_NAME: SAMPLER_1,
        contract.ENV_INDEX: "1",
        contract.ENV_HTTP_PORT: "8080",
        contract.ENV_LEARNERS: "http://demo-learner-0.demo-rlt:8080",
        contract.ENV_REPLAYS: "",
    }
    spec = pod(SAMPLER_1)["spec"]
    assert (spec["hostname"], spec["subdomain"]) == (SAMPLER_1, "demo-rlt")
    assert spec["containers"][0]["command"] == ["rltraining-trainer", "sampler"]


def test_pods_pass_pod_security_restricted() -> None:
    spec = pod()["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    mounts = spec["containers"][0]["volumeMounts"]
    assert {mount["mountPath"]: mount.get("readOnly", False) for mount in mounts} == {
        "/etc/rltraining": True,
        "/etc/rltraining-token": True,
        "/output": False,
        "/tmp": False,
    }


def test_probes() -> None:
    container = pod()["spec"]["containers"][0]
    assert container["readinessProbe"]["httpGet"] == {"path": contract.READY_PATH, "port": contract.HTTP_PORT}
    for name in ("startupProbe", "livenessProbe"):
        assert container[name]["httpGet"] == {"path": contract.HEALTH_PATH, "port": contract.HTTP_PORT}
    seconds = {
        name: container[name]["periodSeconds"] * container[name]["failureThreshold"]
        for name in ("readinessProbe", "startupProbe", "livenessProbe")
    }
    assert seconds == {"readinessProbe": 4, "startupProbe": 240, "livenessProbe": 30}, "until it counts"


def test_the_token_is_readable_to_the_trainer_alone() -> None:
    spec = pod()["spec"]
    (token,) = (volume["secret"] for volume in spec["volumes"] if volume["name"] == "token")
    assert token["secretName"] == "demo-token-job-uid"
    assert token["defaultMode"] & 0o777 == 0o440, "to its owner and to fsGroup, which the trainer is in"
    assert spec["securityContext"]["fsGroup"] == 65532


def test_a_template_is_merged() -> None:
    theirs = template(
        {
            "env": [
                {"name": "OMP_NUM_THREADS", "value": "4"},
                {"name": "MINE", "value": "x"},
                {"name": contract.ENV_INDEX, "value": "99"},
            ],
            "resources": {"limits": {"memory": "2Gi"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "securityContext": {"readOnlyRootFilesystem": False},
        },
        containers=[{"name": "sidecar", "image": "busybox"}],
        volumes=[{"name": "data", "emptyDir": {}}, {"name": "output", "hostPath": {"path": "/runs"}}],
        nodeSelector={"gpu": "true"},
        restartPolicy="Never",
    )
    theirs["template"]["metadata"] = {
        "labels": {"team": "a"},
        "annotations": {"a": "b"},
    }
    made = pod(learner=theirs)
    trainer, sidecar = made["spec"]["containers"]
    assert (env(made)["OMP_NUM_THREADS"], env(made)["MINE"], env(made)[contract.ENV_INDEX]) == ("4", "x", "0")
    assert trainer["resources"] == {"limits": {"memory": "2Gi"}}
    assert trainer["securityContext"]["readOnlyRootFilesystem"] is False
    assert trainer["securityContext"]["allowPrivilegeEscalation"] is False
    assert trainer["volumeMounts"][-1] == {"name": "data", "mountPath": "/data"}
    assert sidecar == {"name": "sidecar", "image": "busybox"}
    volumes = {volume["name"]: volume for volume in made["spec"]["volumes"]}
    assert volumes["output"] == {"name": "output", "hostPath": {"path": "/runs"}}
    assert volumes.keys() == {"config", "token", "output", "tmp", "data"}
    assert (made["spec"]["restartPolicy"], made["spec"]["nodeSelector"]) == ("OnFailure", {"gpu": "true"})
    assert (
        made["metadata"]["labels"] | {"team": "a", "rltraining.dev/role": "learner"}
        == made["metadata"]["labels"]
    )
    assert made["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    ("volume", "claim"),
    [
        (None, None),
        ({"claimName": "mine"}, "mine"),
        ({"claimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}, "demo-checkpoints"),
    ],
)
def test_checkpoints_of_the_first_learner_are_on_the_claim(
    volume: dict[str, Any] | None, claim: str | None
) -> None:
    world = make_world(learner={"replicas": 2}, checkpoint={"volume": volume} if volume else {}).settle()
    outputs = {
        name: next(v for v in made["spec"]["volumes"] if v["name"] == "output")
        for name, made in world.pods.items()
    }
    mounted = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    assert outputs.pop(LEARNER) == {"name": "output"} | mounted
    assert list(outputs.values()) == [{"name": "output", "emptyDir": {}}] * 3
    made = ("PersistentVolumeClaim", "demo-checkpoints") in world.others
    assert made == (claim == "demo-checkpoints")


def test_only_the_first_learner_has_the_keys_of_the_trackers() -> None:
    tracking = {"wandb": {"project": "a"}, "secretName": "keys"}
    theirs = template({"envFrom": [{"configMapRef": {"name": "mine"}}]})
    world = make_world(tracking=tracking, learner={"replicas": 2} | theirs, sampler={"replicas": 2} | theirs)
    world.settle()
    sources = {name: made["spec"]["containers"][0]["envFrom"] for name, made in world.pods.items()}
    mine = {"configMapRef": {"name": "mine"}}
    assert sources.pop(LEARNER) == [{"secretRef": {"name": "keys"}}, mine]
    assert list(sources.values()) == [[mine]] * 3


def test_the_keys_of_the_trackers_do_not_need_other_sources() -> None:
    tracking = {"wandb": {"project": "a"}, "secretName": "keys"}
    made = pod(tracking=tracking, learner=template({"envFrom": None, "resources": None}))
    assert made["spec"]["containers"][0]["envFrom"] == [{"secretRef": {"name": "keys"}}]


def test_user_code_is_mounted_and_named() -> None:
    made = pod(code={"configMap": {"name": "mine"}})
    assert env(made)["RLTRAINING_CODE_DIR"] == "/etc/rltraining-code"
    assert {"name": "code", "configMap": {"name": "mine"}} in made["spec"]["volumes"]
    mount = {"name": "code", "mountPath": "/etc/rltraining-code", "readOnly": True}
    assert mount in made["spec"]["containers"][0]["volumeMounts"]


def test_everything_is_owned_and_labelled() -> None:
    world = make_world().settle()
    for child in (*world.pods.values(), *world.others.values()):
        owner = child["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("RLTrainingJob", "job-uid", True)
        assert child["metadata"]["labels"]["rltraining.dev/job-name"] == "demo"
        assert child["metadata"]["namespace"] == "default"


def test_the_trainer_reads_a_whole_job() -> None:
    world = make_world().settle()
    data = json.loads(world.others["ConfigMap", "demo-config"]["data"]["job.json"])
    resolved = parse_job(data)
    assert resolved.spec == world.parsed.spec
    assert data["spec"]["algorithm"]["impala"], "defaults are filled in"


@pytest.mark.parametrize(("namespace", "read"), [("team", "team"), (None, "default")])
def test_the_trainer_reads_whose_job_it_is(namespace: str | None, read: str) -> None:
    world = make_world()
    job = world.parsed
    job = job.model_copy(update={"metadata": job.metadata.model_copy(update={"namespace": namespace})})
    (config_map,) = (child for child in CHILDREN if child.kind == "ConfigMap")
    child = config_map.build(Parent(job, world.observe(), Settings(), ended=False))
    assert child is not None
    assert json.loads(child["data"]["job.json"])["metadata"] == {
        "name": "demo",
        "namespace": read,
        "uid": "job-uid",
    }


def test_pods_get_the_token_from_the_secret_of_this_job_alone() -> None:
    """The Secret of an earlier job of the same name may still exist, and must not be used."""
    world = make_world().settle()
    secret = world.others["Secret", "demo-token-job-uid"]
    assert base64.b64decode(secret["data"]["token"]).decode() == TOKEN
    assert secret["immutable"] is True
    volumes = {volume["name"]: volume for volume in world.pods[SAMPLER_1]["spec"]["volumes"]}
    assert volumes["token"]["secret"]["secretName"] == "demo-token-job-uid"


@pytest.mark.parametrize(
    ("found", "wanted", "yes"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2}}, True),
        ({"a": [{"b": 1, "nodePort": 3}]}, {"a": [{"b": 1}]}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"a": None}, False),
    ],
)
def test_covers(found: object, wanted: object, yes: bool) -> None:
    assert covers(found, wanted) is yes
