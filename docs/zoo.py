"""Trains the rows of docs/zoo.md and writes their results into it: returns of the greedy policies, steps and seconds.

python docs/zoo.py [--seeds 5] [NAME...]     trains rows, such as zoo/lunarlander-ppo; all that have results if none is named
python docs/zoo.py --draw                    writes the table and the pictures again, without training

The results are kept in docs/zoo.json, so that rows can be repeated one at a time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rltraining.compare.estimates import estimate
from rltraining_api.manifest import load_manifest

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
RESULTS = HERE / "zoo.json"
PAGE = HERE / "zoo.md"
PICTURE = HERE / "images" / "zoo.png"
PONG = "pong"
"""Name of a recording and a picture: curves of Pong, with and without a GPU."""
RLTRAIN = Path(sys.executable).with_name("rltrain")
EPISODES = 100
POINTS = 60
"""Points of each curve that are kept."""
COLUMNS = 3
PUBLISHED = {
    "zoo/cartpole-ppo": "500 (100 k)",
    "zoo/cartpole-impala": "",
    "zoo/acrobot-ppo": "-74 (1 M)",
    "zoo/mountaincar-dqn-apex": "-101 (120 k)",
    "zoo/mountaincarcontinuous-ppo": "88 (20 k)",
    "pendulum-sac": "-157 (20 k)",
    "pendulum-td3": "-152 (20 k)",
    "zoo/lunarlander-ppo": "242 (1 M)",
    "zoo/lunarlandercontinuous-ppo": "271 (1 M)",
    "zoo/minigrid-doorkey-ppo": "",
    "memory-cartpole-impala": "",
    "zoo/halfcheetah-ppo": "5,819 (1 M)",
    "zoo/halfcheetah-sac": "9,535 (1 M)",
    "zoo/halfcheetah-td3": "9,656 (1 M)",
    "zoo/hopper-ppo": "2,410 (1 M)",
    "zoo/hopper-sac": "2,325 (1 M)",
    "zoo/walker2d-ppo": "3,479 (1 M)",
}
"""Rows, in the order of the page. Values: the return and the steps of the same algorithm in benchmark.md of
Stable-Baselines3's zoo, empty if it has no such row."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", choices=[[], *PUBLISHED], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parallel", type=int, default=1, help="how many runs go at once")
    parser.add_argument("--workdir", type=Path, default=HERE.parent / "runs", help="where the runs are kept")
    parser.add_argument("--draw", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in [] if arguments.draw else arguments.name or list(results):
        result = train(name, arguments.seeds, arguments.parallel, arguments.workdir / name)
        # Read the file again, since another row may have been trained meanwhile.
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results = {row: result if row == name else results.get(row) for row in PUBLISHED}
        results = {row: kept for row, kept in results.items() if kept}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    before, after = PAGE.read_text().split("<!-- table -->\n", 1)
    _, after = after.split("<!-- end -->\n", 1)
    PAGE.write_text(f"{before}<!-- table -->\n{table(results)}<!-- end -->\n{after}")
    draw(results, PICTURE)
    recorded = json.loads((HERE / "recordings" / f"{PONG}.json").read_text())
    draw(recorded, HERE / "images" / f"{PONG}.png")


def train(name: str, seeds: int, parallel: int, workdir: Path) -> dict[str, Any]:
    """Begins the runs of a row, or continues those in the folder.

    Returns the date, and for each seed the steps, seconds, greedy return and curve.
    """
    manifest = EXAMPLES / f"{name}.yaml"
    how = ["--resume"] if (workdir / "sweep.json").exists() else [manifest, "--seeds", seeds]
    _rltrain("run", *how, "--workdir", workdir, "--parallel", parallel, "--plain")
    runs = []
    for seed in range(seeds):
        folder = workdir / f"seed={seed}"
        evaluated = json.loads(_rltrain("evaluate", folder, "--episodes", EPISODES, "--json", "--trust-code"))
        points = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
        curve = [(point["environmentSteps"], point["meanReturn"]) for point in points]
        curve = [(steps, round(value, 3)) for steps, value in curve if value is not None]
        run = {
            "steps": points[-1]["environmentSteps"],
            "seconds": round(points[-1]["seconds"], 1),
            "greedyReturn": round(evaluated["mean"], 3),
            "curve": curve[:: max(1, len(curve) // POINTS)],
        }
        print(f"  seed {seed}: {run['steps']:,} steps, {run['seconds']} s, {run['greedyReturn']}", flush=True)
        runs.append(run)
    return {"date": datetime.now(UTC).date().isoformat(), "runs": runs}


def _rltrain(*arguments: object) -> str:
    command = [str(RLTRAIN), *map(str, arguments)]
    print(*command[1:], flush=True)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - our own program and arguments


def table(results: dict[str, Any]) -> str:
    """Returns the table of the page."""
    lines = [
        "| task | example | greedy return (IQM, 95% interval) | by seed | steps | seconds | published | date |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        runs = result["runs"]
        returns = [run["greedyReturn"] for run in runs]
        cells = (
            load_manifest(EXAMPLES / f"{name}.yaml").spec.environment.id.split(":")[-1],
            f"`{name}`",
            _estimated(returns),
            ", ".join(map(_number, returns)),
            f"{np.median([run['steps'] for run in runs]) / 1000:,.0f} k",
            f"{np.median([run['seconds'] for run in runs]):,.0f}",
            PUBLISHED[name],
            result["date"],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _estimated(returns: list[float]) -> str:
    """Returns the interquartile mean with its interval. One seed has no interval."""
    if len(returns) == 1:
        return _number(returns[0])
    found = estimate(returns)
    return f"{_number(found.iqm)} ({_number(found.low)} to {_number(found.high)})"


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.0f}"


def draw(results: dict[str, Any], path: Path) -> None:
    """Draws the training returns of each row: a line for each seed, and the interquartile mean."""
    rows = -(-len(results) // COLUMNS)
    figure = Figure(figsize=(11, 2.6 * rows), dpi=100, layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, COLUMNS)).flatten()
    for axis in axes[len(results) :]:
        axis.remove()
    for axis, (name, result) in zip(axes, results.items(), strict=False):
        curves = [np.asarray(run["curve"], float) for run in result["runs"]]
        for curve in curves:
            axis.plot(curve[:, 0] / 1e3, curve[:, 1], color="tab:blue", alpha=0.35, linewidth=1)
        steps = np.linspace(
            max(curve[0, 0] for curve in curves), min(curve[-1, 0] for curve in curves), POINTS
        )
        values = np.sort([np.interp(steps, curve[:, 0], curve[:, 1]) for curve in curves], axis=0)
        cut = len(curves) // 4
        axis.plot(steps / 1e3, values[cut : len(curves) - cut].mean(axis=0), color="tab:blue", linewidth=2.5)
        axis.set_title(name, fontsize=9)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("thousand environment steps", fontsize=9)
    figure.supylabel("mean return of training episodes", fontsize=9)
    figure.savefig(path)


if __name__ == "__main__":
    main()
