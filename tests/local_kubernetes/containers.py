"""Configures containerd as the node's container runtime, and removes its containers.

This containerd is separate from any other on the machine and has its own socket. Image layers are
stored in the cache and outlive the cluster.
"""

from __future__ import annotations

import json
import shutil

from tests.local_kubernetes import network
from tests.local_kubernetes.host import run
from tests.local_kubernetes.parts import Part
from tests.local_kubernetes.places import Places, write
from tests.local_kubernetes.processes import Process

NAMESPACE = "k8s.io"

STALE = ("io.containerd.grpc.v1.cri", "io.containerd.runtime.v2.task", "tmpmounts")
"""Directories in containerd's data with state of containers, not of images."""


def socket(places: Places) -> str:
    return str(places.run / "containerd" / "containerd.sock")


def part(places: Places) -> Part:
    program = shutil.which("containerd") or "/usr/bin/containerd"
    arguments = [program, "--config", str(places.configuration / "containerd.toml"), "--log-level", "warn"]
    process = Process("containerd", arguments, places.logs)
    return Part(process, lambda: "Version" in ctr(places, "version", check=False))


def configure(places: Places, pause: str) -> None:
    """Writes the configuration of containerd and of the pods' network. `pause` is the image of a pod's first container."""
    write(places.configuration / "containerd.toml", _toml(places, pause))
    plugins = [
        {
            "type": "bridge",
            "bridge": network.BRIDGE,
            "isGateway": True,
            "ipMasq": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": network.PODS, "gateway": network.NODE_ADDRESS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": str(places.run / "addresses"),
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    document = {"cniVersion": "0.4.0", "name": network.NAME, "plugins": plugins}
    write(places.configuration / "cni" / "10-bridge.conflist", json.dumps(document, indent=1))


def _toml(places: Places, pause: str) -> str:
    state = places.run / "containerd"
    return f"""\
version = 2
root = "{places.containerd_data}"
state = "{state}"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{socket(places)}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{state / "opt"}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE a score below the present one is refused, and no container would start.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{places.configuration / "cni"}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{shutil.which("runc") or "/usr/sbin/runc"}"
      Root = "{state / "runc"}"
"""


def remove_all(places: Places) -> int:
    """Ends and removes every container, but no images. Returns the number of containers."""
    ids = ctr(places, "containers", "list", "-q", check=False).split()
    for container in ids:
        ctr(places, "tasks", "kill", "--all", "--signal", "KILL", container, check=False)
        ctr(places, "tasks", "delete", "--force", container, check=False)
        ctr(places, "containers", "delete", container, check=False)
    return len(ids)


def shims(places: Places, pids: dict[int, list[str]]) -> list[int]:
    """Returns containerd's shims, of which each pod has one, and which outlive containerd."""
    ours = socket(places)
    return [
        pid
        for pid, command in pids.items()
        if command and "containerd-shim" in command[0] and ours in command
    ]


def ctr(places: Places, *arguments: str, check: bool = True) -> str:
    """Returns the output of containerd's command line."""
    return run("ctr", "--address", socket(places), "--namespace", NAMESPACE, *arguments, check=check)
