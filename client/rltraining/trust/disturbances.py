"""What `rltrain chaos` does to processes, and its record."""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rltraining.errors import UsageError
from rltraining.units import plural

ROLES = ("learner", "sampler", "replay")
DEFAULT_KILLS = ("sampler=7s", "learner=60s")
"""A thousand spot instances with a mean lifetime of two hours lose one every 7 s."""
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Disturbance:
    """Something that happens to random processes of a role."""

    action: Literal["kill", "freeze"]
    role: str
    mean_seconds: float
    """Mean of the exponentially distributed times between two of them."""

    def next_in(self, chance: random.Random) -> float:
        """Returns the seconds until the next one."""
        return chance.expovariate(1 / self.mean_seconds)


@dataclass
class Occurrence:
    """A disturbance that has happened."""

    seconds: float
    """Since the start of the run."""
    time: float
    """Since 1970, as in progress.jsonl."""
    action: str
    role: str
    pod: str
    recovery_seconds: float | None = None
    """Until the process was ready again. None after a freeze, and if the run ended before."""


def parse(kills: Sequence[str], freezes: Sequence[str]) -> tuple[Disturbance, ...]:
    """Reads the options --kill and --freeze. Raises UsageError."""
    return (
        *(_parse("kill", text) for text in (kills or (() if freezes else DEFAULT_KILLS))),
        *(_parse("freeze", text) for text in freezes),
    )


def duration(option: str, text: str) -> float:
    """Reads a time such as 10m. Returns seconds. Raises UsageError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if found is None or not float(found[1]):
        raise UsageError(
            f"{option} {text}: is not a time: use a positive number with s, m or h, such as 7s or 10m"
        )
    return float(found[1]) * _SECONDS[found[2]]


@dataclass(frozen=True)
class Kind:
    """One kind of disturbance, such as kills of the learner."""

    name: str
    count: str
    recovery: str
    """How long recoveries took. Empty if there was none."""


def kinds(occurrences: Sequence[Occurrence]) -> list[Kind]:
    """Summarises each kind of disturbance."""
    found = []
    for action, role in sorted({(each.action, each.role) for each in occurrences}):
        those = [each for each in occurrences if (each.action, each.role) == (action, role)]
        times = [each.recovery_seconds for each in those if each.recovery_seconds is not None]
        recovery = ""
        if times:
            recovery = (
                f"ready again after {statistics.median(times):.1f} s (median), {max(times):.1f} s (longest)"
            )
        found.append(Kind(f"{action} {role}", plural(len(those), "time"), recovery))
    return found


def table(occurrences: Sequence[Occurrence]) -> list[str]:
    """Returns a line for each kind of disturbance."""
    if not occurrences:
        return ["chaos: nothing was disturbed: the run ended first, or has no process of these roles"]
    return [
        ", ".join(filter(None, (f"chaos: {kind.name}", kind.count, kind.recovery)))
        for kind in kinds(occurrences)
    ]


def _parse(action: Literal["kill", "freeze"], text: str) -> Disturbance:
    role, separator, time = text.partition("=")
    if role not in ROLES or not separator:
        raise UsageError(
            f"--{action} {text}: is not ROLE=TIME: name one of {', '.join(ROLES)} and the mean time between two, "
            f"such as --{action} sampler=7s"
        )
    return Disturbance(action, role, duration(f"--{action}", time))
