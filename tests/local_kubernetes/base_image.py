"""A stand-in for `python:3.11-slim-bookworm`, built from Debian packages.

It replaces the original where no image registry is reachable. The image has the name that the
Dockerfiles use, so the Dockerfiles build unchanged. Like the original, it contains no bytecode and
no documentation.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.local_kubernetes.buildah import Buildah
from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.processes import tail
from tests.local_kubernetes.progress import step

NAME = "docker.io/library/python:3.11-slim-bookworm"
RELEASE = "bookworm"
PACKAGES = ("ca-certificates", "python3-venv", "python3-pip")
FAST = "force-unsafe-io\n"
"""Disables dpkg's fsync calls. An image that a power failure damages is rebuilt."""
LEFT_OUT = (
    *("var/cache/apt", "var/lib/apt/lists", "var/log", "debootstrap"),
    *("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man"),
)
"""Paths that differ between builds or that no container needs."""
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
"""The machine's trusted authorities.

The machine's proxy may sign for package indexes, so builds must trust them too.
"""
UV = "system-certs = true\n"


def recipe() -> str:
    """Returns a fingerprint of this module's inputs."""
    return hashlib.sha256(f"1 {RELEASE} {PACKAGES} {LEFT_OUT} {UV}".encode()).hexdigest()[:16]


def ensure(buildah: Buildah) -> None:
    """Builds the image unless it exists for this recipe."""
    made = f"localhost/base:{recipe()}"
    if buildah.has(made):
        return
    with step("image of Python, from Debian's packages", slow="a minute or two, once"):
        container = buildah.run("from", "scratch")
        root = Path(buildah.run("mount", container))
        _debootstrap(root, buildah.home / "debootstrap.log")
        _trim(root)
        if AUTHORITIES.exists():
            shutil.copyfile(AUTHORITIES, root / AUTHORITIES.relative_to("/"))
        (root / "etc/uv").mkdir()
        (root / "etc/uv/uv.toml").write_text(UV)
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        buildah.run("unmount", container)
        buildah.run("config", "--cmd", "python3", container)
        buildah.run("commit", "--timestamp", "0", "--rm", container, NAME)
        buildah.run("tag", NAME, made)


def _debootstrap(root: Path, log: Path) -> None:
    settings = root / "etc/dpkg/dpkg.cfg.d/fast"
    settings.parent.mkdir(parents=True)
    settings.write_text(FAST)
    program = shutil.which("debootstrap") or "/usr/sbin/debootstrap"
    with log.open("w") as file:
        done = subprocess.run(
            [program, "--variant=minbase", f"--include={','.join(PACKAGES)}", RELEASE, str(root)],
            stdout=file,
            stderr=file,
            check=False,
        )
    if done.returncode:
        raise ClusterError(f"`debootstrap {RELEASE}` failed; the end of {log}:\n{tail(log, 15)}")


def _trim(root: Path) -> None:
    for name in LEFT_OUT:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir()
    for bytecode in sorted((root / "usr/lib").glob("python3*/**/__pycache__")):
        shutil.rmtree(bytecode)
