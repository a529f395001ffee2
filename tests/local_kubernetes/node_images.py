"""Images in the containerd of the node, added without a registry.

Buildah and containerd both store a layer as the directory that overlayfs mounts. Hard links therefore hand over an image of
five gigabytes within seconds, and without a second copy.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.local_kubernetes.containers import ctr
from tests.local_kubernetes.host import run
from tests.local_kubernetes.places import Places

OCI = "application/vnd.oci.image"
OURS = "localhost/rltraining-"
"""Prefix of the images that buildah makes."""

Json = dict[str, Any]


def pause(program: Path) -> str:
    """Name of the image that holds only this program, which is the first container of each pod."""
    return f"localhost/pause:{hashlib.sha256(program.read_bytes()).hexdigest()[:12]}"


def add_program(places: Places, name: str, program: Path, path: str = "") -> None:
    """Adds an image that holds only a static program, in its root directory or at another path."""
    path = path or program.name
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as layer:
        entry = tarfile.TarInfo(path)
        entry.size, entry.mode = program.stat().st_size, 0o755
        layer.addfile(entry, io.BytesIO(program.read_bytes()))
    content = file.getvalue()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": [f"/{path}"], "User": "65532:65532"},
        "rootfs": {"type": "layers", "diff_ids": [_digest(content)]},
    }
    config_bytes = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": _descriptor(config_bytes, "config.v1+json"),
        "layers": [_descriptor(content, "layer.v1.tar")],
    }
    _import(places, name, json.dumps(manifest).encode(), config_bytes, content)


def add(places: Places, name: str) -> None:
    """Adds an image of buildah's storage, and removes the images that buildah has deleted."""
    storage = places.image_storage
    images: list[Json] = json.loads((storage / "overlay-images" / "images.json").read_text())
    layers = {
        layer["id"]: layer for layer in json.loads((storage / "overlay-layers" / "layers.json").read_text())
    }
    image = next(image for image in images if name in (image.get("names") or ()))

    # Link the layers that containerd does not have yet, from the lowest to the highest.
    chain: list[Json] = []
    layer = layers.get(image["layer"])
    while layer is not None:
        chain.insert(0, layer)
        layer = layers.get(layer.get("parent", ""))
    known = {line.split()[0] for line in ctr(places, "snapshots", "list").splitlines()}
    parent = ""
    for layer in chain:
        digest = layer["diff-digest"]
        snapshot = _digest(f"{parent} {digest}".encode()) if parent else digest
        if snapshot not in known:
            _link(places, storage / "overlay" / layer["id"] / "diff", snapshot, parent)
        parent = snapshot

    # Add the image's record. This also announces the image again to a containerd that has restarted since.
    folder = storage / "overlay-images" / image["id"]
    config = folder / ("=" + base64.b64encode(b"sha256:" + image["id"].encode()).decode())
    _import(places, name, (folder / "manifest").read_bytes(), config.read_bytes())

    kept = {kept for image in images for kept in image.get("names") or ()}
    for old in ctr(places, "images", "list", "--quiet").split():
        if old.startswith(OURS) and old not in kept:
            ctr(places, "images", "remove", old)


def _link(places: Places, layer: Path, snapshot: str, parent: str) -> None:
    """Makes a snapshot of the files of a layer."""
    half = f"{snapshot}-half"
    ctr(places, "snapshots", "remove", half, check=False)
    (mount,) = json.loads(ctr(places, "snapshots", "prepare", "--mounts", half, *filter(None, [parent])))
    options = dict(option.partition("=")[::2] for option in mount["Options"])
    files = options.get("upperdir") or mount["Source"]  # the lowest layer is mounted as it is
    run("cp", "--archive", "--link", f"{layer}/.", files)
    ctr(places, "snapshots", "commit", snapshot, half)


def _import(places: Places, name: str, manifest: bytes, config: bytes, *layers: bytes) -> None:
    """Imports an OCI archive. Layers that exist as snapshots need not be in the archive."""
    described = _descriptor(manifest, "manifest.v1+json") | {
        "annotations": {"io.containerd.image.name": name}
    }
    files: Mapping[str, bytes] = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [described]}).encode(),
        **{f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (manifest, config, *layers)},
    }
    archive = places.run / "image.tar"
    with tarfile.open(archive, "w") as file:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
    ctr(places, "images", "import", str(archive))
    archive.unlink()


def _descriptor(content: bytes, kind: str) -> Json:
    return {"mediaType": f"{OCI}.{kind}", "size": len(content), "digest": _digest(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
