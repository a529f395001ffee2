"""Changes the host's kernel for the node (a bridge, control groups and settings), and restores it."""

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
"""A file with the run directory of this machine's one node."""

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
"""Settings under /proc/sys that kubelet, kube-proxy and the bridge change and never restore."""

POD_PROCESSES = 8
"""Pods of the live tests have about twice as many processes, of which one half waits. With 16 the API server starved."""

REMOVED = ("/var/lib/kubelet", "/var/log/containers", "/var/lib/cni", "/run/containerd")
"""Directories that the programs hard-code; removed afterwards unless they existed before."""


def owner() -> Path | None:
    """Returns the run directory of this machine's current or last node."""
    return Path(OWNER.read_text().strip()) if OWNER.exists() else None


def claim(places: Places) -> None:
    """Records this run's node as the machine's node."""
    write(OWNER, f"{places.run}\n")


def run(*command: str, stdin: str | None = None, check: bool = True) -> str:
    """Returns the command's output. Raises ClusterError with the error output when the command fails."""
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
    """Records the original settings once, before the node changes them."""
    path = places.run / "before.json"
    if not path.exists():
        settings = {name: value for name in SETTINGS if (value := _setting(name)) is not None}
        absent = [name for name in REMOVED if not Path(name).exists()]
        write(path, json.dumps({"settings": settings, "absent": absent}, indent=1))


def before(places: Places) -> tuple[dict[str, str], list[str]]:
    """Returns the original settings and the directories that were absent."""
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
    """Creates the bridge before the first pod.

    API server and DNS can then listen on the bridge's address from the start.
    """
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
    """Removes the bridge and the host's end of every pod's veth pair."""
    for link in Path("/sys/class/net").iterdir():
        if (link / "master").exists() and (link / "master").resolve().name == network.BRIDGE:
            run("ip", "link", "delete", link.name, check=False)
    if Path("/sys/class/net", network.BRIDGE).exists():
        run("ip", "link", "delete", network.BRIDGE)


def control_groups() -> Iterator[Path]:
    """Yields the node's control group in each hierarchy: one in version 2, many in version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        yield CGROUPS / network.NAME
        return
    for path in CGROUPS.iterdir():
        if path.is_dir() and not path.is_symlink():
            yield path / network.NAME


def add_control_groups() -> None:
    """Adds the node's control groups. All pods together get the processor time of `POD_PROCESSES` processes, since the
    kernel treats a control group as one process otherwise, and pods would starve beside the processes of other tests."""
    for path in control_groups():
        path.mkdir(exist_ok=True)
        for name, one in (("cpu.shares", 1024), ("cpu.weight", 100)):  # versions 1 and 2
            if (path / name).exists():
                (path / name).write_text(str(one * POD_PROCESSES))
        for name in ("cpuset.cpus", "cpuset.mems"):  # version 1: empty at first, which admits no process
            if (path / name).exists() and not (path / name).read_text().strip():
                (path / name).write_text((path.parent / name).read_text())


def members() -> set[int]:
    """Returns the processes of the node's containers."""
    found: set[int] = set()
    for top in control_groups():
        for path in top.rglob("cgroup.procs"):
            try:
                found.update(map(int, path.read_text().split()))
            except OSError:  # removed meanwhile
                continue
    return found


def remove_control_groups() -> None:
    """Removes the node's control groups, which must be empty."""
    for top in control_groups():
        if top.exists():
            for path in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
                path.rmdir()
            top.rmdir()
