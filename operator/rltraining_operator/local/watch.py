"""Watches a running process: its answers to probes, and its memory."""

from __future__ import annotations

import asyncio
import re
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rltraining_operator import http
from rltraining_operator.local.network import HOST

PROBE_SECONDS, PROBE_READY_SECONDS = 0.2, 1.0
"""Interval of probes of an unready and of a ready container."""
MEMORY_SECONDS = 1.0
QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]i?|k|m)?")
UNITS = {"m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15} | {
    f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTP", start=1)
}


async def watch_readiness(probe: Mapping[str, Any], port: int, report: Callable[[bool], None]) -> None:
    """Reports every change of readiness. Without a probe a running container is ready."""
    get = probe.get("httpGet")
    if get is None:
        report(True)
        return
    ready, failures, timeout = False, 0, probe.get("timeoutSeconds", 1)
    while True:
        answer = await http.get(HOST, port, get.get("path", "/"), timeout_seconds=timeout)
        good = answer is not None and 200 <= answer.status < 400
        failures = 0 if good else failures + 1
        if ready != good and (good or failures >= probe.get("failureThreshold", 3)):
            ready = good
            report(ready)
        await asyncio.sleep(PROBE_READY_SECONDS if ready else PROBE_SECONDS)


async def watch_liveness(probe: Mapping[str, Any], port: int) -> None:
    """Returns when a process that has answered its liveness probe before stops answering. Never
    returns without a probe."""
    get: Mapping[str, Any] = probe.get("httpGet") or {}
    if not get:
        await asyncio.Event().wait()
    period, timeout = probe.get("periodSeconds", 10), probe.get("timeoutSeconds", 1)
    failures, started = 0, False
    while failures < probe.get("failureThreshold", 3):
        asked = asyncio.create_task(asyncio.sleep(period))
        answer = await http.get(HOST, port, get.get("path", "/"), timeout_seconds=timeout)
        started = started or answer is not None
        failures = 0 if answer is not None or not started else failures + 1
        await asked


async def watch_memory(pid: int, limit_bytes: int) -> None:
    """Returns when the process exceeds its memory limit. Never returns on platforms other than
    Linux."""
    if sys.platform != "linux":
        await asyncio.Event().wait()
    while resident_bytes(pid) <= limit_bytes:  # noqa: ASYNC110 - memory has no event
        await asyncio.sleep(MEMORY_SECONDS)


def resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process, or 0 if the process is gone (Linux)."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def parse_quantity(text: str | float) -> int | None:
    """Parses a Kubernetes quantity, such as `512Mi`, `2G` or `1e9`, to whole units. Returns None if
    it is invalid."""
    if match := QUANTITY.fullmatch(str(text)):
        return int(float(match[1]) * UNITS.get(match[2], 1.0))
    try:
        return int(float(text))
    except ValueError:
        return None
