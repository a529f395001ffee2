"""An engine for NetworkPolicies in the test cluster: kube-network-policies of Kubernetes' network group, and the rule
that asks it about each new connection between pods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import partners
from jobs import Json

from tests.cluster.api import Cluster
from tests.local_kubernetes import programs
from tests.local_kubernetes.host import run
from tests.local_kubernetes.network import BRIDGE

NAME, NAMESPACE = "kube-network-policies", "kube-system"
QUEUE = 98
CHAIN = "KUBE-NETWORK-POLICIES"
"""Chains with names that begin with KUBE- are removed with the test cluster."""
RULES = [
    {"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
]


@contextmanager
def installed(cluster: Cluster) -> Iterator[None]:
    """Enforces the NetworkPolicies of the cluster until the end."""
    image = ":".join(partners.image(cluster, programs.POLICY_ENGINE, "netpol"))
    with partners.installed(cluster, NAMESPACE, _objects(image)):
        try:
            _queue_new_connections()
            yield
        finally:
            _forget_rules()


def _queue_new_connections() -> None:
    """Sends the first packet of each connection between pods to the engine. Without an engine that listens, packets
    pass. The engine adds such rules to nftables by itself, for which not every kernel has the module."""
    _forget_rules()
    run("iptables", "-N", CHAIN)
    queue = ("-j", "NFQUEUE", "--queue-num", str(QUEUE), "--queue-bypass")
    run("iptables", "-A", CHAIN, "-i", BRIDGE, "-o", BRIDGE, "-m", "conntrack", "--ctstate", "NEW", *queue)
    run("iptables", "-I", "FORWARD", "-j", CHAIN)


def _forget_rules() -> None:
    for rule in (("-D", "FORWARD", "-j", CHAIN), ("-F", CHAIN), ("-X", CHAIN)):
        run("iptables", *rule, check=False)


def _objects(image: str) -> list[Json]:
    """Returns the objects of its installation, like the project's install.yaml."""
    rights = "rbac.authorization.k8s.io"
    role = {"apiGroup": rights, "kind": "ClusterRole", "name": NAME}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    container = {
        "name": "engine",
        "image": image,
        "imagePullPolicy": "Never",
        "args": [f"--nfqueue-id={QUEUE}", "--metrics-bind-address=127.0.0.1:9080"],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": {"runAsUser": 0, "capabilities": {"add": ["NET_ADMIN"]}},
    }
    container["args"].append("--hostname-override=$(NODE)")
    labels = {"app": NAME}
    pod = {"hostNetwork": True, "serviceAccountName": NAME, "containers": [container]}
    pod["terminationGracePeriodSeconds"] = 6
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    named, local = {"name": NAME}, {"name": NAME, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": local},
        {"apiVersion": f"{rights}/v1", "kind": "ClusterRole", "metadata": named, "rules": RULES},
        {
            "apiVersion": f"{rights}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": named,
            "roleRef": role,
            "subjects": [subject],
        },
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": local, "spec": spec},
    ]
