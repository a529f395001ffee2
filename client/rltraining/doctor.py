"""Implements `rltrain doctor`: whether runs work on this machine, and whether a cluster is ready."""

from __future__ import annotations

import os
import platform
import resource
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, NamedTuple

from rltraining import local
from rltraining.cluster.context import ClusterContext
from rltraining.errors import ClientError, Exit
from rltraining.printable import say
from rltraining.sdk.client import RLTrainingClient
from rltraining.sdk.errors import AccessDeniedError
from rltraining.sdk.timing import Timing
from rltraining.units import plural

Level = Literal["ok", "warning", "error"]
MIB = 2**20
DISTRIBUTIONS = ("rltraining", "rltraining-api", "rltraining-operator", "rltraining-trainer")
TIMING = Timing(connect=5.0, answer=10.0, tries=1)
"""Shorter timeouts than other commands have."""


class Finding(NamedTuple):
    """One line of the output. Errors prevent runs."""

    level: Level
    text: str
    remedy: str = ""


def doctor(context: ClusterContext) -> int:
    """Prints all findings. Returns the exit code: 1 if something prevents runs."""
    cluster = _cluster(context)
    has_cluster = cluster.level == "ok"
    findings = (_versions(), *_packages(has_cluster), *machine(Path.cwd()), cluster)
    for level, text, remedy in findings:
        say(f"{level:<7}  {text}{f': {remedy}' if remedy else ''}")
    return Exit.FAILED if any(finding.level == "error" for finding in findings) else Exit.OK


def graded(amount: float, enough: float, needed: float, text: str, remedy: str) -> Finding:
    """Returns an error if the amount is below `needed`, and a warning if it is below `enough`."""
    if amount >= enough:
        return Finding("ok", text)
    return Finding("warning" if amount >= needed else "error", text, remedy)


def machine(folder: Path) -> Iterator[Finding]:
    """Yields what the machine has for a run in the folder: cores, memory, open files and disk."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield graded(cores, 2, 1, plural(cores, "core"), "learner and samplers share a core, so runs are slow")
    if memory := _memory():
        text = "memory: {:,} of {:,} MiB available".format(*(size // MIB for size in memory))
        yield graded(memory[0], 1024 * MIB, 0, text, "end other programs if a run is slow or killed")
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        yield Finding("ok", "open files: no limit")
    else:
        yield graded(
            limit, 1024, 256, f"open files: at most {limit:,}", "raise the limit with ulimit -n 4096"
        )
    if not os.access(folder, os.W_OK):
        yield Finding(
            "error", f"{folder} is not writable", "go to another folder, or name one with --workdir"
        )
    free = shutil.disk_usage(folder).free
    remedy = "free some space, or name a folder on another disk with --workdir"
    yield graded(free, 1024 * MIB, 100 * MIB, f"disk: {free // MIB:,} MiB free in {folder}", remedy)


def _versions() -> Finding:
    """Compares the versions of this project's distributions, which belong together."""
    found = {name: installed for name in DISTRIBUTIONS if (installed := _version(name))}
    about = f"Python {platform.python_version()}, {platform.platform()}"
    if len(set(found.values())) == 1:
        return Finding("ok", f"rltrain {found['rltraining']}, {about}")
    different = ", ".join(f"{name} {installed}" for name, installed in found.items())
    return Finding("warning", f"{different}, {about}", "install the same version of each")


def _packages(has_cluster: bool) -> Iterator[Finding]:
    """Yields the packages for runs on this machine. A client of a cluster needs none."""
    if missing := local.missing_modules():
        text = f"runs on this machine need packages that are not installed ({', '.join(missing)})"
        yield Finding("warning" if has_cluster else "error", text, local.REMEDY)
    else:
        yield Finding("ok", f"torch {_version('torch')}, gymnasium {_version('gymnasium')}")
    absent = [extra for extra, module in local.EXTRA_MODULES.items() if not local.is_installed(module)]
    there = ", ".join(extra for extra in local.EXTRA_MODULES if extra not in absent) or "none"
    yield Finding("ok", f"extras: {there}" + (f"; not installed: {', '.join(absent)}" if absent else ""))


def _cluster(context: ClusterContext) -> Finding:
    """Asks the API server of the kubeconfig for jobs. Without one, runs on this machine still work."""
    level: Level = "error" if any((context.namespace, context.context, context.kubeconfig)) else "warning"
    try:
        client = RLTrainingClient(context.namespace, context.context, context.kubeconfig, timing=TIMING)
        client.jobs.table(limit=1)
    except AccessDeniedError as error:
        return Finding(level, f"the cluster answers, but {error}")
    except ClientError as error:
        return Finding(level, str(error))
    return Finding("ok", f"cluster: {client.jobs.api.access.description} answers, and has RLTrainingJobs")


def _memory() -> tuple[int, int] | None:
    """Returns the bytes of memory that are available and that there are. None except on Linux."""
    try:
        lines = [line.partition(":") for line in Path("/proc/meminfo").read_text().splitlines()]
        kibibytes = {name: value.removesuffix("kB") for name, _, value in lines}
        available, total = (int(kibibytes[name]) * 1024 for name in ("MemAvailable", "MemTotal"))
    except (OSError, ValueError, KeyError):
        return None
    return available, total


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
