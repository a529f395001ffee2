"""The images of operator and trainer, built from their Dockerfiles.

A tag is a fingerprint of an image's inputs, so that an existing image is not rebuilt. A change of
our own code rebuilds only the top layer, since torch is in a lower layer.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.local_kubernetes import base_image, node_images
from tests.local_kubernetes.build_context import snapshot
from tests.local_kubernetes.buildah import Buildah
from tests.local_kubernetes.locks import alone
from tests.local_kubernetes.places import Places, write
from tests.local_kubernetes.progress import step

DOCKERFILES = {"operator": "operator/Dockerfile", "trainer": "trainer_image/Dockerfile"}
MANY = 200
"""Limit on images. Most are intermediate build steps, and each build step scans all."""
KEPT = 8
"""Recently used images that are kept, so that switching back to another branch is fast."""


def build_images(places: Places | None = None) -> dict[str, str]:
    """Builds the images of the source tree that buildah does not have yet, and returns their names."""
    places = places or Places()
    with alone(places, "images") as lock:
        buildah = Buildah(places, lock)
        buildah.prepare()
        base_image.ensure(buildah)
        names = {room: _build(buildah, room) for room in DOCKERFILES}
        _forget_old(buildah, list(names.values()))
    return names


def add_to_node(places: Places | None = None) -> dict[str, str]:
    """Builds the images, and adds them to the node, which is up. Returns their names."""
    places = places or Places()
    names = build_images(places)
    for name in names.values():
        with step(f"add {name}"):
            node_images.add(places, name)
    return names


def _build(buildah: Buildah, room: str) -> str:
    context = buildah.home / "context"
    tag = f"{snapshot(DOCKERFILES[room], context)}-{base_image.recipe()[:6]}"
    name = f"{node_images.OURS}{room}:{tag}"
    if buildah.has(name):
        return name
    slow = "2 to 4 minutes for a new torch, else seconds" if room == "trainer" else ""
    with step(f"image {name}", slow=slow):
        try:
            buildah.run(
                # Equal content must make equal layers at any time, so that known layers are not added again.
                *("bud", "--layers", "--timestamp", "0", "--format", "oci", "--network", "host"),
                *("--pull-never", "--build-arg", f"REVISION={tag}", *_downloads()),
                *("--file", str(context / DOCKERFILES[room]), "--tag", name, str(context)),
            )
        finally:
            buildah.run("rm", "--all")
    return name


def _downloads() -> list[str]:
    """Returns build options that share this machine's uv cache with the builds."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        return []
    found = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=False).stdout.strip()
    return ["--volume", f"{found}:/var/cache/uv"] if Path(found).is_dir() else []


def _forget_old(buildah: Buildah, used: list[str]) -> None:
    """Removes images that were not used recently, with their intermediate steps, once there are more than MANY."""
    memory = buildah.home / "used"
    before = memory.read_text().split() if memory.exists() else []
    recent = [*(name for name in before if name not in used), *used][-KEPT:]
    write(memory, "\n".join(recent))
    images = buildah.run("images", "--all", "--format", "{{.Name}}:{{.Tag}}").splitlines()
    if len(images) > MANY:
        old = [name for name in images if name.startswith(node_images.OURS) and name not in recent]
        if old:
            buildah.run("rmi", "--force", *old)
        buildah.run("rmi", "--prune")
