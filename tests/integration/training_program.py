"""The trainer, and a stranger who would harm it: forks of one warm template, so that torch is imported once for both."""

from __future__ import annotations

import transport_members
from rltraining_trainer.roles import main as trainer


def main(argv: list[str]) -> int:
    """`learner`, `sampler`, or `stranger URL TRACE`."""
    if argv[0] != "stranger":
        return trainer.main(argv)
    url, trace = argv[1:]
    transport_members.caller(_say, url, "another token")
    transport_members.stranger(_say, url, trace)
    return 0


def _say(line: str) -> None:
    print(line, flush=True)
