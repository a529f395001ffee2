"""Paths of a run's directory, which `down` removes, and of the caches, which `down` keeps."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.local_kubernetes.errors import ClusterError


def _default_cache() -> Path:
    given = os.environ.get("RLTRAINING_TEST_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "rltraining-tests"


def _default_run() -> Path:
    given = os.environ.get("RLTRAINING_TEST_DIR")
    if given:
        return Path(given)
    return Path("/var/lib/rltraining-test") if os.geteuid() == 0 else _default_cache() / "run"


@dataclass(frozen=True)
class Places:
    """Two directories outside the source tree, and the files in them that several modules use."""

    run: Path = field(default_factory=_default_run)
    """State of one cluster: keys, data, configuration, logs, process ids."""

    cache: Path = field(default_factory=_default_cache)
    """Files that are expensive to build: programs and image layers. Shared by all clusters of a user."""

    @property
    def certificates(self) -> Path:
        return self.run / "certificates"

    @property
    def configuration(self) -> Path:
        return self.run / "configuration"

    @property
    def logs(self) -> Path:
        return self.run / "logs"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.configuration / "admin.kubeconfig"

    @property
    def audit_log(self) -> Path:
        """JSON lines at level Metadata: the user, the request, and whether the request was allowed."""
        return self.logs / "audit.log"

    @property
    def image_storage(self) -> Path:
        """Buildah's storage. Hard links between layers require the file system of containerd's data."""
        return self.cache / "images" / "storage"

    @property
    def containerd_data(self) -> Path:
        return self.cache / "containerd"

    def port(self, name: str, preferred: int) -> int:
        """Returns the port of a part. A run keeps its ports, so that clients find a restarted part again."""
        path = self.run / "ports.json"
        ports: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        if name not in ports:
            ports[name] = self._claim(preferred)
            write(path, json.dumps(ports, indent=1))
        return ports[name]

    def _claim(self, preferred: int) -> int:
        """Returns a free port that no other run has chosen, even if that run does not listen yet."""
        claims = self.cache / "ports.json"
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / "ports.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known: dict[str, str] = json.loads(claims.read_text()) if claims.exists() else {}
            known = {port: run for port, run in known.items() if Path(run).exists()}
            port = next(port for port in _free_ports(preferred) if str(port) not in known)
            self.run.mkdir(parents=True, exist_ok=True)
            write(claims, json.dumps(known | {str(port): str(self.run)}, indent=1))
        return port


def _free_ports(preferred: int) -> Iterator[int]:
    for port in range(preferred, preferred + 2000):
        if is_free(port):
            yield port
    raise ClusterError(f"no TCP port from {preferred} to {preferred + 2000} is free on this machine")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    """Writes a file atomically, so that no partial file ever has the final name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.write_text(text)
    half.chmod(mode)
    half.replace(path)
    return path
