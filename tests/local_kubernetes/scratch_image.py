"""An image of one static program and nothing else, pushed to the registry without any image builder."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from tests.local_kubernetes.errors import ClusterError

OCI = "application/vnd.oci.image"


def push(registry: str, name: str, program: Path) -> str:
    """Returns its full name, `<registry>/<name>:<part of its digest>`: another program is another name."""
    layer = _layer(program)
    compressed = gzip.compress(layer, compresslevel=1, mtime=0)
    configuration = json.dumps(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(
                platform.machine(), platform.machine()
            ),
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"], "User": "65532:65532"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        },
        sort_keys=True,
    ).encode()
    tag = f"{name}:{_digest(configuration)[7:19]}"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": _blob(registry, name, configuration, f"{OCI}.config.v1+json"),
        "layers": [_blob(registry, name, compressed, f"{OCI}.layer.v1.tar+gzip")],
    }
    url = f"http://{registry}/v2/{name}/manifests/{tag.rpartition(':')[2]}"
    _send("PUT", url, json.dumps(manifest, sort_keys=True).encode(), f"{OCI}.manifest.v1+json")
    return f"{registry}/{tag}"


def _layer(program: Path) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo(program.name)
        data = program.read_bytes()
        entry.size, entry.mode = len(data), 0o755
        archive.addfile(entry, io.BytesIO(data))
    return file.getvalue()


def _blob(registry: str, name: str, data: bytes, media_type: str) -> dict[str, object]:
    """Upload it unless it is there; returns what a manifest says of it."""
    digest = _digest(data)
    blobs = f"http://{registry}/v2/{name}/blobs/"
    try:
        _send("HEAD", f"{blobs}{digest}")
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        where = _send("POST", f"{blobs}uploads/", b"")
        separator = "&" if "?" in where else "?"
        _send("PUT", f"{where}{separator}digest={digest}", data, "application/octet-stream")
    return {"mediaType": media_type, "size": len(data), "digest": digest}


def _send(method: str, url: str, data: bytes | None = None, media_type: str = "") -> str:
    """Returns the answer's Location. HTTP errors are raised as they are."""
    headers = {"Content-Type": media_type} if media_type else {}
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.headers.get("Location", ""))
    except urllib.error.HTTPError:
        raise
    except OSError as error:
        raise ClusterError(f"the image registry does not take {url}: {error}") from error


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
