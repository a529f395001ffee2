"""Records an episode of a policy as MP4, or as a GIF that is small enough for a page or a chat."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from rltraining_trainer.policy import Policy, film

from rltraining.whole_file import whole

VIDEO_SUFFIXES = (".mp4", ".gif")
GIF_SECONDS = 8.0
"""Length of a GIF: longer episodes are cut."""
GIF_WIDTH = 240
"""Largest width of a GIF in pixels."""
GIF_RATE = 30.0
"""Most frames per second of a GIF. Browsers slow down GIFs with much higher rates."""
GIF_COLORS = 64
GIF_PAUSE_MS = 1000
"""How long the last frame is shown before a GIF starts again."""


def record(
    policy: Policy, path: Path, *, seed: int = 0, deterministic: bool = True, longest: float = math.inf
) -> None:
    """Plays an episode, or its first `longest` seconds, and writes it. The suffix of the path is one of
    VIDEO_SUFFIXES. Raises TrainerError, OSError."""
    # Otherwise pygame and MuJoCo, which render many environments, would require a display.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if sys.platform == "linux" and not os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}:
        os.environ.setdefault("MUJOCO_GL", "egl")
    write = _write_mp4
    if path.suffix == ".gif":
        write, longest = _write_gif, min(longest, GIF_SECONDS)
    with film(policy, seed=seed, deterministic=deterministic) as taken, whole(path) as fresh:
        rate = taken.frames_per_second
        most = None if math.isinf(longest) else math.ceil(longest * rate)
        write(fresh, islice(taken.frames, most), rate)


def _write_mp4(path: Path, frames: Iterator[Any], rate: float) -> None:
    from imageio.v2 import get_writer

    # H.264 requires even sides. imageio's default of 16 would distort small pictures.
    video: Any = get_writer(path, format="FFMPEG", fps=rate, macro_block_size=2)
    with video:
        for frame in frames:
            video.append_data(frame)


def _write_gif(path: Path, frames: Iterator[Any], rate: float) -> None:
    from PIL import Image

    def shrunk(frame: Any) -> Image.Image:
        image = Image.fromarray(frame).convert("RGB")
        image.thumbnail((GIF_WIDTH, image.height))
        return image

    # Skip frames above the rate, and shrink the others.
    stride = math.ceil(rate / GIF_RATE)
    images = [shrunk(frame) for frame in islice(frames, 0, None, stride)]
    # Choose one palette for all frames from some of them, so that only what moves is stored again.
    some = images[:: math.ceil(len(images) / 8)]
    sheet = Image.new("RGB", (some[0].width, some[0].height * len(some)))
    for row, image in enumerate(some):
        sheet.paste(image, (0, row * image.height))
    palette = sheet.quantize(GIF_COLORS, Image.Quantize.FASTOCTREE)
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    # Write an endless loop.
    durations = [round(1000 * stride / rate)] * (len(images) - 1) + [GIF_PAUSE_MS]
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0)
