"""Checks which modes this machine can run. Tests print the reason when they skip."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.local_kubernetes import programs
from tests.local_kubernetes.debian import missing
from tests.local_kubernetes.places import Places


def requirements(places: Places | None = None) -> dict[str, str | None]:
    """Returns for each mode the reason why it cannot run here, in a sentence, or None if it can."""
    places = places or Places()
    api = _why_not_api(places)
    return {"api": api, "node": api or _why_not_node()}


def _why_not_api(places: Places) -> str | None:
    if sys.platform != "linux":
        return f"Kubernetes' programs run on Linux, and this is {sys.platform}"
    if shutil.which("openssl") is None:
        return "there is no openssl program to make certificates with: install openssl"
    if not programs.built(places) and programs.go() is None:
        return "there is no Go toolchain to compile Kubernetes with: put `go` (1.24 or newer) on PATH"
    return None


def _why_not_node() -> str | None:
    if os.geteuid() != 0:
        return "pods need root: containers, their network and their mounts"
    lacking = missing()
    if lacking and shutil.which("apt-get") is None:
        return (
            f"pods need {', '.join(lacking)} (Debian's names), and there is no apt-get here to install them"
        )
    if not os.access("/sys/fs/cgroup", os.W_OK) or not Path("/proc/sys/net/ipv4").exists():
        return "pods need control groups, and /sys/fs/cgroup cannot be written here"
    return None
