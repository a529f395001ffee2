"""Makes keys and certificates of one cluster with `openssl`, and the kubeconfig files that use them."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.places import Places, write

DAYS = "3650"


@dataclass(frozen=True)
class Identity:
    """The subject of a certificate. To the API server `CN` is the user's name and `O` the group."""

    file: str
    name: str
    group: str = ""
    addresses: tuple[str, ...] = ()
    """Names and IP addresses of a server certificate. Empty for a client certificate."""


CLIENTS = (
    Identity("admin", "admin", "system:masters"),
    Identity("controller-manager", "system:kube-controller-manager"),
    Identity("scheduler", "system:kube-scheduler"),
    Identity("proxy", "system:kube-proxy"),
    Identity("coredns", "coredns", "system:masters"),
    Identity("local-storage", "local-storage", "system:masters"),
    Identity("kwok", "kwok", "system:masters"),
    Identity("apiserver-to-kubelet", "apiserver", "system:masters"),
)


def issue(places: Places, identities: tuple[Identity, ...]) -> None:
    """Creates missing files.

    The files are the authority, the key that signs service accounts' tokens, and a pair for each
    identity.
    """
    folder = places.certificates
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    if not (folder / "ca.crt").exists():
        _key(folder / "ca.key")
        _openssl(
            *("req", "-x509", "-new", "-key", str(folder / "ca.key"), "-days", DAYS),
            *("-subj", "/CN=rltraining-test", "-out", str(folder / "ca.crt")),
        )
    if not (folder / "service-accounts.key").exists():
        _key(folder / "service-accounts.key")
    for identity in identities:
        if not (folder / f"{identity.file}.crt").exists():
            _issue(folder, identity)


def _issue(folder: Path, identity: Identity) -> None:
    stem = folder / identity.file
    subject = (f"/O={identity.group}" if identity.group else "") + f"/CN={identity.name}"
    names = ",".join(f"{_kind(address)}:{address}" for address in identity.addresses)
    extensions = [
        "basicConstraints=CA:FALSE",
        f"extendedKeyUsage={'serverAuth,clientAuth' if names else 'clientAuth'}",
        *([f"subjectAltName={names}"] if names else []),
    ]
    _key(stem.with_suffix(".key"))
    write(stem.with_suffix(".extensions"), "\n".join(extensions) + "\n")
    request = _openssl("req", "-new", "-key", f"{stem}.key", "-subj", subject)
    write(stem.with_suffix(".request"), request)
    _openssl(
        *("x509", "-req", "-in", f"{stem}.request", "-days", DAYS, "-extfile", f"{stem}.extensions"),
        *("-CA", str(folder / "ca.crt"), "-CAkey", str(folder / "ca.key"), "-CAcreateserial"),
        *("-out", f"{stem}.crt"),
    )


def kubeconfig(places: Places, server: str, identity: str) -> Path:
    """Returns a self-contained kubeconfig (JSON is YAML) of that holder with one context, `test`."""
    folder = places.certificates
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [
            {
                "name": "test",
                "cluster": {"server": server, "certificate-authority-data": _inline(folder / "ca.crt")},
            }
        ],
        "users": [
            {
                "name": identity,
                "user": {
                    "client-certificate-data": _inline(folder / f"{identity}.crt"),
                    "client-key-data": _inline(folder / f"{identity}.key"),
                },
            }
        ],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": identity}}],
    }
    path = places.configuration / f"{identity}.kubeconfig"
    text = json.dumps(document, indent=1)
    if not path.exists() or path.read_text() != text:
        write(path, text, mode=0o600)
    return path


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _kind(address: str) -> str:
    return "IP" if address.replace(".", "").isdecimal() else "DNS"


def _key(path: Path) -> None:
    """Creates an elliptic-curve key, which takes milliseconds."""
    write(path, _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout"), mode=0o600)


def _openssl(*arguments: str) -> str:
    try:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ClusterError(
            "there is no openssl program to make certificates with: install openssl"
        ) from error
    if done.returncode:
        raise ClusterError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
