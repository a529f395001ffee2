"""Implements `rltrain chaos`: kills and freezes processes of a local run at random times."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rltraining_operator.cluster import Key
from rltraining_operator.local import LocalCluster

from rltraining import run, workdir
from rltraining.errors import Exit, UsageError
from rltraining.plain import print_line
from rltraining.trust.audit import examine, print_findings
from rltraining.units import clock, plural

ROLES = ("learner", "sampler", "replay")
DEFAULT_KILLS = ("sampler=7s", "learner=60s")
"""A thousand spot instances with a mean lifetime of two hours lose one every 7 s."""
FREEZE_SECONDS = 5.0
"""How long a frozen process stays frozen."""
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Disturbance:
    """Something that happens to random processes of a role."""

    action: Literal["kill", "freeze"]
    role: str
    mean_seconds: float
    """Mean of the exponentially distributed times between two of them."""


@dataclass
class Occurrence:
    """A disturbance that has happened."""

    seconds: float
    """Since the start of the run."""
    action: str
    role: str
    pod: str
    recovery_seconds: float | None = None
    """Until the process was ready again. None after a freeze, and if the run ended before."""


class Chaos:
    """Disturbs the processes of a job until it is cancelled. The times follow from the job's seed."""

    def __init__(self, disturbances: Sequence[Disturbance], *, quiet: bool = False) -> None:
        self.occurrences: list[Occurrence] = []
        self.folder: Path | None = None
        """The run's folder."""
        self._disturbances = disturbances
        self._quiet = quiet
        self._began = 0.0

    async def disturb(self, cluster: LocalCluster, key: Key) -> None:
        """Waits until the job learns, then disturbs it until this call is cancelled."""
        self.folder, self._began = cluster.workdir, time.monotonic()
        await cluster.until(
            key, lambda job: job.status.phase == "Running" and bool(job.status.progress.environment_steps)
        )
        async with asyncio.TaskGroup() as group:
            for number, disturbance in enumerate(self._disturbances):
                chance = random.Random(f"{cluster.job(key).spec.seed} {number}")
                group.create_task(self._repeat(cluster, key, disturbance, chance))

    async def _repeat(
        self, cluster: LocalCluster, key: Key, disturbance: Disturbance, chance: random.Random
    ) -> None:
        while True:
            await asyncio.sleep(chance.expovariate(1 / disturbance.mean_seconds))
            # Choose a process that has started.
            names = [pod.name for pod in cluster.pods(key) if pod.role == disturbance.role]
            name = chance.choice(names) if names else ""
            if (process := cluster.pid(name) if name else None) is None:
                continue
            # Disturb it.
            seconds = time.monotonic() - self._began
            occurrence = Occurrence(seconds, disturbance.action, disturbance.role, name)
            self.occurrences.append(occurrence)
            if disturbance.action == "kill":
                await self._kill(cluster, key, process, occurrence)
            else:
                await self._freeze(process, occurrence)

    async def _kill(self, cluster: LocalCluster, key: Key, process: int, occurrence: Occurrence) -> None:
        """Kills a process, and returns when its successor is ready."""
        _send(process, signal.SIGKILL)
        self._print(f"killed {occurrence.pod}")
        killed, name = time.monotonic(), occurrence.pod
        await cluster.until(
            key, lambda _: cluster.pid(name) not in (None, process) and _is_ready(cluster, key, name)
        )
        occurrence.recovery_seconds = time.monotonic() - killed
        self._print(f"{name} is ready again after {occurrence.recovery_seconds:.1f} s")

    async def _freeze(self, process: int, occurrence: Occurrence) -> None:
        _send(process, signal.SIGSTOP)
        self._print(f"froze {occurrence.pod} for {FREEZE_SECONDS:g} s")
        try:
            await asyncio.sleep(FREEZE_SECONDS)
        finally:
            _send(process, signal.SIGCONT)

    def _print(self, text: str) -> None:
        if not self._quiet:
            print_line(f"{clock(time.monotonic() - self._began)}  chaos: {text}", sys.stdout)


def _send(process: int, number: signal.Signals) -> None:
    """Sends a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(process, number)


def _is_ready(cluster: LocalCluster, key: Key, name: str) -> bool:
    return any(pod.ready for pod in cluster.pods(key) if pod.name == name)


def chaos(options: run.RunOptions, kills: Sequence[str], freezes: Sequence[str], seconds: str | None) -> int:
    """Runs the job under disturbances, prints what happened, and audits the run. Returns the exit code.

    Raises UsageError before anything is started."""
    disturbances = [
        *(_parse("kill", text) for text in (kills or (() if freezes else DEFAULT_KILLS))),
        *(_parse("freeze", text) for text in freezes),
    ]
    changes = options.changes
    if seconds is not None:
        changes = (*changes, f"stop.seconds={_duration('--for', seconds):g}")
    # Train.
    disturbing = Chaos(disturbances)
    code = run.run(replace(options, changes=changes, plain=True, beside=disturbing.disturb))
    if disturbing.folder is None:
        return code
    # Report.
    folder = disturbing.folder
    print_line("", sys.stdout)
    for line in _table(disturbing.occurrences):
        print_line(line, sys.stdout)
    print_line("", sys.stdout)
    findings = examine(folder)
    print_findings(findings)
    report: dict[str, Any] = {
        "disturbances": [asdict(disturbance) for disturbance in disturbances],
        "occurrences": [asdict(occurrence) for occurrence in disturbing.occurrences],
        "audit": [finding._asdict() for finding in findings],
    }
    (folder / workdir.CHAOS_FILE).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return code or (Exit.FAILED if any(found.violations for found in findings) else Exit.OK)


def _parse(action: Literal["kill", "freeze"], text: str) -> Disturbance:
    role, separator, duration = text.partition("=")
    if role not in ROLES or not separator:
        raise UsageError(
            f"--{action} {text}: is not ROLE=TIME: name one of {', '.join(ROLES)} and the mean time between two, "
            f"such as --{action} sampler=7s"
        )
    return Disturbance(action, role, _duration(f"--{action}", duration))


def _duration(option: str, text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if found is None or not float(found[1]):
        raise UsageError(
            f"{option} {text}: is not a time: use a positive number with s, m or h, such as 7s or 10m"
        )
    return float(found[1]) * _SECONDS[found[2]]


def _table(occurrences: Sequence[Occurrence]) -> list[str]:
    """Returns a line for each kind of disturbance: how often it happened, and how long recoveries took."""
    if not occurrences:
        return ["chaos: nothing was disturbed: the run ended first"]
    lines = []
    for action, role in sorted({(each.action, each.role) for each in occurrences}):
        those = [each for each in occurrences if (each.action, each.role) == (action, role)]
        times = [each.recovery_seconds for each in those if each.recovery_seconds is not None]
        line = f"chaos: {action} {role}, {plural(len(those), 'time')}"
        if times:
            line += (
                f", ready again after {statistics.median(times):.1f} s (median), {max(times):.1f} s (longest)"
            )
        lines.append(line)
    return lines
