"""Implements `rltrain chaos`: kills and freezes processes of a local run at random times."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rltraining_operator.cluster import Key
from rltraining_operator.local import LocalCluster

from rltraining import run, workdir
from rltraining.errors import ClientError, Exit
from rltraining.plain import print_line
from rltraining.report.command import report as write_report
from rltraining.sdk.client import RLTrainingClient
from rltraining.trust.audit import examine, print_findings
from rltraining.trust.disturbances import Disturbance, Occurrence, duration, parse, table
from rltraining.units import clock

FREEZE_SECONDS = 5.0
"""How long a frozen process stays frozen."""


class Chaos:
    """Disturbs the processes of a job until it is cancelled.

    ``seed``: decides the times. None: the job's seed.
    """

    def __init__(
        self, disturbances: Sequence[Disturbance], *, quiet: bool = False, seed: int | None = None
    ) -> None:
        self.occurrences: list[Occurrence] = []
        self.folder: Path | None = None
        """The run's folder."""
        self._disturbances = disturbances
        self._quiet, self._seed = quiet, seed
        self._began = 0.0

    async def disturb(self, cluster: LocalCluster, key: Key) -> None:
        """Waits until the job learns, then disturbs it until this call is cancelled."""
        self.folder, self._began = cluster.workdir, time.monotonic()
        await cluster.until(
            key, lambda job: job.status.phase == "Running" and bool(job.status.progress.environment_steps)
        )
        present = {pod.role for pod in cluster.pods(key)}
        for role in dict.fromkeys(each.role for each in self._disturbances if each.role not in present):
            self._print(f"the job has no process of the role {role}")
        seed = cluster.job(key).spec.seed if self._seed is None else self._seed
        async with asyncio.TaskGroup() as group:
            for number, disturbance in enumerate(self._disturbances):
                chance = random.Random(f"{seed} {number}")
                group.create_task(self._repeat(cluster, key, disturbance, chance))

    async def _repeat(
        self, cluster: LocalCluster, key: Key, disturbance: Disturbance, chance: random.Random
    ) -> None:
        while True:
            await asyncio.sleep(disturbance.next_in(chance))
            # Choose a process that has started.
            names = [pod.name for pod in cluster.pods(key) if pod.role == disturbance.role]
            name = chance.choice(names) if names else ""
            if (process := cluster.pid(name) if name else None) is None:
                continue
            # Disturb it.
            seconds = time.monotonic() - self._began
            occurrence = Occurrence(seconds, time.time(), disturbance.action, disturbance.role, name)
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
    disturbances = parse(kills, freezes)
    changes = options.changes
    if seconds is not None:
        changes = (*changes, f"stop.seconds={duration('--for', seconds):g}")
    # Train.
    disturbing = Chaos(disturbances)
    code = run.run(replace(options, changes=changes, plain=True, beside=disturbing.disturb))
    if disturbing.folder is None:
        return code
    # Report.
    folder = disturbing.folder
    print_line("", sys.stdout)
    for line in table(disturbing.occurrences):
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
    try:
        write_report(str(folder), None, RLTrainingClient, with_video=False)
    except ClientError as error:
        print_line(f"note: there is no page: {error}", sys.stdout)
    return code or (Exit.FAILED if any(found.violations for found in findings) else Exit.OK)
