"""A container's first process, which ends when it is told to, also while torch loads.

The kernel passes over a SIGTERM that process 1 has no handler for: a pod deleted in its first seconds would stay for its
whole grace period.
"""

from __future__ import annotations

import os
import signal


def main() -> int:
    """Run one role, which puts its own handler in place, to its end. Returns a ``rltraining_api.contract.ExitCode``."""
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    from rltraining_trainer.roles.main import main as run

    return run()
