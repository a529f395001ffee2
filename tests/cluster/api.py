"""The cluster that a test uses: an existing one, or the Kubernetes of :mod:`tests.local_kubernetes`.

``cluster = up("api")``
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient
from kubernetes.config import new_client_from_config

from tests.local_kubernetes import bring_up, programs, take_down
from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.parts import Part
from tests.local_kubernetes.places import Places
from tests.local_kubernetes.requirements import requirements

__all__ = ["Cluster", "ClusterError", "Places", "down", "existing", "up", "up_local"]


@dataclass(frozen=True)
class Cluster:
    """An API server, and in mode `node` a node that runs pods."""

    kubeconfig: Path
    places: Places
    parts: Mapping[str, Part] = field(default_factory=dict)
    """The cluster's programs by name. Empty for an existing cluster."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which kubectl and helm reach this cluster, in the versions that were built for it."""
        path = f"{programs.directory(self.places)}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path}

    def run(
        self, *command: str, stdin: str | None = None, check: bool = True, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl, helm or any other program. Raises ClusterError if it fails, unless `check` is false."""
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
        """Returns the output of kubectl. Raises ClusterError with its error message."""
        return self.run("kubectl", *arguments, stdin=stdin, seconds=seconds).stdout

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Applies objects, which are dictionaries."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(items))

    def get(self, *arguments: str) -> dict[str, Any]:
        """Returns an object or a List: ``get("pods", "-n", "x")``."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def read(self, path: str, **query: str) -> dict[str, Any]:
        """Returns the API server's answer to a GET request. kubectl needs a tenth of a second of processor time for one.
        Raises ClusterError."""
        return self._request("GET", path, query)

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the API server's answer to a POST request. Raises ClusterError."""
        return self._request("POST", path, {}, body)

    def _request(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        parameters, headers = list(query.items()), {"Content-Type": "application/json"}
        request = self._client.param_serialize(
            method,
            path,
            query_params=parameters,
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = self._client.call_api(*request, _request_timeout=30)
        found: dict[str, Any] = json.loads(answer.read())
        if answer.status not in (200, 201):
            raise ClusterError(f"{method} {path} is answered with {answer.status}: {found.get('message')}")
        return found

    @cached_property
    def _client(self) -> ApiClient:
        return new_client_from_config(str(self.kubeconfig))

    def await_definition(self, name: str, kind: str) -> None:
        """Blocks until the API server serves a definition. `kubectl wait` fails while a definition has no conditions at all.
        The API server writes them together with the accepted names."""
        for sign in (f"jsonpath={{.status.acceptedNames.kind}}={kind}", "condition=Established"):
            self.kubectl("wait", f"--for={sign}", f"crd/{name}", "--timeout=60s", seconds=70)

    def need_local(self, reason: str) -> None:
        """Skips the test on an existing cluster."""
        if not self.parts:
            pytest.skip(f"not on an existing cluster: {reason}")

    def stop(self, part: str, *, kill: bool = False) -> None:
        """Ends one of the programs, with SIGKILL if `kill`. Its data stays on disk."""
        self.parts[part].process.stop(kill=kill)

    def start(self, part: str) -> None:
        """Starts a program again and waits until it is ready."""
        self.parts[part].start()

    def restart(self, part: str, *, kill: bool = False) -> None:
        self.stop(part, kill=kill)
        self.start(part)

    def audit(self) -> Iterator[dict[str, Any]]:
        """Every request answered so far: `verb`, `user.username`, `objectRef`, `responseStatus.code`, …"""
        with self.places.audit_log.open() as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)


def existing() -> Path | None:
    """Returns RLTRAINING_TEST_KUBECONFIG, or else KUBECONFIG. None when neither is set, or the file is that of the local
    Kubernetes."""
    for name in ("RLTRAINING_TEST_KUBECONFIG", "KUBECONFIG"):
        if given := os.environ.get(name):
            path = Path(given)
            if path == Places().kubeconfig:
                return None
            if not path.is_file():
                raise ClusterError(f"{name} is {given}, and there is no such file: correct or unset {name}")
            return path
    return None


def up(mode: str = "api", places: Places | None = None) -> Cluster:
    """Returns the existing cluster, or else the local Kubernetes, which `places` may give a directory for itself."""
    kubeconfig = existing()
    return Cluster(kubeconfig, Places()) if kubeconfig else up_local(mode, places)


def up_local(mode: str, places: Places | None = None) -> Cluster:
    """Brings up the local Kubernetes as far as it is not up yet. Skips the test where this machine cannot run one.

    A cluster that already runs in the larger mode keeps that mode.
    """
    places = places or Places()
    if reason := requirements(places)[mode]:
        pytest.skip(f"no Kubernetes here (and no other one in KUBECONFIG): {reason}")
    shape = bring_up.up(places, bring_up.Shape(mode))
    return Cluster(places.kubeconfig, places, bring_up.parts(places, shape))


def down(cluster: Cluster) -> None:
    """Removes a local Kubernetes, but not the caches. An existing cluster stays."""
    if cluster.parts:
        take_down.down(cluster.places)
