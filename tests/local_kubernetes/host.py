"""What the node needs of the host's kernel: a bridge, control groups, settings; and giving all of it back."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.local_kubernetes import network
from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.places import Places, write

CGROUPS = Path("/sys/fs/cgroup")

OWNER = Path("/run/rltraining-test-node")
"""Names the run directory of this machine's one node."""

SETTINGS = (
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "net/bridge/bridge-nf-call-iptables",
    "net/bridge/bridge-nf-call-ip6tables",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""Under /proc/sys: what kubelet, kube-proxy and the bridge set, and never set back."""

REMOVED = ("/var/lib/kubelet", "/var/log/containers", "/var/lib/cni", "/run/containerd")
"""Directories whose names are built into the programs; removed afterwards where they had not been before."""


def owner() -> Path | None:
    """The run directory of the node that is or was last on this machine."""
    return Path(OWNER.read_text().strip()) if OWNER.exists() else None


def claim(places: Places) -> None:
    """This run's node is the machine's one."""
    write(OWNER, f"{places.run}\n")


def run(*command: str, stdin: str | None = None, check: bool = True) -> str:
    """What a command prints. Raises ClusterError with what it says when it fails."""
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, env=_environment()
        )
    except FileNotFoundError as error:
        if check:
            raise ClusterError(f"there is no program {command[0]}") from error
        return ""
    if check and done.returncode:
        raise ClusterError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"}


def remember(places: Places) -> None:
    """Write down, once, how things are before the node changes them."""
    path = places.run / "before.json"
    if not path.exists():
        settings = {name: value for name in SETTINGS if (value := _setting(name)) is not None}
        absent = [name for name in REMOVED if not Path(name).exists()]
        write(path, json.dumps({"settings": settings, "absent": absent}, indent=1))


def before(places: Places) -> tuple[dict[str, str], list[str]]:
    """Settings and absent directories, as they were."""
    path = places.run / "before.json"
    if not path.exists():
        return {}, []
    found = json.loads(path.read_text())
    return found["settings"], found["absent"]


def _setting(name: str) -> str | None:
    path = Path("/proc/sys") / name
    return path.read_text().strip() if path.exists() else None


def restore(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        if _setting(name) not in (None, value):
            (Path("/proc/sys") / name).write_text(value)


def add_bridge() -> None:
    """It exists before the first pod, so that API server and DNS can listen on its address at once."""
    if not Path("/sys/class/net", network.BRIDGE).exists():
        run("ip", "link", "add", network.BRIDGE, "type", "bridge")
    if network.NODE_ADDRESS not in run("ip", "-4", "-br", "address", "show", "dev", network.BRIDGE):
        run("ip", "address", "add", f"{network.NODE_ADDRESS}/24", "dev", network.BRIDGE)
    run("ip", "link", "set", network.BRIDGE, "up")
    write_setting("net/ipv4/ip_forward", "1")


def write_setting(name: str, value: str) -> None:
    if _setting(name) not in (None, value):
        (Path("/proc/sys") / name).write_text(value)


def services_are_bridged() -> bool:
    """Whether packets between pods pass iptables, as a Service between two pods of one bridge needs."""
    return _setting("net/bridge/bridge-nf-call-iptables") == "1"


def remove_bridge() -> None:
    """With every pod's end of a cable to it."""
    for link in Path("/sys/class/net").iterdir():
        if (link / "master").exists() and (link / "master").resolve().name == network.BRIDGE:
            run("ip", "link", "delete", link.name, check=False)
    if Path("/sys/class/net", network.BRIDGE).exists():
        run("ip", "link", "delete", network.BRIDGE)


def control_groups() -> Iterator[Path]:
    """The directory of the node's containers in each hierarchy: one of version 2, or many of version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        yield CGROUPS / network.NAME
        return
    for path in CGROUPS.iterdir():
        if path.is_dir() and not path.is_symlink():
            yield path / network.NAME


def add_control_groups() -> None:
    for path in control_groups():
        path.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # version 1: empty at first, and then nobody can enter
            if (path / name).exists() and not (path / name).read_text().strip():
                (path / name).write_text((path.parent / name).read_text())


def members() -> set[int]:
    """Processes of the node's containers."""
    found: set[int] = set()
    for top in control_groups():
        for path in top.rglob("cgroup.procs"):
            try:
                found.update(map(int, path.read_text().split()))
            except OSError:  # removed meanwhile
                continue
    return found


def remove_control_groups() -> None:
    """They must have no members any more."""
    for top in control_groups():
        if top.exists():
            for path in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
                path.rmdir()
            top.rmdir()
