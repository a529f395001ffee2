"""PPO on HalfCheetah-v5 with the published settings for MuJoCo, beside Stable-Baselines3.

Gradients are computed at the learner or at the samplers. Steps/s include rollouts and updates.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from tests.bench.stable_baselines import compare
from tests.bench.training import train

MANIFEST = Path(__file__).with_name("halfcheetah-ppo.yaml")
SECONDS = 20


def run(seeds: int) -> None:
    own = {f"gradients: {place}": partial(_own, place) for place in ("Samplers", "Learner")}
    compare("sb3_ppo.py", SECONDS, own, seeds)


def _own(gradients: str) -> float:
    overrides = [f"algorithm.ppo.gradients={gradients}", f"stop.seconds={SECONDS}"]
    with tempfile.TemporaryDirectory() as folder:
        return train(MANIFEST, 0, Path(folder), overrides).steps_per_second
