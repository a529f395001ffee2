"""Train the examples with several seeds and draw their learning curves, and sweep one of them: ``make curves``.

python docs/curves.py [--seeds 3] [EXAMPLE...]      docs/images/<example>.png; of an example that has none yet, name it
python docs/curves.py sweep                         docs/images/sweep.png, and the table of docs/sweeps.md
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rltraining_api.manifest import load_manifest

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
IMAGES = HERE / "images"
RLTRAIN = Path(sys.executable).with_name("rltrain")
SWEEP = "sweep"
SWEPT = ("--sweep", "algorithm.impala.learningRate=1e-3,3e-3,1e-2", "--seeds", "3")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "example",
        nargs="*",
        help=f"names of manifests in examples/, without .yaml, or {SWEEP}; all that have a picture if none is named",
    )
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.example or [*_with_picture(), SWEEP]:
        if name == SWEEP:
            _sweep(IMAGES / f"{SWEEP}.png")
            continue
        manifest = EXAMPLES / f"{name}.yaml"
        with tempfile.TemporaryDirectory() as folder:
            curves = [_train(manifest, seed, Path(folder) / str(seed)) for seed in range(arguments.seeds)]
        _draw(manifest, curves, IMAGES / f"{name}.png")


def _with_picture() -> list[str]:
    """Examples whose curves a page shows; the games of Atari would take days."""
    names = (path.stem for path in EXAMPLES.glob("*.yaml"))
    return sorted(name for name in names if (IMAGES / f"{name}.png").exists())


def _train(manifest: Path, seed: int, workdir: Path) -> list[dict[str, Any]]:
    """The points of one run's progress.jsonl."""
    command = [
        RLTRAIN,
        "run",
        manifest,
        "--workdir",
        workdir,
        "--seed",
        str(seed),
        "--plain",
    ]
    print(*command[1:], flush=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own program and arguments
    points = [json.loads(line) for line in (workdir / "progress.jsonl").read_text().splitlines()]
    points = [point for point in points if point["meanReturn"] is not None]
    print(
        f"  {points[-1]['seconds']:.1f} s, {points[-1]['environmentSteps']:,} steps, return {points[-1]['meanReturn']:.1f}"
    )
    return points


def _sweep(path: Path) -> None:
    """The command that docs/sweeps.md begins with; what it draws is the picture."""
    with tempfile.TemporaryDirectory() as folder:
        command = [RLTRAIN, "run", EXAMPLES / "cartpole-impala.yaml", *SWEPT, "--workdir", folder, "--plain"]
        print(*command[1:], flush=True)
        subprocess.run(command, check=True)  # noqa: S603 - our own program and arguments
        shutil.copyfile(Path(folder) / "comparison.png", path)


def _draw(manifest: Path, curves: list[list[dict[str, Any]]], path: Path) -> None:
    """Mean return against steps and against seconds, a line for each seed."""
    spec = load_manifest(manifest).spec
    figure = Figure(figsize=(11, 4.2), dpi=100, layout="constrained")
    figure.suptitle(
        f"{spec.environment.id}, {spec.algorithm.name}: examples/{manifest.name}, {len(curves)} seeds"
    )
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (key, scale, label) in zip(
        axes,
        (("environmentSteps", 1e6, "million environment steps"), ("seconds", 1.0, "seconds of training")),
        strict=True,
    ):
        for seed, points in enumerate(curves):
            x = [point[key] / scale for point in points]
            axis.plot(x, [point["meanReturn"] for point in points], linewidth=1.5, label=f"seed {seed}")
        if spec.stop.mean_return:
            axis.axhline(spec.stop.mean_return.at_least, color="grey", linewidth=1, linestyle="--")
        axis.set_xlabel(label)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("mean return of training episodes")
    axes[1].legend(frameon=False)
    figure.savefig(path)


if __name__ == "__main__":
    main()
