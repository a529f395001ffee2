"""What the operator and the trainer promise each other: names, paths, exit codes and reports.

The operator writes a pod's environment and files, and reads its exit code, its termination message and, over
HTTP, the learner's report. Neither side imports the other; both import this.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from rltraining_api.base import ApiModel, refusal
from rltraining_api.curve import CURVE_POINTS_MAX, Curve
from rltraining_api.status import CheckpointStatus, Progress, ReplayStatus, StoredUri

TRAINER_CONTAINER = "trainer"
"""The container that is ours in every pod; a template's container of this name is merged with it."""

HTTP_PORT = 8080
"""Health, rendezvous and status of every member are served here (never RPC)."""

# Environment of a member. A local cluster rewrites values that are paths or `http://<pod>.<service>:<port>`.
ENV_JOB_FILE = "RLTRAINING_JOB_FILE"
"""Path of the resolved job: the JSON of an RLTrainingJob with all defaults filled in."""
ENV_TOKEN_FILE = "RLTRAINING_TOKEN_FILE"  # noqa: S105
"""Path of the job's token: one line, presented with every RPC and as HTTP bearer token."""
ENV_OUTPUT_DIR = "RLTRAINING_OUTPUT_DIR"
"""Where checkpoints/, tensorboard/ and policy/ go when no `checkpoint.uri` says otherwise."""
ENV_CODE_DIR = "RLTRAINING_CODE_DIR"
ENV_MANIFEST_DIR = "RLTRAINING_MANIFEST_DIR"
"""Where the user's modules lie, those of `spec.code` and, in a local run, those beside the manifest: the last places where
modules are looked for, so that none hides one of Python's or torch's own."""
ENV_TERMINATION_LOG = "RLTRAINING_TERMINATION_LOG"
"""Path to which a dying process writes its TerminationMessage."""
ENV_POD_NAME = "RLTRAINING_POD_NAME"
ENV_INDEX = "RLTRAINING_INDEX"
"""This member's index within its role, from 0."""
ENV_HTTP_PORT = "RLTRAINING_HTTP_PORT"
ENV_HTTP_HOST = "RLTRAINING_HTTP_HOST"
"""The address that the port is bound to; all of the pod's where it is not set, as in a cluster."""
ENV_LEARNERS = "RLTRAINING_LEARNERS"
"""Base URLs of all learners, comma-separated: `http://cartpole-learner-0.cartpole:8080`."""
ENV_REPLAYS = "RLTRAINING_REPLAYS"
"""Base URLs of all replay pods, as those of the learners; empty when the job has none."""

HEALTH_PATH = "/healthz"
"""200 as soon as the process serves."""
READY_PATH = "/readyz"
"""200 when it does its work: a learner or replay pod that can be dialled, a sampler attached to a
learner."""
RENDEZVOUS_PATH = "/v1/rendezvous"
"""Learner and replay pod, bearer token: how to reach its RPC endpoint."""
STATUS_PATH = "/v1/status"
"""Learner, bearer token: its LearnerReport."""
METRICS_PATH = "/metrics"
"""Of every member, for Prometheus: numbers, open to whoever reaches the port."""


class ExitCode(IntEnum):
    """How a member ends. 64 to 78 are permanent: restarting cannot help, the job fails with the message."""

    DONE = 0
    ERROR = 1
    """Anything unforeseen: restarted, and counted against `backoffLimit`."""
    FOREIGN_BYTES = 40
    """Strangers' bytes on the RPC port ended the process: restarted, and counted as a disruption."""
    BAD_CONFIGURATION = 64
    """The job cannot run as configured: unknown environment, a network that does not fit the observation."""
    USER_CODE = 65
    """User code could not be imported, or raised."""
    DIVERGED = 66
    """NaN or infinity in the loss."""
    STORAGE_REFUSED = 67
    """Storage would not take what a finished run leaves."""


PERMANENT_EXIT_CODES = range(64, 79)


REPORT_BYTES_MAX = 64 << 10
"""Bytes of a LearnerReport as JSON; the operator reads no more of an answer and refuses a longer one."""
REPORTED_TEXT_MAX = 512
"""Characters of each text of a LearnerReport."""
REPORTED_CONDITIONS_MAX, REPORTED_WARNINGS_MAX = 4, 8
"""Items of a LearnerReport."""
TERMINATION_MESSAGE_BYTES_MAX = 4096
"""Bytes of a termination message that Kubernetes keeps."""
_HEAD = 200
_GAP = " ... "


def shortened(text: str) -> str:
    """Returns `text`, or its beginning and its end if it is longer than REPORTED_TEXT_MAX: an error's first words say what
    failed, and the end of a traceback says why."""
    if len(text) <= REPORTED_TEXT_MAX:
        return text
    return text[:_HEAD] + _GAP + text[-(REPORTED_TEXT_MAX - _HEAD - len(_GAP)) :]


def _first(most: int) -> BeforeValidator:
    """Leaves out the items after the first `most`, unread: each could be an error to describe."""
    return BeforeValidator(lambda value: value[:most] if isinstance(value, list | tuple) else value)


def _not_too_many_points(value: Any) -> Any:
    """Refuses a long list as a whole, before each of its items is an error."""
    if isinstance(value, list | tuple) and len(value) > CURVE_POINTS_MAX:
        raise refusal(f"at most {CURVE_POINTS_MAX} points are allowed, found {len(value)}")
    return value


ReportedText = Annotated[str, AfterValidator(shortened)]
"""Cut by whoever makes the report and again by whoever reads it: a long text costs its middle, not the whole report."""


class Warning(ApiModel):
    """Something a user should know that does not stop the run. Becomes an Event, once."""

    reason: ReportedText
    """CamelCase, for machines: `CheckpointSkipped`."""
    message: ReportedText
    """One sentence, for people."""


class ReportedCondition(ApiModel):
    """A condition only the trainer can know; the operator lifts it into the job's status."""

    type: ReportedText
    status: Literal["True", "False", "Unknown"]
    reason: ReportedText
    message: ReportedText


class LearnerReport(ApiModel):
    """What a learner says of itself: at `GET /v1/status` and, at last, in its termination message.

    Everything in it has bounds, since user code runs in the learner: texts are cut, and conditions and warnings
    beyond their number are left out. With all that is allowed it is shorter than REPORT_BYTES_MAX.
    """

    state: Literal["Starting", "Waiting", "Training", "Finished"] = "Starting"
    """Waiting: ready, but no sampler has sent anything yet."""
    incarnation: ReportedText = ""
    progress: Progress = Field(default_factory=Progress)
    curve: Annotated[Curve, BeforeValidator(_not_too_many_points)] = ()
    """In a termination message, thinned to what there is room for."""
    replay: ReplayStatus | None = None
    """Of an algorithm that learns from a replay memory."""
    checkpoint: CheckpointStatus | None = None
    policy_uri: StoredUri | None = None
    """Where the final policy lies, once written."""
    stop_reason: ReportedText | None = None
    """One sentence: which `stop` rule ended the run."""
    conditions: Annotated[tuple[ReportedCondition, ...], _first(REPORTED_CONDITIONS_MAX)] = ()
    warnings: Annotated[tuple[Warning, ...], _first(REPORTED_WARNINGS_MAX)] = ()
    time: datetime | None = None


class TerminationMessage(ApiModel):
    """The last words of a process (at most TERMINATION_MESSAGE_BYTES_MAX as JSON)."""

    reason: str
    """CamelCase: `Completed`, `UserCodeError`, `BadConfiguration`, `Diverged`, `Error`."""
    message: str
    """One sentence, then, for user code, the end of its traceback."""
    report: LearnerReport | None = None
