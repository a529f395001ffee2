"""Implements `rltrain watch`, the live view of a job in a cluster."""

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
"""Seconds between two updates of the view."""
LAST_EVENTS_SECONDS = 1.0
"""Seconds to wait for the Events of a job's end."""


def watch(client: RLTrainingClient, name: str, *, plain: bool) -> int:
    """Shows a job until it is over. Returns the exit code."""
    with (
        closing(ClusterObserver(client.jobs, name)) as observer,
        closing(choose(sys.stdout, plain=plain)) as display,
    ):
        try:
            last = _show(observer, display)
        except KeyboardInterrupt:
            display.close()
            say(f"The job continues; look again with: rltrain watch {name}", err=True)
            return INTERRUPTED
    return tell_end(last)


def _show(observer: ClusterObserver, display: Display) -> Snapshot:
    """Shows snapshots until the job is over. Returns the last one."""
    was_over = observer.is_over
    while True:
        display.show(observer.snapshot(datetime.now(UTC)))
        if observer.is_over:
            break
        time.sleep(PERIOD)
    if not was_over:
        time.sleep(LAST_EVENTS_SECONDS)
    last = observer.snapshot(datetime.now(UTC))
    display.show(last)
    return last


def tell_end(last: Snapshot) -> int:
    """Prints the result. Returns the exit code."""
    status = last.status
    failed = status.phase == "Failed"
    if failed:
        complain(failure(status).rstrip())
    rows = [*results(last), *_places(last)]
    say("\n".join(["", *block(f"{status.phase}: {last.title}", rows)]))
    return Exit.FAILED if failed else Exit.OK


def _places(last: Snapshot) -> list[tuple[str, str]]:
    """Returns the locations of the policy and the newest checkpoint, or a note that they were
    deleted with the learner's pod."""
    status, checkpoint = last.status, last.status.checkpoint
    if keeps_its_output(last.job):
        best = status.evaluation.best_policy_uri if status.evaluation else None
        return [
            ("policy", status.policy_uri or ""),
            ("best", best or ""),
            ("checkpoint", checkpoint.uri if checkpoint else ""),
        ]
    gone = checkpoint is not None or status.policy_uri is not None
    return [
        ("kept", f"nothing: the output was stored in the learner's pod, because {NOT_KEPT}" if gone else "")
    ]
