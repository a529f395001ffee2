"""`rltrain watch`: the live view of a job in a cluster."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from datetime import UTC, datetime

from rltraining.cluster.observer import ClusterObserver
from rltraining.cluster.output import NOT_KEPT, keeps_its_output
from rltraining.commands import INTERRUPTED, complain
from rltraining.display import Display, choose
from rltraining.errors import Exit
from rltraining.printable import say
from rltraining.sdk.client import RLTrainingClient
from rltraining.snapshot import Snapshot
from rltraining.summary import block, failure, results

PERIOD = 0.25
"""Seconds between two pictures."""
LAST_WORDS = 1.0
"""Seconds in which the Events of a job's end still come in."""


def watch(client: RLTrainingClient, name: str, *, plain: bool) -> int:
    """Show a job until it is over. Returns the exit code."""
    with (
        closing(ClusterObserver(client.jobs, name)) as observer,
        closing(choose(sys.stdout, plain=plain)) as display,
    ):
        try:
            last = _show(observer, display)
        except KeyboardInterrupt:
            display.close()
            say(f"the job goes on; look again with: rltrain watch {name}", err=True)
            return INTERRUPTED
    return tell_end(last)


def _show(observer: ClusterObserver, display: Display) -> Snapshot:
    """Until the job is over."""
    was_over = observer.is_over
    while True:
        display.show(observer.snapshot(datetime.now(UTC)))
        if observer.is_over:
            break
        time.sleep(PERIOD)
    if not was_over:
        time.sleep(LAST_WORDS)
    last = observer.snapshot(datetime.now(UTC))
    display.show(last)
    return last


def tell_end(last: Snapshot) -> int:
    """Say how it went. Returns the exit code."""
    status = last.status
    failed = status.phase == "Failed"
    if failed:
        complain(failure(status).rstrip())
    rows = [*results(last), *_places(last)]
    say("\n".join(["", *block(f"{status.phase}: {last.title}", rows)]))
    return Exit.FAILED if failed else Exit.OK


def _places(last: Snapshot) -> list[tuple[str, str]]:
    """Where the policy and the newest checkpoint are; of what went with the learner's pod, that it did."""
    status, checkpoint = last.status, last.status.checkpoint
    if keeps_its_output(last.job):
        best = status.evaluation.best_policy_uri if status.evaluation else None
        return [
            ("policy", status.policy_uri or ""),
            ("best", best or ""),
            ("checkpoint", checkpoint.uri if checkpoint else ""),
        ]
    gone = checkpoint is not None or status.policy_uri is not None
    return [("kept", f"nothing, it lay in the learner's pod: {NOT_KEPT}" if gone else "")]
