"""The trainer, and a stranger who would harm it: forks of one warm template, so that torch is imported once for both."""

from __future__ import annotations

import os
from pathlib import Path

import transport_members
from rltraining_trainer.roles import main as trainer
from rltraining_trainer.roles import record

LAST_WRITES = "TEST_LAST_WRITES_SECONDS"
"""Variable of the environment: for how long storage is tried again in the end, if not for minutes."""


def main(argv: list[str]) -> int:
    """`learner`, `sampler`, or `stranger URL TRACE SAID`: what the stranger says goes to a file, as torch too logs."""
    if argv[0] != "stranger":
        record.LAST_WRITES_SECONDS = float(os.environ.get(LAST_WRITES, record.LAST_WRITES_SECONDS))
        return trainer.main(argv)
    url, trace, said = argv[1:]
    with Path(said).open("w") as file:

        def say(line: str) -> None:
            print(line, file=file, flush=True)

        transport_members.caller(say, url, "another token")
        transport_members.stranger(say, url, trace)
    return 0
