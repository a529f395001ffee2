"""Finds out how members ended, from exit codes and last reports. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from rltraining_api.contract import TRAINER_CONTAINER, LearnerReport

from rltraining_operator.failures.pod_failure import PodFailure, parse_termination_message
from rltraining_operator.observe.observed import Observed, Pod
from rltraining_operator.settings import REMAKE_SECONDS

_PAUSE = timedelta(seconds=REMAKE_SECONDS)


def termination_report(pod: Pod) -> LearnerReport | None:
    """Returns the report in the termination message of a trainer that does not run now, or None."""
    container = pod.container(TRAINER_CONTAINER)
    if container is None or container.running:
        return None
    end = container.terminated or container.last_terminated
    message = parse_termination_message(end.message) if end else None
    return message.report if message else None


def known_steps(observed: Observed) -> int:
    """Returns the number of environment steps so far. The report of the first learner takes
    precedence over the status."""
    steps = observed.status.progress.environment_steps
    report = report_of_first_learner(observed)
    return max(steps, report.progress.environment_steps) if report and report.state != "Starting" else steps


def report_of_first_learner(observed: Observed) -> LearnerReport | None:
    """Returns the current or last report of the first learner, or None."""
    pod = observed.first_learner
    return observed.report or (termination_report(pod) if pod else None)


def exited_without_report(pod: Pod, observed: Observed, now: datetime) -> PodFailure | None:
    """Returns the failure of a trainer that exited with code 0 and left no termination message, or
    None. Each trainer writes a message at the end of training, so user code or another program in
    the image has ended this process. Returns None if training is known to be over, since a full
    disk may have lost the message.

    Samplers and replay pods may exit before the end of training is known. Their exit is a failure
    only when they are due to be replaced.
    """
    container = pod.container(TRAINER_CONTAINER)
    end = container.terminated if container else None
    if end is None or end.exit_code != 0 or parse_termination_message(end.message) is not None:
        return None
    report = report_of_first_learner(observed)
    known = observed.status.policy_uri is not None or (report is not None and report.stop_reason is not None)
    early = pod.role != "learner" and (end.finished_at is None or now < end.finished_at + _PAUSE)
    if known or early or pod.deleting:
        return None
    return replace(PodFailure.of_container(pod, end), note="it ended before training was over")


def is_done(pod: Pod, observed: Observed, now: datetime) -> bool:
    """Returns whether a member has exited because training is over, and not because it was asked to
    exit."""
    has_ended = pod.succeeded or pod.ended_well
    if not has_ended or pod.deleting or exited_without_report(pod, observed, now) is not None:
        return False
    report = termination_report(pod)
    return report is None or report.state == "Finished"
