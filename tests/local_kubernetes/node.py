"""The one node: kubelet, kube-proxy, CoreDNS and local storage, all on the bridge's address."""

from __future__ import annotations

import json
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.local_kubernetes import (
    certificates,
    containers,
    control_plane,
    debian,
    host,
    network,
    node_images,
    programs,
)
from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.parts import Part, answers, tls
from tests.local_kubernetes.places import Places, write
from tests.local_kubernetes.processes import Process
from tests.local_kubernetes.progress import step

KUBELET = certificates.Identity(
    "kubelet", f"system:node:{network.NODE}", "system:nodes", (network.NODE_ADDRESS, network.NODE)
)
STORAGE_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "rltraining.dev/local",
    "volumeBindingMode": "WaitForFirstConsumer",
    "reclaimPolicy": "Delete",
}


def prepare(places: Places) -> None:
    """Prepares packages, bridge, control groups, images and configuration for the node's programs."""
    debian.install()
    host.remember(places)
    host.claim(places)
    host.add_bridge()
    host.add_control_groups()
    certificates.issue(places, (KUBELET,))
    certificates.kubeconfig(places, control_plane.server(places), KUBELET.file)
    containers.configure(places, node_images.pause(programs.directory(places) / "pause"))
    write(places.configuration / "kubelet.json", json.dumps(_kubelet_configuration(places), indent=1))
    write(places.configuration / "proxy.json", json.dumps(_proxy_configuration(places), indent=1))
    write(places.configuration / "Corefile", _corefile(places))


def runtime(places: Places) -> Part:
    return containers.part(places)


def kubelet(places: Places) -> Part:
    arguments = [
        f"--config={places.configuration / 'kubelet.json'}",
        f"--kubeconfig={places.configuration / 'kubelet.kubeconfig'}",
        f"--root-dir={places.run / 'kubelet'}",
        f"--node-ip={network.NODE_ADDRESS}",
        f"--hostname-override={network.NODE}",
    ]
    healthy = answers(f"http://127.0.0.1:{places.port('kubelet-health', 10248)}/healthz")
    return Part(_process(places, "kubelet", arguments), lambda: healthy() and _node_is_ready(places))


def services(places: Places) -> list[Part]:
    """Returns the parts that start after the kubelet: Service addresses, DNS and volumes."""
    proxy = _process(places, "kube-proxy", [f"--config={places.configuration / 'proxy.json'}"])
    dns = _process(places, "coredns", ["-conf", str(places.configuration / "Corefile")])
    volumes = places.run / "volumes"
    storage = [
        f"--kubeconfig={places.configuration / 'local-storage.kubeconfig'}",
        f"--directory={volumes}",
        f"--node={network.NODE}",
    ]
    return [
        Part(proxy, answers(f"http://127.0.0.1:{places.port('proxy-health', 10256)}/healthz")),
        Part(dns, answers(f"http://127.0.0.1:{places.port('dns-ready', 8181)}/ready")),
        Part(_process(places, "local-storage", storage), lambda: True),
    ]


def _kubelet_configuration(places: Places) -> dict[str, Any]:
    folder = places.certificates
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.NODE_ADDRESS,
        "port": places.port("kubelet", 10250),
        "healthzPort": places.port("kubelet-health", 10248),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(folder / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(folder / "kubelet.crt"),
        "tlsPrivateKeyFile": str(folder / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{containers.socket(places)}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{network.NAME}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "syncFrequency": "3s",  # by default pods see a changed ConfigMap only after a minute or two
        "maxOpenFiles": 20000,  # a higher limit or a lower score needs capabilities that a container may lack
        "oomScoreAdj": 0,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        "clusterDNS": [network.NODE_ADDRESS],
        "clusterDomain": network.DOMAIN,
        "resolvConf": str(_resolv_conf()),
        "podLogsDir": str(places.run / "pod-logs"),
        "volumePluginDir": str(places.run / "flexvolume"),
    }


def _proxy_configuration(places: Places) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(places.configuration / "proxy.kubeconfig")},
        "hostnameOverride": network.NODE,
        "mode": "iptables",
        "clusterCIDR": network.PODS,
        "iptables": {
            # Where the kernel hides bridged packets from iptables, replies must return through the host.
            "masqueradeAll": not host.services_are_bridged(),
            "localhostNodePorts": False,
        },
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "oomScoreAdj": 0,
        "healthzBindAddress": f"127.0.0.1:{places.port('proxy-health', 10256)}",
        "metricsBindAddress": f"127.0.0.1:{places.port('proxy-metrics', 10249)}",
    }


def _corefile(places: Places) -> str:
    upstream = _resolv_conf()
    names_servers = upstream.exists() and "nameserver" in upstream.read_text()
    return f"""\
.:53 {{
  bind {network.NODE_ADDRESS}
  errors
  ready 127.0.0.1:{places.port("dns-ready", 8181)}
  kubernetes {network.DOMAIN} in-addr.arpa ip6.arpa {{
    kubeconfig {places.configuration / "coredns.kubeconfig"} test
    ttl 1
    fallthrough in-addr.arpa ip6.arpa
  }}
  {f"forward . {upstream}" if names_servers else ""}
}}
"""


def _resolv_conf() -> Path:
    """Returns the resolv.conf with real name servers, which systemd-resolved keeps in another place."""
    systemd = Path("/run/systemd/resolve/resolv.conf")
    return systemd if systemd.exists() else Path("/etc/resolv.conf")


def _node_is_ready(places: Places) -> bool:
    url = f"{control_plane.server(places)}/api/v1/nodes/{network.NODE}"
    with urllib.request.urlopen(url, timeout=2, context=tls(places)) as answer:
        conditions = json.load(answer)["status"]["conditions"]
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def check_alone(places: Places) -> None:
    """Raises ClusterError if another node runs here, because both would share names in the kernel."""
    other = host.owner()
    if other is not None and other != places.run and kubelet(Places(other, places.cache)).process.running():
        raise ClusterError(
            f"this machine's one node belongs to the cluster in {other}: "
            f"end that one first with `python -m tests.local_kubernetes down --dir {other}`"
        )


def apply_storage_class(places: Places) -> None:
    path = f"{control_plane.server(places)}/apis/storage.k8s.io/v1/storageclasses/local"
    with suppress(OSError):  # 404: not created yet
        if answers(path, places)():
            return
    kubectl = str(programs.directory(places) / "kubectl")
    with step("storage class"):
        host.run(
            *(kubectl, "--kubeconfig", str(places.kubeconfig), "apply", "-f", "-"),
            stdin=json.dumps(STORAGE_CLASS),
        )


def _process(places: Places, name: str, arguments: list[str]) -> Process:
    return Process(name, [str(programs.directory(places) / name), *arguments], places.logs)
