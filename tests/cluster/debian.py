"""Debian's packages that a node and its images need, installed where they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.progress import step

PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "iptables",
    "iproute2": "ip",
    "conntrack": "conntrack",
    "docker-registry": "docker-registry",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
}
"""A package, and a program of it that shows it is there."""


def missing() -> list[str]:
    """Packages that are not installed."""
    return [package for package, program in PACKAGES.items() if not _there(program)]


def install() -> None:
    """Nothing when all are there."""
    packages = missing()
    if packages:
        with step(f"install {' '.join(packages)}", slow="half a minute"):
            _apt("update")
            _apt("install", "-y", "--no-install-recommends", *packages)


def _there(program: str) -> bool:
    # /usr/sbin is where some of them are, and not on everybody's PATH.
    return (
        Path(program).exists()
        or shutil.which(program, path=f"{os.environ.get('PATH')}:/usr/sbin") is not None
    )


def _apt(*arguments: str) -> None:
    done = subprocess.run(
        ["apt-get", "-qq", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"`apt-get {' '.join(arguments)}` failed: {done.stderr.strip()[-1000:]}")
