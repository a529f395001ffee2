"""A tracker's process with a fake package: it writes points to a file, and fails on request of files in its folder."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from rltraining_trainer.tracking import backends, process
from rltraining_trainer.tracking.messages import End, Opening, Point

LOGGED, ENDED = "logged", "ended"
REFUSE, HANG, DIE = "refuse", "hang", "die"
"""Files that make the package raise, hang, or end its process."""


class Recording:
    def __init__(self, opening: Opening) -> None:
        self._folder = Path(opening.folder)
        if (self._folder / REFUSE).exists():
            raise ConnectionError("the server is down.\nMore lines")

    def log(self, points: Sequence[Point]) -> None:
        if (self._folder / DIE).exists():
            (self._folder / DIE).unlink()
            os._exit(3)
        if (self._folder / HANG).exists():
            (self._folder / HANG).write_text("hangs")
            time.sleep(600)
        with (self._folder / LOGGED).open("a") as file:
            file.writelines(f"{point.step}\n" for point in points)

    def end(self, end: End) -> None:
        (self._folder / ENDED).write_text(end)


if __name__ == "__main__":
    backends.BACKENDS["wandb"] = Recording  # type: ignore[index]
    process.main()
