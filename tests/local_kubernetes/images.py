"""The images of operator and trainer, built from their own Dockerfiles and pushed to the local registry.

A tag is a fingerprint of what the image is built from, and the registry is the memory: what it has is not built
again. A change of our own code makes and pushes the highest layer only; torch lies in a layer below.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.local_kubernetes import base_image, registry
from tests.local_kubernetes.build_context import fingerprint, snapshot
from tests.local_kubernetes.buildah import Buildah
from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.locks import alone
from tests.local_kubernetes.places import Places, write
from tests.local_kubernetes.progress import step

DOCKERFILES = {"operator": "operator/Dockerfile", "trainer": "trainer_image/Dockerfile"}
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
MANY = 200
"""Images, most of them steps of a build; each further step looks through all."""
KEPT = 8
"""Images whose layers stay, so that going back to another branch is quick as well."""


def build_images(places: Places | None = None) -> dict[str, str]:
    """Full names of the images of the source tree as it is, by room; in the registry, which is up, when this returns."""
    places = places or Places()
    here = registry.start(places)
    names = {room: _name(here, room, _tag(fingerprint(file))) for room, file in DOCKERFILES.items()}
    if not all(map(_pushed, names.values())):
        with alone(places, "images") as lock:
            buildah = Buildah(places, lock)
            buildah.prepare()
            base_image.ensure(buildah)
            names = {room: _build(buildah, here, room) for room in DOCKERFILES}
            _forget_old(buildah, list(names.values()))
    return names


def _tag(inputs: str) -> str:
    return f"{inputs}-{base_image.recipe()[:6]}"


def _name(here: str, room: str, tag: str) -> str:
    return f"{here}/rltraining-{room}:{tag}"


def _pushed(name: str) -> bool:
    """Whether the registry has it."""
    address, _, rest = name.partition("/")
    repository, _, tag = rest.partition(":")
    url = f"http://{address}/v2/{repository}/manifests/{tag}"
    request = urllib.request.Request(url, headers={"Accept": MANIFEST}, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=30):
            return True
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return False
        raise ClusterError(f"the image registry answers {url} with {error}") from error


def _build(buildah: Buildah, here: str, room: str) -> str:
    """Returns the name that it has been pushed as."""
    context = buildah.home / "context"
    tag = _tag(snapshot(DOCKERFILES[room], context))
    name = _name(here, room, tag)
    if _pushed(name):
        return name
    slow = "3 to 5 minutes for a new torch, else seconds" if room == "trainer" else ""
    with step(f"image {name}", slow=slow):
        try:
            buildah.run(
                # The same content is the same layer, whenever it is built: nothing that is known is pushed or pulled.
                *("bud", "--layers", "--timestamp", "0", "--format", "oci", "--network", "host"),
                *("--pull-never", "--build-arg", f"REVISION={tag}", *_downloads()),
                *("--file", str(context / DOCKERFILES[room]), "--tag", name, str(context)),
            )
        finally:
            buildah.run("rm", "--all")
    with step(f"push {name}"):
        compression = ("--compression-format", "zstd", "--compression-level", "1")
        buildah.run("push", "--tls-verify=false", "--format", "oci", *compression, name)
    return name


def _downloads() -> list[str]:
    """What uv has downloaded for this machine's own virtual environment serves the builds as well."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        return []
    found = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=False).stdout.strip()
    return ["--volume", f"{found}:/var/cache/uv"] if Path(found).is_dir() else []


def _forget_old(buildah: Buildah, used: list[str]) -> None:
    """Once there are many: what has not been used lately, and the steps on the way to it."""
    memory = buildah.home / "used"
    before = memory.read_text().split() if memory.exists() else []
    recent = [*(name for name in before if name not in used), *used][-KEPT:]
    write(memory, "\n".join(recent))
    images = buildah.run("images", "--all", "--format", "{{.Name}}:{{.Tag}}").splitlines()
    if len(images) > MANY:
        old = [name for name in images if "/rltraining-" in name and name not in recent]
        if old:
            buildah.run("rmi", "--force", *old)
        buildah.run("rmi", "--prune")
