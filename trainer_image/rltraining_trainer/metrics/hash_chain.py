"""``hashes.jsonl``: a chain of hashes of the parameters, which proves that two runs are equal."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

from torch import Tensor

from rltraining_trainer.metrics.progress_file import ProgressFile

HASHES = "hashes.jsonl"
_LOG = logging.getLogger(__name__)


class HashChain:
    """Hashes the parameters after each update together with the previous hash, and writes every n-th hash.

    Equal last lines of two files therefore prove that all parameters up to there were equal.

    Args:
        folder: where the file is written.
        every: n.
    """

    def __init__(self, folder: Path, every: int) -> None:
        self._path, self._every = folder / HASHES, every
        self._file = ProgressFile(self._path, first_step=0)
        self._hash = ""
        self._update = self._steps = 0
        self._is_written = True
        self._failed = False

    def add(self, parameters: Tensor, update: int, environment_steps: int) -> None:
        """Adds the parameters ``[N]`` after an update."""
        numbers = parameters.detach().cpu().numpy()
        self._hash = hashlib.sha256(self._hash.encode() + numbers.tobytes()).hexdigest()
        self._update, self._steps, self._is_written = update, environment_steps, False
        if update % self._every == 0:
            self._write()

    def finish(self) -> None:
        """Writes the newest hash and closes the file."""
        if not self._is_written:
            self._write()
        self._file.close()

    def get_state(self) -> dict[str, Any]:
        return {"hash": self._hash, "update": self._update, "steps": self._steps}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues after a state. Removes the lines of later updates."""
        self._hash, self._update, self._steps = state["hash"], state["update"], state["steps"]
        self._is_written = True
        self._file.close()
        self._file = ProgressFile(self._path, first_step=self._steps + 1)

    def _write(self) -> None:
        try:
            self._file.append(self._steps, {"update": self._update, "parametersHash": self._hash})
        except OSError as error:
            if not self._failed:
                _LOG.warning("%s cannot be written: %s", self._path, error)
            self._failed = True
        else:
            self._is_written = True
