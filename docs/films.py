"""Films of learnt policies in docs/images/, part of ``make pictures``: trains rows of the zoo, and films an episode of each
as ``rltrain evaluate RUN --video FILE.gif`` does.

python docs/films.py [NAME...]     such as zoo/cartpole-ppo; all if none is named

The runs are kept in runs/films/. A film of a row that has a run there needs no training.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from rltraining.policies import open_policy
from rltraining.video import GIF_SECONDS, record

HERE = Path(__file__).parent
RUNS = HERE.parent / "runs" / "films"
RLTRAIN = Path(sys.executable).with_name("rltrain")


class Film(NamedTuple):
    steps: int
    """Environment steps of training. The zoo's runs are longer where a good film does not need their length."""
    seconds: float = GIF_SECONDS
    """Length, so that the film has less than 400 kB."""


FILMS = {
    "zoo/cartpole-ppo": Film(steps=100_000),
    "zoo/acrobot-ppo": Film(steps=200_000),
    "zoo/mountaincarcontinuous-ppo": Film(steps=100_000),
    "pendulum-sac": Film(steps=20_000),
    "zoo/lunarlander-ppo": Film(steps=300_000),
    "zoo/halfcheetah-ppo": Film(steps=1_000_000, seconds=2.5),  # the whole picture moves
    "zoo/minigrid-doorkey-ppo": Film(steps=100_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", choices=[[], *FILMS], metavar="NAME")
    for name in parser.parse_args().name or FILMS:
        run = RUNS / name
        if not (run / "policy").exists():
            train(name, run)
        path = HERE / "images" / f"film-{Path(name).name}.gif"
        record(open_policy(str(run), trust_code=False), path, longest=FILMS[name].seconds)
        print(f"{path.relative_to(HERE.parent)}: {path.stat().st_size / 1000:.0f} kB", flush=True)


def train(name: str, run: Path) -> None:
    steps = f"stop.environmentSteps={FILMS[name].steps}"
    command = [RLTRAIN, "run", name, "--set", steps, "--workdir", run, "--plain"]
    print(*command[1:], flush=True)
    subprocess.run(command, check=True)  # noqa: S603 - our own program and arguments


if __name__ == "__main__":
    main()
