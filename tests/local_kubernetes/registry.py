"""The local image registry: Debian's docker-registry on 127.0.0.1, its layers in the cache.

Images are named ``<address>/<name>:<tag>``. The node's containerd is told to speak plain HTTP to this address;
for pushing, ``buildah push --tls-verify=false``.
"""

from __future__ import annotations

import json
import shutil

from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.parts import Part, answers
from tests.local_kubernetes.places import Places, write
from tests.local_kubernetes.processes import Process

PORT = 5000
"""Preferred; another one where it is taken."""


def _own(places: Places) -> Places:
    """It runs with a cluster or without one, so its state lies beside its layers."""
    return Places(run=places.cache / "registry-service", cache=places.cache)


def address(places: Places) -> str:
    """`127.0.0.1:5000`: the beginning of each image's name."""
    return f"127.0.0.1:{_own(places).port('registry', PORT)}"


def part(places: Places) -> Part:
    program = shutil.which("docker-registry") or "/usr/bin/docker-registry"
    own = _own(places)
    arguments = [program, "serve", str(own.configuration / "registry.json")]
    return Part(Process("registry", arguments, own.logs), answers(f"http://{address(places)}/v2/"))


def start(places: Places | None = None) -> str:
    """Bring it up unless it is; returns its address."""
    places = places or Places()
    if shutil.which("docker-registry") is None:
        raise ClusterError("there is no docker-registry: apt-get install docker-registry")
    places.registry_data.mkdir(parents=True, exist_ok=True)
    here = address(places)
    write(_own(places).configuration / "registry.json", json.dumps(_configuration(places, here), indent=1))
    part(places).start()
    return here


def stop(places: Places | None = None) -> None:
    """Its layers stay."""
    places = places or Places()
    part(places).process.stop()
    shutil.rmtree(_own(places).run, ignore_errors=True)


def _configuration(places: Places, here: str) -> dict[str, object]:
    return {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(places.registry_data)},
            "delete": {"enabled": True},
            "maintenance": {
                "uploadpurging": {"enabled": True, "age": "24h", "interval": "24h", "dryrun": False}
            },
        },
        "http": {"addr": here},
    }
