"""Draws docs/images/lag.svg, part of ``make pictures``: returns of algorithms over an artificial policy lag, as
``python -m tests.bench lag`` measures them.

python docs/lag.py [--seeds 5]     trains all rows, which takes an hour, and keeps them in docs/recordings/lag.json
python docs/lag.py --draw          draws the rows that are kept
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure
from rltraining.compare.estimates import estimate

ROOT = Path(__file__).parents[1]
IMAGE = ROOT / "docs" / "images" / "lag.svg"
RECORDING = ROOT / "docs" / "recordings" / "lag.json"
COLORS = {"impala": "#00796b", "a3c": "#c77700", "a2c": "#5e35b1"}
NAMES = {"impala": "IMPALA", "a3c": "A3C", "a2c": "A2C, mode Async"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--draw", action="store_true")
    arguments = parser.parse_args()
    if not arguments.draw:
        RECORDING.write_text(json.dumps(train(arguments.seeds), indent=1) + "\n")
    rows = json.loads(RECORDING.read_text())
    draw(rows)
    print(table(rows))


def train(seeds: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.bench.lag", str(seeds)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own program
    return [json.loads(line) for line in done.stdout.splitlines()]


def table(rows: list[dict[str, Any]]) -> str:
    """Returns a table of the interquartile means, one column for each lag."""
    lags = sorted({row["lag"] for row in rows})
    lines = [
        f"| task | algorithm | versions in a run | {' | '.join(f'lag {lag}' for lag in lags)} |",
        "|" + "---|" * (len(lags) + 3),
    ]
    for task, algorithm in dict.fromkeys((row["task"], row["algorithm"]) for row in rows):
        found = [row for row in rows if (row["task"], row["algorithm"]) == (task, algorithm)]
        cells = [f"{estimate(row['returns']).iqm:.0f}" for row in found]
        versions = max(row["versions"] for row in found)
        lines.append(f"| {task} | {NAMES[algorithm]} | {versions:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]]) -> None:
    rcParams["svg.hashsalt"] = "lag"  # the same data give the same file
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    figure = Figure(figsize=(4.5 * len(tasks), 3.2), layout="constrained")
    for axes, task in zip(np.atleast_1d(figure.subplots(1, len(tasks))), tasks, strict=True):
        lags = sorted({row["lag"] for row in rows if row["task"] == task})
        for algorithm, color in COLORS.items():
            found = [row for row in rows if (row["task"], row["algorithm"]) == (task, algorithm)]
            places = [lags.index(row["lag"]) for row in found]
            estimates = [estimate(row["returns"]) for row in found]
            axes.plot(places, [one.iqm for one in estimates], "o-", color=color, label=NAMES[algorithm])
            bounds = [one.low for one in estimates], [one.high for one in estimates]
            axes.fill_between(places, *bounds, color=color, alpha=0.15, linewidth=0)
        axes.set_xticks(range(len(lags)), map(str, lags))
        axes.set_title(task, fontsize=10)
        axes.set_xlabel("policy lag in versions")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("mean return of the last 100 episodes")
    figure.axes[0].legend(fontsize="small")
    figure.savefig(IMAGE, metadata={"Date": None})


if __name__ == "__main__":
    main()
