"""CartPole-v1 by other libraries and by this project, in turn, each alone on all cores of this machine.

A run ends when the mean return of the last 100 training episodes is at least 475 (A3C as published: by the literature's
rule, see peers/hogwild_a3c.py). Seconds count from the first environment step. Start-up (imports, processes,
compilation) is shown apart. Each library runs a program of tests/bench/peers with settings of its examples, in a
separate environment with pinned versions. A library that cannot be installed here is left out, with the reason.

CleanRL and LeanRL are not among them: the former's package requires Python below 3.11, the latter has none.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.peer import Peer, measure_in_turn, print_left_out, run_peer
from tests.bench.table import print_table, thousands
from tests.bench.training import train

LIMIT = 120
"""Seconds of training after which a run counts as not solved."""


@dataclass(frozen=True)
class Result:
    solved: bool
    seconds: float
    steps: int
    startup: float


PEERS = (
    Peer("rejax 0.1.3, PPO", "rejax_cartpole.py", ("rejax==0.1.3", "gymnax==0.0.9", "jax==0.10.2")),
    Peer(
        "Stable-Baselines3 2.9.2, PPO",
        "sb3_cartpole.py",
        ("stable-baselines3==2.9.2", "gymnasium==1.4.0", "torch==2.13.0"),
    ),
    Peer("RLlib 2.60.0, IMPALA", "rllib_cartpole.py", ("ray[rllib]==2.60.0", "torch==2.13.0")),
    Peer("tianshou 2.0.1, PPO", "tianshou_cartpole.py", ("tianshou==2.0.1", "torch==2.13.0")),
    Peer(
        "Sample Factory 2.1.1, APPO", "sample_factory_cartpole.py", ("sample-factory==2.1.1", "torch==2.5.1")
    ),
)
HOGWILD = Peer("Hogwild in shared memory", "hogwild_a3c.py", ("gymnasium==1.4.0", "torch==2.13.0"))


def run(seeds: int) -> None:
    units = ["network.mlp.hiddenSizes=[64,64]", "stop.meanReturn={atLeast: 475, episodes: 100}"]
    ways = {
        "this project, IMPALA": _own("zoo/cartpole-impala", units),
        "this project, PPO": _own("cartpole-ppo", units),
        **{peer.name: _peer(peer) for peer in PEERS},
    }
    _compare("CartPole-v1, 64-64 units", ways, seeds)
    print()
    hogwild(seeds)


def hogwild(seeds: int) -> None:
    """Compares A3C with Hogwild in shared memory, its published form."""
    published = {"this project": _own("cartpole-a3c-published", []), HOGWILD.name: _peer(HOGWILD)}
    _compare("A3C as published, three samplers", published, seeds)


def _compare(title: str, ways: dict[str, Callable[[int], Result]], seeds: int) -> None:
    found, failures = measure_in_turn(ways, seeds)
    rows = [(name, *_cells(results)) for name, results in found.items()]
    print_table((title, "s to solve: median (all)", "steps to solve", "steps/s", "start-up s"), rows)
    print_left_out(failures)


def _cells(results: list[Result]) -> tuple[str, ...]:
    seconds = sorted(result.seconds if result.solved else float("inf") for result in results)
    steps = statistics.median(result.steps if result.solved else float("inf") for result in results)
    return (
        f"{_number(statistics.median(seconds))} ({', '.join(map(_number, seconds))})",
        "never" if steps == float("inf") else thousands(steps),
        thousands(statistics.median(result.steps / result.seconds for result in results)),
        f"{statistics.median(result.startup for result in results):.1f}",
    )


def _number(seconds: float) -> str:
    return f"over {LIMIT}" if seconds == float("inf") else f"{seconds:.2f}"


def _own(example: str, overrides: Sequence[str]) -> Callable[[int], Result]:
    def measure(seed: int) -> Result:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            limit = f"stop.seconds={LIMIT}"
            result = train(Path(f"examples/{example}.yaml"), seed, Path(folder), [*overrides, limit])
        seconds = result.seconds_with_first_data
        return Result(result.solved, seconds, result.steps, time.monotonic() - start - seconds)

    return measure


def _peer(peer: Peer) -> Callable[[int], Result]:
    return lambda seed: Result(**run_peer(peer, seed, LIMIT))
