"""What every process of the trainer does before it runs user code."""

from __future__ import annotations

import logging
import os
import sys

from rltraining_api.contract import ENV_CODE_DIR, ENV_MANIFEST_DIR


def prepare_process(log_name: str) -> None:
    """Logs to standard output and makes the user's modules importable.

    Args:
        log_name: Source of a message in the log. ``%(name)s`` is replaced by the logger's name.
    """
    logging.basicConfig(
        stream=sys.stdout,
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s {log_name}: %(message)s",
        force=True,
    )
    sys.path += filter(None, map(os.environ.get, (ENV_CODE_DIR, ENV_MANIFEST_DIR)))
