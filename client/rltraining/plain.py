"""Formats a run as lines of text for logs, pipes and CI."""

from __future__ import annotations

from typing import TextIO

from rltraining.printable import printable
from rltraining.snapshot import EventRow, Snapshot
from rltraining.units import clock, count, decimal, plural, score, short

ENDS = ("FailureTarget", "Failed")
"""Conditions of a job that fails: first its processes are ended, then it has failed."""


def print_line(line: str, out: TextIO) -> None:
    """Prints a line. Ignores errors of writing, since a full disk or a lost terminal must not stop
    the training. Raises BrokenPipeError, which ends a command if its output is not read any more,
    as after `| head`."""
    # A character that the output cannot encode must not stop the training either: escape it.
    encoding = getattr(out, "encoding", None) or "utf-8"
    text = printable(line).encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(text, file=out, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        pass


def progress_line(snapshot: Snapshot) -> str:
    """Formats progress, such as `00:03  Running   412,160 steps  251k/s  return 213.4  lag 2.0
    updates 201`."""
    progress = snapshot.status.progress
    parts = [f"{clock(snapshot.elapsed)}  {snapshot.phase:<9}"]
    if not progress.environment_steps:
        if final_error(snapshot):
            return f"{parts[0]} ending the other processes"
        awaited = "pods" if snapshot.phase == "Pending" else "the first steps"
        return f"{parts[0]} {snapshot.message or f'waiting for {awaited}'}"
    parts.append(f"{count(progress.environment_steps):>9} steps")
    if progress.steps_per_second is not None:
        parts.append(f"{short(progress.steps_per_second):>5}/s")
    parts.append(f"return {score(progress.mean_return)}")
    evaluation = snapshot.status.evaluation
    if evaluation is not None and evaluation.last is not None:
        parts.append(f"evaluation {score(evaluation.last.mean_return)}")
    parts.append(f"lag {decimal(progress.policy_lag)}")
    parts.append(f"updates {count(progress.updates)}")
    if progress.percent is not None:
        parts.append(f"{progress.percent:.0f}%")
    if snapshot.status.restarts:
        parts.append(plural(snapshot.status.restarts, "restart"))
    return "  ".join(parts)


def event_line(event: EventRow) -> str:
    """Formats an event, such as `00:03  Warning   Restarted: cartpole-sampler-0 …`."""
    label = "Warning" if event.type == "Warning" else "Event"
    return f"{clock(event.seconds)}  {label:<9} {event_text(event)}"


def event_text(event: EventRow) -> str:
    """Formats an event on one line. The end of the run prints its traceback."""
    times = f" ({event.count} times)" if event.count > 1 else ""
    return f"{event.reason}: {event.message.splitlines()[0] if event.message else ''}{times}"


def phase_line(snapshot: Snapshot) -> str:
    """Formats a phase, such as `00:01  Running   all pods are ready`. The command prints the error
    of a failed job after its last line."""
    message = "" if final_error(snapshot) else snapshot.message
    return f"{clock(snapshot.elapsed)}  {snapshot.phase:<9} {message}".rstrip()


def final_error(snapshot: Snapshot) -> str:
    """Returns the error that ends the job, without its traceback. Empty if there is none."""
    ends = (c for c in snapshot.status.conditions if c.type in ENDS and c.status == "True")
    return next((c.message.partition("\n")[0] for c in ends), "")


def repeats_error(event: EventRow, error: str) -> bool:
    """Returns whether an event repeats the error, with or without a pod's name."""
    said = event.message.partition("\n")[0]
    _, _, reason = error.partition(": ")
    return bool(said and said in error) or bool(reason and reason in said)
