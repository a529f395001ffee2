"""The programs of the cluster, compiled once and kept in the cache.

They are named by a hash of the Go module in kube/, so another clone of the same sources compiles nothing, and
a change of the module never meets an old program.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.locks import alone
from tests.local_kubernetes.places import Places
from tests.local_kubernetes.progress import step

MODULE = Path(__file__).parent / "kube"
KUBERNETES = "1.34.4"
MINOR = KUBERNETES.split(".")[1]

PACKAGES = (".", "./pause", "helm.sh/helm/v3/cmd/helm", "github.com/yannh/kubeconform/cmd/kubeconform")
"""One compilation makes all, as they share most of their packages."""

VERSIONS = {
    **{
        f"k8s.io/{package}/version.{name}": value
        for package in ("component-base", "client-go/pkg")
        for name, value in (("gitVersion", f"v{KUBERNETES}"), ("gitMajor", "1"), ("gitMinor", MINOR))
    },
    "helm.sh/helm/v3/internal/version.version": "v3.19.5",
    "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": "1",
    "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": MINOR,
}
"""What the programs say of themselves: Go variables that the projects' own builds set like this."""

FAST_COMPILER, GOGC = "-gcflags=all=-dwarf=false", "400"
"""No debug information, and less garbage collection in the compiler: 28 % less processor time in client-go."""

KWOK = "sigs.k8s.io/kwok/cmd/kwok@v0.7.0"
"""Of another release of Kubernetes, so it is compiled by itself."""

PARTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
    "coredns",
    "local-storage",
)
"""Names of links to the one program `kube`."""

KEPT = 3
"""Versions of the programs that stay in the cache: 250 MB each."""


@cache
def go() -> str | None:
    """The Go toolchain, from PATH or where Go's own installer puts it."""
    usual = Path("/usr/local/go/bin/go")
    return shutil.which("go") or (str(usual) if usual.exists() else None)


@cache
def fingerprint() -> str:
    """Of everything that makes the programs what they are."""
    digest = hashlib.sha256(f"{platform.machine()} {PACKAGES} {VERSIONS}".encode())
    for path in sorted(MODULE.rglob("*")):
        if path.suffix in {".go", ".mod", ".sum"}:
            digest.update(f"\0{path.relative_to(MODULE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def directory(places: Places) -> Path:
    """Holds `kube`, a link to it for each part, `helm`, `kubeconform`, `pause`, and maybe `kwok`."""
    return places.cache / "programs" / fingerprint()


def built(places: Places) -> bool:
    return directory(places).exists()


def build(places: Places) -> Path:
    """Compile unless that was done before; returns the directory of the programs."""
    wanted = directory(places)
    if not wanted.exists():
        with alone(places, "programs"):
            if not wanted.exists():  # still: somebody else may just have compiled them
                half = _half(wanted)
                with step("compile Kubernetes, CoreDNS and helm", slow="4 to 7 minutes on two cores, once"):
                    _compile(half)
                for part in PARTS:
                    (half / part).symlink_to("kube")
                half.rename(wanted)
                _forget_old(wanted)
    os.utime(wanted)
    return wanted


def build_kwok(places: Places) -> Path:
    """The program that plays nodes and pods; only for who asks for it."""
    program = build(places) / "kwok"
    if not program.exists():
        with alone(places, "kwok"):
            if not program.exists():
                half = _half(program)
                with step("compile kwok", slow="2 minutes on two cores, once"):
                    _go("install", KWOK, environment={"GOBIN": str(half), "GOFLAGS": "-trimpath"})
                (half / "kwok").rename(program)
                half.rmdir()
    return program


def _half(wanted: Path) -> Path:
    """Beside it an empty directory to compile into: only what is complete gets the name."""
    path = wanted.with_name(f".{wanted.name}")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def _compile(into: Path) -> None:
    flags = ["-s", "-w", *(f"-X={name}={value}" for name, value in VERSIONS.items())]
    _go(
        *("build", "-buildvcs=false", "-trimpath", FAST_COMPILER, "-ldflags", " ".join(flags)),
        *("-o", f"{into}/", *PACKAGES),
        environment={"GOFLAGS": "-mod=readonly", "GOGC": GOGC},
    )


def _go(*arguments: str, environment: dict[str, str]) -> None:
    compiler = go()
    if compiler is None:
        raise ClusterError(
            "there is no Go toolchain to compile Kubernetes with: put `go` (1.24 or newer) on PATH"
        )
    done = subprocess.run(
        [compiler, *arguments],
        cwd=MODULE,
        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"`go {arguments[0]}` failed:\n{done.stderr[-3000:]}")


def _forget_old(wanted: Path) -> None:
    versions = [path for path in wanted.parent.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for path in sorted(versions, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
