"""The test cluster itself: it comes up once, goes on after its parts were killed, and goes without a trace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import iptables
from tests.cluster.api import Cluster, ClusterError, Places, down, requirements, up
from tests.cluster.processes import Identity, Process, all_processes, command_line, end, identity

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Room for a cluster beside the one that other tests share; only the caches are common."""
    reason = requirements()["api"]
    if reason:
        pytest.skip(f"no API server: {reason}")
    places = Places(run=tmp_path_factory.mktemp("cluster") / "run")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("KUBECONFIG", "RLTRAINING_TEST_KUBECONFIG"):
            patch.delenv(name, raising=False)
        yield places
        down(places)


@pytest.fixture
def cluster(own: Places) -> Cluster:
    return up("api", places=own)


def _running(cluster: Cluster) -> dict[str, Identity | None]:
    return {name: part.process.running() for name, part in cluster.parts.items()}


def _of(places: Places) -> list[list[str]]:
    """Command lines that name the cluster's directory."""
    lines = map(command_line, all_processes())
    return [line for line in lines if any(f"{places.run}/" in word for word in line)]


def test_what_is_up_stays_as_it_is(cluster: Cluster) -> None:
    before = _running(cluster)
    assert None not in before.values()
    assert _running(up("api", places=cluster.places)) == before


def test_objects_outlive_api_server_and_etcd(cluster: Cluster) -> None:
    cluster.apply(CONFIG_MAP)
    cluster.stop("kube-apiserver", kill=True)
    with pytest.raises(ClusterError, match="refused"):
        cluster.kubectl("get", "configmap", "kept")
    cluster.restart("etcd", kill=True)
    cluster.start("kube-apiserver")
    assert cluster.get("configmap", "kept")["metadata"]["name"] == "kept"


def test_the_audit_log_tells_who_asked_and_what_the_answer_was(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="forbidden"):
        cluster.kubectl("--as", "nobody", "get", "secrets")
    told = [
        (event["verb"], event["responseStatus"]["code"])
        for event in cluster.audit()
        if event.get("impersonatedUser", {}).get("username") == "nobody"
        and event.get("objectRef", {}).get("resource") == "secrets"
    ]
    assert told == [("list", 403)]


def test_a_cluster_whose_processes_were_all_killed_begins_anew(cluster: Cluster) -> None:
    for process in _running(cluster).values():
        assert process is not None
        end(process, seconds=0)
    anew = up("api", places=cluster.places)
    assert None not in _running(anew).values()
    assert anew.kubectl("get", "configmap", "kept", "--ignore-not-found") == ""


def test_down_leaves_nothing(own: Places) -> None:
    up("api", places=own)
    assert _of(own)
    down(own)
    assert not _of(own)
    assert not own.run.exists()


def test_a_process_id_that_passed_on_to_a_stranger_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        found = identity(stranger.pid)
        assert found is not None
        part = Process("part", ["/bin/false"], tmp_path)
        part.pid_file.write_text(f"{stranger.pid} {found.started - 1}\n")
        assert part.running() is None
        assert not part.stop()
        assert identity(stranger.pid) == found
        stranger.communicate(b"\n")


FOREIGN = """\
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
:CNI-aaaa - [0:0]
-A PREROUTING -j DOCKER
-A POSTROUTING -s 10.88.0.2/32 -m comment --comment "name: \\"podman\\" id: \\"x\\"" -j CNI-aaaa
COMMIT
"""
OURS = """\
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-X - [0:0]
:CNI-bbbb - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -s 10.244.0.2/32 -m comment --comment "name: \\"rltraining-test\\" id: \\"y\\"" -j CNI-bbbb
-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-X
COMMIT
"""
REMOVAL = """\
*nat
-D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-D POSTROUTING -s 10.244.0.2/32 -m comment --comment "name: \\"rltraining-test\\" id: \\"y\\"" -j CNI-bbbb
-F CNI-bbbb
-F KUBE-SERVICES
-F KUBE-SVC-X
-X CNI-bbbb
-X KUBE-SERVICES
-X KUBE-SVC-X
COMMIT
"""


@pytest.mark.parametrize(("saved", "script"), [("", ""), (FOREIGN, ""), (OURS, REMOVAL)])
def test_only_our_rules_are_removed_from_the_firewall(saved: str, script: str) -> None:
    assert iptables.removal(saved) == script
