"""Configures logging with one line per record, as text for people or as JSON for collectors."""

from __future__ import annotations

import logging

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from rltraining_operator.kube.config import LogConfig

NOISY = ("kopf", "aiohttp", "asyncio", "urllib3")
"""Libraries that log only warnings and errors, except at level `debug`."""
KOPF_ATTRIBUTES = ("settings", "k8s_skip")
"""Attributes that kopf adds to its records. Its settings cannot be serialised to JSON, and the
record would be lost."""


def set_up_logging(config: LogConfig) -> None:
    """Logs to standard error."""
    handler = logging.StreamHandler()
    if config.format == "json":
        fields = "{asctime}{levelname}{name}{message}"
        handler.setFormatter(
            JsonFormatter(
                fields,
                style="{",
                rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
                datefmt="%Y-%m-%dT%H:%M:%S%z",
                reserved_attrs=[*RESERVED_ATTRS, *KOPF_ATTRIBUTES],
            )
        )
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)
    if config.level != "debug":
        for name in NOISY:
            logging.getLogger(name).setLevel(logging.WARNING)
