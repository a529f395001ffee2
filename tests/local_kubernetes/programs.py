"""The programs of the cluster, compiled once and kept in the cache.

Their directory is named after a hash of the Go module in kube/. Another clone of the same sources
therefore compiles nothing, and a changed module never uses an old program.
"""

from __future__ import annotations

import hashlib
import json
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
"""Packages of one compilation, since they share most of their dependencies."""

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
"""The programs' version information: Go variables that the projects' own builds also set."""

FAST_COMPILER, GOGC = "-gcflags=all=-dwarf=false", "400"
"""No debug information, and less garbage collection in the compiler: 28 % less CPU time in client-go."""

KWOK = "sigs.k8s.io/kwok/cmd/kwok@v0.7.0"
KUEUE = "sigs.k8s.io/kueue/cmd/kueue@v0.17.0"
POLICY_ENGINE = "sigs.k8s.io/kube-network-policies/cmd@v0.8.0"
METRICS_SERVER = "sigs.k8s.io/metrics-server/cmd/metrics-server@v0.9.0"
MINUTES = {KWOK: 2, KUEUE: 10, POLICY_ENGINE: 2, METRICS_SERVER: 2}
"""Programs that use other releases of Kubernetes. They are compiled separately, and only when they are requested."""

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
"""Names of the links to the program `kube`."""

KEPT = 3
"""Number of versions of the programs that stay in the cache, at 250 MB each."""


@cache
def go() -> str | None:
    """Returns the Go toolchain, from PATH or from the default folder of Go's installer."""
    usual = Path("/usr/local/go/bin/go")
    return shutil.which("go") or (str(usual) if usual.exists() else None)


@cache
def fingerprint() -> str:
    """Returns a hash of everything that affects the programs."""
    digest = hashlib.sha256(f"{platform.machine()} {PACKAGES} {VERSIONS}".encode())
    for path in sorted(MODULE.rglob("*")):
        if path.suffix in {".go", ".mod", ".sum"}:
            digest.update(f"\0{path.relative_to(MODULE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def directory(places: Places) -> Path:
    """Returns the folder of `kube`, its links for the parts, `helm`, `kubeconform`, `pause`, maybe `kwok`."""
    return places.cache / "programs" / fingerprint()


def built(places: Places) -> bool:
    return directory(places).exists()


def build(places: Places) -> Path:
    """Compiles the programs unless they exist. Returns their directory."""
    wanted = directory(places)
    if not wanted.exists():
        with alone(places, "programs"):
            if not wanted.exists():  # check again: another command may have compiled them meanwhile
                half = _half(wanted)
                with step("compile Kubernetes, CoreDNS and helm", slow="4 to 7 minutes on two cores, once"):
                    _compile(half)
                for part in PARTS:
                    (half / part).symlink_to("kube")
                half.rename(wanted)
                _forget_old(wanted)
    os.utime(wanted)
    return wanted


def build_separately(places: Places, package: str) -> Path:
    """Compiles a program with its own versions of libraries, such as `KWOK`, unless it exists."""
    program = build(places) / file_name(package)
    if not program.exists():
        with alone(places, program.name):
            if not program.exists():
                half = _half(program)
                flags = (FAST_COMPILER, "-ldflags", "-s -w")
                with step(f"compile {program.name}", slow=f"{MINUTES[package]} minutes on two cores, once"):
                    _go("install", *flags, package, environment={"GOBIN": str(half), "GOFLAGS": "-trimpath"})
                next(half.iterdir()).rename(program)
                half.rmdir()
    return program


def file_name(package: str) -> str:
    """Returns the name of the file of a program that is compiled separately, which contains the version."""
    path, _, version = package.partition("@")
    return f"{path.removesuffix('/cmd').rpartition('/')[2]}-{version}"


def module_folder(package: str) -> Path:
    """Returns the folder of a program's Go module, which is downloaded unless it is there."""
    path, _, version = package.partition("@")
    module = f"{path.partition('/cmd')[0]}@{version}"
    found = json.loads(_go("mod", "download", "-json", module, environment={"GOFLAGS": "-mod=mod"}))
    return Path(found["Dir"])


def _half(wanted: Path) -> Path:
    """Creates an empty directory beside `wanted` to compile into.

    Only complete programs get the final name.
    """
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


def _go(*arguments: str, environment: dict[str, str]) -> str:
    """Runs Go. Returns its output."""
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
    return done.stdout


def _forget_old(wanted: Path) -> None:
    versions = [path for path in wanted.parent.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for path in sorted(versions, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
