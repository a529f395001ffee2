"""Trains Pong with other libraries and with this project, in turn, each alone on two cores of this machine.

All have the network of Mnih et al. 2015, the same preprocessing (84x84 grey pixels, 4 frames stacked, each action for
4 frames, the maximum of the last 2, no sticky actions) and 32 games. PPO makes rollouts of 128 steps of each game, and
passes 4 times over each rollout in minibatches of 256 steps. A step is an agent's, that is 4 frames.

A run lasts a fixed number of seconds, which begin with the end of the first iteration, a rollout and its updates.
Seconds and steps are of whole iterations. Start-up (imports, processes, the first iteration) is shown apart. Each library
runs a program of tests/bench/peers in a separate environment with pinned versions. A library that cannot be installed
here is left out, with the reason.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.peer import Peer, measure_in_turn, print_left_out, run_peer
from tests.bench.table import print_table
from tests.bench.training import train

SECONDS = 60
"""Length of a run."""
STARTUP = 300
"""Seconds that a library may take to install, start, and make the first iteration."""


@dataclass(frozen=True)
class Result:
    seconds: float
    steps: int
    updates: int
    startup: float


SAMPLE_FACTORY = ("sample-factory==2.1.1", "gymnasium==0.29.1", "ale-py==0.10.2", "torch==2.5.1")
"""With the newest versions that it accepts, for ale-py one with games that gymnasium 0.29 can make."""
PEERS = (
    Peer("Sample Factory 2.1.1, APPO", "sample_factory_pong.py", SAMPLE_FACTORY),
    Peer(
        "Sample Factory 2.1.1, APPO, asynchronous",
        "sample_factory_pong.py",
        SAMPLE_FACTORY,
        ("--async_rl=True", "--worker_num_splits=2"),
    ),
    Peer(
        "EnvPool 1.2.5, PPO like CleanRL's",
        "envpool_pong.py",
        ("envpool==1.2.5", "gymnasium==1.4.0", "torch==2.13.0"),
    ),
)
PPO = ("sampler.replicas=2", "environment.numEnvs=16", "algorithm.ppo.epochs=4", "learner.threads=2")
"""Its samplers wait during updates, so that the learner can use both cores."""
BFLOAT16 = 'network={"natureCnn": {"gradientPrecision": "BFloat16"}}'


def run(seeds: int) -> None:
    ways = {
        "this project, PPO": _own("zoo/pong-ppo", PPO),
        "this project, PPO, updates in bfloat16": _own("zoo/pong-ppo", [*PPO, BFLOAT16]),
        "this project, IMPALA": _own("pong-impala", ["sampler.replicas=1"]),
        **{peer.name: _peer(peer) for peer in PEERS},
    }
    found, failures = measure_in_turn(ways, seeds)
    print_table(
        ("Pong, 32 games", "steps/s: median (all)", "updates per 1,000 steps", "start-up s"),
        [(name, *_cells(results)) for name, results in found.items()],
    )
    print_left_out(failures)


def _cells(results: list[Result]) -> tuple[str, ...]:
    rates = sorted(result.steps / result.seconds for result in results)
    updates = statistics.median(1000 * result.updates / result.steps for result in results)
    return (
        f"{statistics.median(rates):,.0f} ({', '.join(map('{:,.0f}'.format, rates))})",
        f"{updates:.1f}",
        f"{statistics.median(result.startup for result in results):.1f}",
    )


def _own(example: str, overrides: Sequence[str]) -> Callable[[int], Result]:
    rules = ("stop.meanReturn=null", f"stop.seconds={SECONDS}")

    def measure(seed: int) -> Result:
        start = time.time()
        with tempfile.TemporaryDirectory() as folder:
            train(Path(f"examples/{example}.yaml"), seed, Path(folder), [*overrides, *rules])
            points = [json.loads(line) for line in Path(folder, "progress.jsonl").read_text().splitlines()]
        # Measure from the first update to the last one, because points are also recorded between updates.
        points = [point for point in points if point["updates"]]
        begin = points[0]
        end = next(point for point in points if point["updates"] == points[-1]["updates"])
        if begin is end:
            raise RuntimeError(f"only one update in {SECONDS} s")
        return Result(
            end["time"] - begin["time"],
            end["environmentSteps"] - begin["environmentSteps"],
            end["updates"] - begin["updates"],
            begin["time"] - start,
        )

    return measure


def _peer(peer: Peer) -> Callable[[int], Result]:
    return lambda seed: Result(**run_peer(peer, seed, SECONDS, STARTUP))
