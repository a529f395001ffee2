"""etcd, API server, controller-manager and scheduler: everything but running pods."""

from __future__ import annotations

import json
from pathlib import Path

from tests.local_kubernetes import certificates, network, programs
from tests.local_kubernetes.parts import Part, answers
from tests.local_kubernetes.places import Places, write
from tests.local_kubernetes.processes import Process

AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
"""Logs every request once, with the user, the request and the response code, without bodies."""

ADMISSION = "NodeRestriction,OwnerReferencesPermissionEnforcement"
"""Admission plug-ins besides the default ones (Pod Security, ResourceQuota, LimitRanger, …)."""

FAST = ("--kube-api-qps=2000", "--kube-api-burst=4000")
"""Client-side limits of the parts, high enough not to affect measurements."""


def server(places: Places) -> str:
    return f"https://127.0.0.1:{places.port('kube-apiserver', 6443)}"


def prepare(places: Places) -> None:
    """Creates missing keys, kubeconfig files and the audit policy."""
    serving = certificates.Identity(
        "apiserver",
        "kube-apiserver",
        addresses=(
            *("127.0.0.1", network.NODE_ADDRESS, network.API_SERVICE, "localhost"),
            *("kubernetes", "kubernetes.default", "kubernetes.default.svc"),
            "kubernetes.default.svc.cluster.local",
        ),
    )
    front_proxy = certificates.Identity("front-proxy", "front-proxy")
    certificates.issue(places, (serving, front_proxy, *certificates.CLIENTS))
    for client in certificates.CLIENTS:
        certificates.kubeconfig(places, server(places), client.file)
    write(places.configuration / "audit.yaml", json.dumps(AUDIT, indent=1))


def etcd(places: Places) -> Part:
    client = f"http://127.0.0.1:{places.port('etcd', 2379)}"
    peer = f"http://127.0.0.1:{places.port('etcd-peer', 2380)}"
    arguments = [
        "--name=test",
        f"--data-dir={places.run / 'etcd'}",
        "--unsafe-no-fsync",  # safe if the process is killed, but not if the machine crashes
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=test={peer}",
    ]
    return Part(_process(places, "etcd", arguments), answers(f"{client}/health"))


def api_server(places: Places, *, node: bool) -> Part:
    """Returns the API server. With a node, it also serves the pods' network as the Service `kubernetes`."""
    folder = places.certificates
    arguments = [
        f"--etcd-servers=http://127.0.0.1:{places.port('etcd', 2379)}",
        f"--secure-port={server(places).rpartition(':')[2]}",
        f"--service-cluster-ip-range={network.SERVICES}",
        "--authorization-mode=Node,RBAC",
        f"--enable-admission-plugins={ADMISSION}",
        f"--client-ca-file={folder / 'ca.crt'}",
        # Forwards requests to the servers of APIServices, such as metrics-server.
        f"--requestheader-client-ca-file={folder / 'ca.crt'}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={folder / 'front-proxy.crt'}",
        f"--proxy-client-key-file={folder / 'front-proxy.key'}",
        f"--tls-cert-file={folder / 'apiserver.crt'}",
        f"--tls-private-key-file={folder / 'apiserver.key'}",
        f"--kubelet-certificate-authority={folder / 'ca.crt'}",
        f"--kubelet-client-certificate={folder / 'apiserver-to-kubelet.crt'}",
        f"--kubelet-client-key={folder / 'apiserver-to-kubelet.key'}",
        "--kubelet-preferred-address-types=InternalIP",  # DNS does not resolve the node's name
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
        f"--service-account-key-file={folder / 'service-accounts.key'}",
        f"--audit-policy-file={places.configuration / 'audit.yaml'}",
        f"--audit-log-path={places.audit_log}",
        "--audit-log-maxsize=500",
        f"--cert-dir={folder}",
    ]
    if node:
        arguments += ["--bind-address=0.0.0.0", f"--advertise-address={network.NODE_ADDRESS}"]
    else:
        arguments += [
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
        ]
    process = _process(places, "kube-apiserver", arguments)
    return Part(process, answers(f"{server(places)}/readyz", places))


def controller_manager(places: Places) -> Part:
    port = places.port("kube-controller-manager", 10257)
    arguments = [
        *_controller(places, "controller-manager", port),
        f"--service-account-private-key-file={places.certificates / 'service-accounts.key'}",
        f"--root-ca-file={places.certificates / 'ca.crt'}",
        "--use-service-account-credentials",
        f"--flex-volume-plugin-dir={places.run / 'flexvolume'}",
    ]
    account = f"{server(places)}/api/v1/namespaces/default/serviceaccounts/default"
    healthy, works = answers(f"https://127.0.0.1:{port}/healthz"), answers(account, places)
    return Part(_process(places, "kube-controller-manager", arguments), lambda: healthy() and works())


def scheduler(places: Places) -> Part:
    port = places.port("kube-scheduler", 10259)
    arguments = _controller(places, "scheduler", port)
    return Part(_process(places, "kube-scheduler", arguments), answers(f"https://127.0.0.1:{port}/healthz"))


def _controller(places: Places, identity: str, port: int) -> list[str]:
    kubeconfig = places.configuration / f"{identity}.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        *FAST,
    ]


def _process(places: Places, name: str, arguments: list[str]) -> Process:
    program: Path = programs.directory(places) / name
    return Process(name, [str(program), *arguments], places.logs)
