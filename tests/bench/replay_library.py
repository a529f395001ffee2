"""`rltraining_trainer.replay` beside the replays of tianshou, cpprb and TorchRL: prioritized, in one process, on one core.

Each library is installed, pinned, into a separate environment. The libraries take turns in running
the same program (peers/replay_cycles.py). A library that cannot be installed here is left out, with
the reason.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from tests.bench.table import print_table, thousands

PROGRAM = Path(__file__).with_name("peers") / "replay_cycles.py"
COMMON = ("torch==2.13.0", "numpy==2.4.6")
PEERS = {"tianshou": "tianshou==2.0.1", "cpprb": "cpprb==11.0.0", "torchrl": "torchrl==0.14.1"}
NAMES = {"ours": "rltraining_trainer.replay", "torchrl": "TorchRL"}
OPERATIONS = {"add": "add 1", "extend": "extend 64", "sample": "sample 512", "cycle": "sample + update 512"}


def run(seeds: int) -> None:
    rates: dict[str, list[dict[str, dict[str, float]]]] = {}
    failures: dict[str, str] = {}
    for _ in range(seeds):  # in turn, so that other load on the machine affects all alike
        for library in ("ours", *PEERS):
            if library in failures:
                continue
            done = subprocess.run(_command(library), capture_output=True, text=True)
            if done.returncode:
                failures[library] = (done.stderr.strip().splitlines() or ["no output"])[-1]
            else:
                rates.setdefault(library, []).append(json.loads(done.stdout.splitlines()[-1]))
    rows = [
        (f"{kind}: {NAMES.get(library, library)}", *_cells(kind, found))
        for kind in next(iter(rates.values()))[0]
        for library, found in rates.items()
    ]
    print_table((f"items/s, median of {seeds}", *OPERATIONS.values()), rows)
    for library, failure in failures.items():
        print(f"{library} is left out: {failure}")


def _cells(kind: str, found: list[dict[str, dict[str, float]]]) -> list[str]:
    return [thousands(statistics.median(rates[kind][name] for rates in found)) for name in OPERATIONS]


def _command(library: str) -> list[str]:
    if library == "ours":
        return [sys.executable, str(PROGRAM), library]
    uv = str(Path(sys.executable).with_name("uv"))
    packages = [option for package in (PEERS[library], *COMMON) for option in ("--with", package)]
    command = [uv, "run", "--quiet", "--no-project", "--python", sys.executable, *packages, "python"]
    return [*command, str(PROGRAM), library]
