"""``python -m tests.bench [NAME...]``: measure, and print tables with the limits beside."""

from __future__ import annotations

import argparse
import os
import platform

from tests.bench import (
    algorithms,
    apex,
    atari,
    atari_peers,
    chaos,
    distributed_replay,
    encryption,
    environments,
    goodput,
    gradients,
    impala,
    lag,
    libraries,
    limits,
    operator,
    plan,
    ppo,
    replay,
    replay_library,
    reproducible,
    sac,
    samplers,
    tasks,
    transport,
)

BENCHES = {
    "limits": limits.run,
    "transport": transport.run,
    "encryption": encryption.run,
    "algorithms": algorithms.run,
    "gradients": gradients.run,
    "impala": impala.run,
    "samplers": samplers.run,
    "lag": lag.run,
    "plan": plan.run,
    "ppo": ppo.run,
    "sac": sac.run,
    "replay": replay.run,
    "replay-library": replay_library.run,
    "reproducible": reproducible.run,
    "apex": apex.run,
    "atari": atari.run,
    "atari-peers": atari_peers.run,
    "environments": environments.run,
    "distributed-replay": distributed_replay.run,
    "tasks": tasks.run,
    "peers": libraries.run,
    "hogwild": libraries.hogwild,
    "goodput": goodput.run,
    "chaos": chaos.run,
    "operator": operator.run,  # needs a cluster: see the module's docstring
}

HOURS = {"tasks", "lag", "plan", "peers", "atari-peers", "chaos"}
"""Benchmarks that take long, and run only when named."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "name",
        nargs="*",
        choices=[[], *BENCHES],
        help="which tables; if none is named, all that take minutes",
    )
    parser.add_argument("--seeds", type=int, default=5, help="runs of what learns (default 5)")
    arguments = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}, Python {platform.python_version()}"
    )
    for name in arguments.name or [name for name in BENCHES if name not in HOURS]:
        print(f"\n## {name}\n")
        BENCHES[name](arguments.seeds)


if __name__ == "__main__":
    main()
