"""``python -m tests.repeat``: looks for flaky tests. Runs each suite several times in random order while every core is busy.

Prints a line for each run, with the seed of its order. What a failed run printed is in the log that its line names.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUITES = ("unit", "integration", "e2e", "api", "live")
"""Targets of the Makefile."""
HOG = "while True: pass"
NO_TEST = "no test ran"
LOGS = ROOT / "runs" / "repeat"


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keeps this number of cores busy."""
    hogs = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(cores)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def run(suite: str, seed: int, log: Path) -> bool:
    """Runs a suite once. Returns whether it passed, which a suite without a test does not."""
    with log.open("w") as output:
        command = ["make", suite, f"SEED={seed}"]
        done = subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, check=False)
    return done.returncode == 0 and last_line(log) != NO_TEST


def last_line(log: Path) -> str:
    """Returns pytest's last line: how many tests passed and failed."""
    lines = [
        line
        for line in log.read_text(errors="replace").splitlines()
        if " passed" in line or " failed" in line
    ]
    return lines[-1].strip("= ") if lines else NO_TEST


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.repeat", description=__doc__)
    parser.add_argument("suite", nargs="*", choices=[[], *SUITES], help="which suites (default: all)")
    parser.add_argument("--times", type=int, default=10, help="runs of each suite (default 10)")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first run's order; each run adds one (default 1)"
    )
    parser.add_argument(
        "--hogs", type=int, default=os.cpu_count(), help="cores that are kept busy (default: all)"
    )
    arguments = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    failures = 0
    with busy(arguments.hogs):
        for suite in arguments.suite or SUITES:
            for seed in range(arguments.seed, arguments.seed + arguments.times):
                log, began = LOGS / f"{suite}-{seed}.log", time.monotonic()
                passed = run(suite, seed, log)
                failures += not passed
                verdict = "passed" if passed else f"FAILED, see {log.relative_to(ROOT)}"
                print(
                    f"{suite} seed {seed}: {verdict} ({last_line(log)}; {time.monotonic() - began:.0f} s)",
                    flush=True,
                )
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
