"""``python -m rltraining_trainer.tracking.process FD PARENT``: logs points with a tracker's package.

Reads an `Opening` and batches from the socket ``FD``. The process ends with its parent, the learner
with process id ``PARENT``.
"""

from __future__ import annotations

import logging
import os
import sys

from rltraining_trainer.errors import one_line
from rltraining_trainer.process import attach_to_learner, prepare_process
from rltraining_trainer.tracking.backends import BACKENDS, Backend, CredentialsRefused
from rltraining_trainer.tracking.messages import Answer, Batch, Opening


def main() -> None:
    """Serves batches until the run or the learner ends."""
    channel = attach_to_learner()
    prepare_process("tracking")
    logging.disable(logging.WARNING)  # warnings of packages: the learner logs a failure once
    with channel.makefile("rb") as lines:
        opening = Opening.model_validate_json(lines.readline())
        tracked = _Tracked(opening)
        for line in lines:
            answer = tracked.log(Batch.model_validate_json(line))
            channel.sendall(answer.model_dump_json().encode() + b"\n")
    sys.stdout.flush()
    # Skip the exit handlers of the packages, which may block.
    os._exit(0)


class _Tracked:
    """The tracked run, which is opened with its first points."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._backend: Backend | None = None

    def log(self, batch: Batch) -> Answer:
        try:
            if self._backend is None:
                self._backend = BACKENDS[self._opening.kind](self._opening)
            self._backend.log(batch.points)
            if batch.end is not None:
                self._backend.end(batch.end)
        except CredentialsRefused as error:
            return Answer(failure=str(error))
        except Exception as error:  # an error of a package, a server or the network
            return Answer(failure=one_line(error))
        return Answer()


if __name__ == "__main__":
    main()
