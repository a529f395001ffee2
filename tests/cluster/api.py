"""A cluster, as the tests hold it: ``cluster = up(mode="api")``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import bring_up, existing, programs, registry, take_down
from tests.cluster.errors import ClusterError
from tests.cluster.parts import Part
from tests.cluster.places import Places
from tests.cluster.processes import tail
from tests.cluster.requirements import requirements

__all__ = ["Cluster", "ClusterError", "Places", "down", "requirements", "up"]


@dataclass(frozen=True)
class Cluster:
    """An API server that answers, and in mode `node` a node that runs pods."""

    kubeconfig: Path
    mode: str
    """`api`, `node`, or `existing`: somebody else's cluster."""

    places: Places
    parts: Mapping[str, Part] = field(default_factory=dict)
    """The programs it consists of, by name; none of an existing cluster."""

    @property
    def environment(self) -> dict[str, str]:
        """This process's, so that kubectl and helm are the right ones and find the cluster."""
        path = f"{programs.directory(self.places)}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path}

    @property
    def registry(self) -> str:
        """`127.0.0.1:5000`: where images are pushed to, and the beginning of their names."""
        return registry.address(self.places)

    def run(
        self, *command: str, stdin: str | None = None, check: bool = True, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """kubectl, helm or any other program. Raises ClusterError if it fails, unless not to `check`."""
        try:
            done = subprocess.run(
                command,
                env=self.environment,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"`{' '.join(command)}` took longer than {seconds:.0f} s") from error
        if check and done.returncode:
            raise ClusterError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 60) -> str:
        """What kubectl prints. Raises ClusterError with what it says when it fails."""
        return self.run("kubectl", *arguments, stdin=stdin, seconds=seconds).stdout

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Objects as dictionaries."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(items))

    def get(self, *arguments: str) -> dict[str, Any]:
        """``get("pods", "-n", "x")``: an object or a List."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def await_definition(self, name: str, kind: str) -> None:
        """Until the API server serves it. kubectl fails where it is to wait for one of the conditions and there are none
        at all yet; they come with the names."""
        for sign in (f"jsonpath={{.status.acceptedNames.kind}}={kind}", "condition=Established"):
            self.kubectl("wait", f"--for={sign}", f"crd/{name}", "--timeout=60s", seconds=70)

    def stop(self, part: str, *, kill: bool = False) -> None:
        """End one of the programs, with SIGKILL at once if so asked; what it keeps on disk stays."""
        self._part(part).process.stop(kill=kill)

    def start(self, part: str) -> None:
        """Start it again, and wait until it is ready."""
        self._part(part).start()

    def restart(self, part: str, *, kill: bool = False) -> None:
        self.stop(part, kill=kill)
        self.start(part)

    def log(self, part: str, *, lines: int = 100) -> str:
        """The end of what it wrote."""
        return tail(self._part(part).process.log, lines)

    def audit(self) -> Iterator[dict[str, Any]]:
        """Every request answered so far: `verb`, `user.username`, `objectRef`, `responseStatus.code`, …"""
        if not self.parts:
            raise ClusterError(existing.NO_PARTS)
        with self.places.audit_log.open() as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)

    def _part(self, name: str) -> Part:
        if not self.parts:
            raise ClusterError(existing.NO_PARTS)
        if name not in self.parts:
            raise ClusterError(f"there is no {name} in mode {self.mode}, but: {', '.join(self.parts)}")
        return self.parts[name]


def up(mode: str = "api", *, fake_nodes: int = 0, places: Places | None = None) -> Cluster:
    """Bring up what is not up yet; an existing cluster is used as it is.

    A cluster that is up already in the larger mode stays so. Raises ClusterError when this machine cannot.
    """
    places = places or Places()
    kubeconfig = existing.kubeconfig(places)
    if kubeconfig is not None:
        return Cluster(kubeconfig, "existing", places)
    shape = bring_up.up(places, bring_up.Shape(mode, fake_nodes))
    return Cluster(places.kubeconfig, shape.mode, places, bring_up.parts(places, shape))


def down(places: Places | None = None, *, purge: bool = False) -> None:
    """Remove everything but the caches; these too when asked to purge."""
    take_down.down(places or Places(), purge=purge)
