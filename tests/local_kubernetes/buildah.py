"""Runs buildah with separate storage in the cache, and with settings for machines that are containers.

Each build first removes the remains of a killed build: working containers and mounts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.places import Places, write
from tests.local_kubernetes.processes import tail

CONTAINERS = """\
[containers]
default_ulimits = []
cgroupns = "host"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
"""Higher limits, cgroup namespaces and systemd are not available everywhere, and are not needed."""

REGISTRIES = """\
short-name-mode = "disabled"
unqualified-search-registries = ["docker.io"]
"""
"""Resolve short names as Docker does: `python:3.11` is `docker.io/library/python:3.11`."""


@dataclass(frozen=True)
class Buildah:
    places: Places
    lock: int
    """File descriptor of the lock. A buildah that outlives this process still holds the lock."""

    @property
    def home(self) -> Path:
        return self.places.cache / "images"

    @property
    def log(self) -> Path:
        return self.home / "buildah.log"

    def prepare(self) -> None:
        """Writes the settings, and removes the remains of an earlier, killed build."""
        settings = self.home / "settings"
        write(settings / "containers.conf", CONTAINERS)
        write(settings / "registries.conf", REGISTRIES)
        write(
            settings / "storage.conf",
            f'[storage]\ndriver = "overlay"\ngraphroot = "{self.places.image_storage}"\nrunroot = "{self.home / "run"}"\n',
        )
        self.log.unlink(missing_ok=True)
        for mount in reversed(_mounts_below(self.places.image_storage)):
            subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
        shutil.rmtree(self.home / "run", ignore_errors=True)
        for path in (self.home / "tmp").glob("*"):
            if path.name != "buildah-cache":
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        (self.home / "tmp").mkdir(parents=True, exist_ok=True)
        self.run("rm", "--all")

    def run(self, *arguments: str) -> str:
        """Returns buildah's standard output; its standard error goes to the log.

        Raises ClusterError with the end of the log when buildah fails.
        """
        with self.log.open("a") as log:
            done = subprocess.run(
                ["buildah", *arguments],
                env=self._environment(),
                pass_fds=(self.lock,),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                check=False,
            )
            log.write(done.stdout)
        if done.returncode:
            raise ClusterError(
                f"`buildah {arguments[0]}` failed; the end of {self.log}:\n{tail(self.log, 25)}"
            )
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        return bool(self.run("images", "--quiet", "--filter", f"reference={image}"))

    def _environment(self) -> dict[str, str]:
        settings = self.home / "settings"
        return {
            **os.environ,
            "PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin",
            "CONTAINERS_CONF": str(settings / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(settings / "registries.conf"),
            "CONTAINERS_STORAGE_CONF": str(settings / "storage.conf"),
            "TMPDIR": str(self.home / "tmp"),
        }


def _mounts_below(directory: Path) -> list[str]:
    """Returns the mount points, outer ones first."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return sorted(point for point in points if point.startswith(f"{directory}/"))
