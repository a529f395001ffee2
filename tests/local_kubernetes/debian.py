"""Installs missing Debian packages that a node and its images need."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.progress import step

PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "iptables",
    "iproute2": "ip",
    "conntrack": "conntrack",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
}
"""Packages, each with a program that shows whether the package is installed."""


def missing() -> list[str]:
    """Returns the packages that are not installed."""
    return [package for package, program in PACKAGES.items() if not _there(program)]


def install() -> None:
    """Installs the missing packages. Does nothing when all are installed."""
    packages = missing()
    if packages:
        with step(f"install {' '.join(packages)}", slow="half a minute"):
            _apt("update")
            _apt("install", "-y", "--no-install-recommends", *packages)


def unpack(package: str, folder: Path) -> None:
    """Extracts a package's files into a folder, atomically.

    Nothing is installed, no service starts, and no root is needed. Raises ClusterError.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ClusterError(f"there is no apt-get here to have Debian's package {package} of")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        step(f"unpack {package}", slow="seconds"),
        tempfile.TemporaryDirectory(dir=folder.parent) as download,
    ):
        try:
            _apt("download", package, folder=download)
        except ClusterError:
            if os.geteuid() != 0:
                raise
            _apt("update")  # apt's package lists are outdated or missing
            _apt("download", package, folder=download)
        (archive,) = Path(download).glob("*.deb")
        whole = Path(download) / "files"
        subprocess.run(["dpkg-deb", "-x", archive, whole], check=True)
        shutil.rmtree(folder, ignore_errors=True)
        whole.rename(folder)


def _there(program: str) -> bool:
    # Some programs are in /usr/sbin, which is not on every user's PATH.
    return (
        Path(program).exists()
        or shutil.which(program, path=f"{os.environ.get('PATH')}:/usr/sbin") is not None
    )


def _apt(*arguments: str, folder: str | None = None) -> None:
    done = subprocess.run(
        ["apt-get", "-qq", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"`apt-get {' '.join(arguments)}` failed: {done.stderr.strip()[-1000:]}")
