"""Draws docs/images/many-samplers.svg, part of ``make pictures``: policy lag and the learner's CPU time over the number of
samplers, as ``python -m tests.bench samplers`` measures them.

python docs/many_samplers.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib import rcParams
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
IMAGE = ROOT / "docs" / "images" / "many-samplers.svg"
SAMPLERS = (1, 3, 10, 30, 100, 300, 1000)
MAX_LAG = 8
"""``maxPolicyLag`` of the bench."""


def main() -> None:
    found = [measure(samplers) for samplers in SAMPLERS]
    draw(found)
    for result in found:
        print(f"| {' | '.join(result['row'])} |")  # the rows of the bench's table


def measure(samplers: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.samplers", str(samplers)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own program
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def draw(found: list[dict[str, Any]]) -> None:
    rcParams["svg.hashsalt"] = "many-samplers"  # the same data give the same file
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    lag, time = figure.subplots(1, 2)
    for number, (color, label) in enumerate((("#00796b", "median"), ("#c77700", "99th percentile"))):
        lag.plot(SAMPLERS, [result["lag"][number] for result in found], "o-", color=color, label=label)
    lag.axhline(MAX_LAG, color="#b3261e", linestyle="--", linewidth=1, label="maxPolicyLag")
    lag.set_ylabel("policy lag")
    lag.legend(fontsize="small")
    time.plot(SAMPLERS, [result["microseconds"] for result in found], "o-", color="#00796b")
    time.set_ylabel("learner's CPU, µs an unroll")
    for axes in (lag, time):
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("samplers")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGE, metadata={"Date": None})


if __name__ == "__main__":
    main()
