"""Records an episode of a policy as MP4."""

from __future__ import annotations

import math
import os
from itertools import islice
from pathlib import Path
from typing import Any

from rltraining_trainer.policy import Policy, film

from rltraining.whole_file import whole


def record(
    policy: Policy, path: Path, *, seed: int = 0, deterministic: bool = True, longest: float = math.inf
) -> None:
    """Plays an episode, or its first `longest` seconds, and writes it. Raises TrainerError,
    OSError."""
    from imageio.v2 import get_writer

    # Otherwise pygame, which renders many environments, would require a display.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    with film(policy, seed=seed, deterministic=deterministic) as taken, whole(path) as fresh:
        rate = taken.frames_per_second
        # H.264 requires even sides. imageio's default of 16 would distort small pictures.
        video: Any = get_writer(fresh, format="FFMPEG", fps=rate, macro_block_size=2)
        with video:
            for frame in islice(taken.frames, None if math.isinf(longest) else math.ceil(longest * rate)):
                video.append_data(frame)
