"""Removes a cluster's traces in the kernel and on disk, also after an interrupted start or stop."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from tests.local_kubernetes import containers, host, iptables, network, programs
from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.places import Places
from tests.local_kubernetes.processes import Identity, all_processes, command_line, end, identity, recorded


def sweep(places: Places) -> None:
    """Removes everything of that run except the caches. Looks up the current state and assumes nothing."""
    for process in _background(places):
        end(process, seconds=0)
    if host.owner() == places.run:
        settings, absent = host.before(places)
        _end_containers(places)
        _unmount(places.run)
        host.remove_bridge()
        iptables.remove()
        host.remove_control_groups()
        host.restore(settings)
        _remove_built_in(places, absent)
        host.OWNER.unlink(missing_ok=True)
    if places.run.exists():
        shutil.rmtree(places.run)


def _background(places: Places) -> Iterator[Identity]:
    """Yields the processes in pid files, and the children of a starter that was killed before it wrote the file."""
    for pid_file in places.logs.glob("*.pid"):
        process = recorded(pid_file)
        if process is not None:
            yield process
    names = (*programs.PARTS, "containerd", programs.file_name(programs.KWOK))
    for pid in all_processes():
        command = command_line(pid)
        ours = (
            bool(command)
            and Path(command[0]).name in names
            and any(f"{places.run}/" in word for word in command)
        )
        process = identity(pid) if ours else None
        if process is not None:
            yield process


def _end_containers(places: Places) -> None:
    """Ends containerd's shims, which would report the deaths, then the node's processes.

    The node's processes are the members of its control groups.
    """
    patience = time.monotonic() + 20
    while True:
        left = containers.shims(places, {pid: command_line(pid) for pid in all_processes()})
        left += sorted(host.members())
        alive = [process for pid in left if (process := identity(pid)) is not None]
        if not alive:
            return
        if time.monotonic() > patience:
            raise ClusterError(f"processes of pods do not end even when killed: {[one.pid for one in alive]}")
        for process in alive:
            end(process, seconds=0)


def _unmount(top: Path) -> None:
    """Unmounts the deepest mounts first. A busy mount disappears once it is unused."""
    for path in sorted(_mounts(top), key=len, reverse=True):
        host.run("umount", "--lazy", path, check=False)
    left = _mounts(top)
    if left:  # removing the tree now would delete the mounts' content
        raise ClusterError(f"these cannot be unmounted: {', '.join(left)}")


def _mounts(top: Path) -> list[str]:
    with Path("/proc/self/mountinfo").open() as file:
        paths = [line.split()[4].encode().decode("unicode_escape") for line in file]
    return [path for path in paths if path.startswith(f"{top}/")]


def _remove_built_in(places: Places, absent: list[str]) -> None:
    """Removes our entries from directories that the programs hard-code, and the `absent` ones."""
    for link in Path("/var/log/containers").glob("*.log"):
        if link.is_symlink() and str(link.readlink()).startswith(f"{places.run}/"):
            link.unlink()
    for result in Path("/var/lib/cni/results").glob(f"{network.NAME}-*"):
        result.unlink()
    for cached in (places.containerd_data / name for name in containers.STALE):
        shutil.rmtree(cached, ignore_errors=True)
    for name in absent:
        shutil.rmtree(name, ignore_errors=True)


def knows_of(places: Places) -> bool:
    """Returns whether there is anything to sweep."""
    return places.run.exists() or host.owner() == places.run
