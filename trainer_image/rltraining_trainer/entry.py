"""The first process of a container, which handles SIGTERM even while torch is imported.

The kernel ignores a SIGTERM for which process 1 has no handler. A pod that is deleted in its first
seconds would therefore stay for its grace period.
"""

from __future__ import annotations

import os
import signal

from rltraining_api.contract import ENV_TLS_PORT

from rltraining_trainer.tunnel.preload import preload


def main() -> int:
    """Runs one role, which replaces the handler. Returns a ``rltraining_api.contract.ExitCode``."""
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    if os.environ.get(ENV_TLS_PORT):
        preload()
    from rltraining_trainer.roles.main import main as run

    return run()
