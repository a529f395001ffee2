"""Which jobs are encrypted, and what their pods and policies are then."""

from __future__ import annotations

from typing import Any

import pytest
from operator_world import LEARNER, SAMPLER_0, World, make_world
from rltraining_api import contract
from rltraining_api.lifecycle import Encryption
from rltraining_api.names import ANNOTATION_ENCRYPTION
from rltraining_operator.settings import Settings

OPERATOR = {"podSelector": {"matchLabels": {"app.kubernetes.io/instance": "rltraining-operator"}}}
PROMETHEUS = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}


def settled(installation: Encryption, **spec: Any) -> World:
    world = make_world(**spec)
    world.settings = Settings(encryption=installation, operator_peer=OPERATOR, metrics_peer=PROMETHEUS)
    return world.settle()


def is_encrypted(world: World, pod: str) -> bool:
    """Whether the pod has the annotation for the operator, and its process the port."""
    annotated = ANNOTATION_ENCRYPTION in world.pods[pod]["metadata"].get("annotations", {})
    (trainer,) = world.pods[pod]["spec"]["containers"]
    port = {variable["name"]: variable["value"] for variable in trainer["env"]}.get(contract.ENV_TLS_PORT)
    assert (port == str(contract.TLS_PORT)) == annotated
    assert ({"name": "tls", "containerPort": contract.TLS_PORT} in trainer["ports"]) == annotated
    return annotated


@pytest.mark.parametrize(
    ("job", "installation", "encrypted"),
    [(None, "None", False), (None, "TLS", True), ("None", "TLS", False), ("TLS", "None", True)],
)
def test_a_job_or_else_the_installation_decides_whether_connections_are_encrypted(
    job: str | None, installation: Encryption, encrypted: bool
) -> None:
    world = settled(installation, **({"encryption": job} if job else {}))
    assert is_encrypted(world, LEARNER) == is_encrypted(world, SAMPLER_0) == encrypted
    _, *rules = world.others["NetworkPolicy", "demo"]["spec"]["ingress"]
    ports = [(rule["from"], [port["port"] for port in rule["ports"]]) for rule in rules]
    http, tls = ([OPERATOR, PROMETHEUS], [contract.HTTP_PORT]), ([OPERATOR], [contract.TLS_PORT])
    assert ports == ([http, tls] if encrypted else [http])


def test_a_new_pod_is_encrypted_like_the_present_ones_after_a_change_of_the_installation() -> None:
    world = settled("None").run().settle()
    world.settings = Settings(encryption="TLS")
    world.vanish(SAMPLER_0).settle()
    assert not is_encrypted(world, SAMPLER_0)


def test_a_job_follows_the_installation_when_it_is_resumed() -> None:
    world = settled("None").run().settle()
    world.settings = Settings(encryption="TLS")
    world.spec(runPolicy={"suspend": True}).settle()
    world.end_deleted().settle()
    world.spec(runPolicy={"suspend": False}).settle()
    assert is_encrypted(world, LEARNER)
    assert is_encrypted(world, SAMPLER_0)
