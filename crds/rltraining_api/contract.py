"""Defines the interface between the operator and the trainer: names, paths, exit codes and reports.

The operator writes a pod's environment and files, and reads its exit code, its termination message and, over
HTTP, the learner's report. Neither side imports the other; both import this module.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from rltraining_api.base import ApiModel, refusal
from rltraining_api.curve import CURVE_POINTS_MAX, Curve
from rltraining_api.evaluation import EvaluationStatus
from rltraining_api.fields import Preset, StoredUri
from rltraining_api.status import CheckpointStatus, Progress, ReplayStatus

TRAINER_CONTAINER = "trainer"
"""The name of the project's own container in every pod; a template's container of this name is merged with it."""

HTTP_PORT = 8080
"""Every member serves health, rendezvous and status on this port (never RPC)."""

TLS_PORT = 8443
"""Each member of an encrypted job accepts its peers and the operator on this port, over TLS (rltraining_api.tls)."""
PORT_BYTES = 2
"""Such a connection begins with the number of the port that it should reach in the pod, in network byte order."""

STACKS_SIGNAL = "SIGUSR1"
"""The signal on which a process of the trainer prints the Python stacks of its threads to its log."""

# Environment of a member. A local cluster rewrites values that are paths or `http://<pod>.<service>:<port>`.
ENV_JOB_FILE = "RLTRAINING_JOB_FILE"
"""Path of the resolved job: the JSON of an RLTrainingJob with all defaults filled in."""
ENV_TOKEN_FILE = "RLTRAINING_TOKEN_FILE"  # noqa: S105
"""Path of the job's token: one line, presented with every RPC and as HTTP bearer token."""
ENV_OUTPUT_DIR = "RLTRAINING_OUTPUT_DIR"
"""Folder for checkpoints/, tensorboard/ and policy/ if `checkpoint.uri` is not set."""
ENV_CODE_DIR = "RLTRAINING_CODE_DIR"
ENV_MANIFEST_DIR = "RLTRAINING_MANIFEST_DIR"
"""Folders of the user's modules: those of `spec.code` and, in a local run, those beside the manifest. They are searched
last, so that no user module hides one of Python's or torch's own."""
ENV_TERMINATION_LOG = "RLTRAINING_TERMINATION_LOG"
"""Path to which a dying process writes its TerminationMessage."""
ENV_POD_NAME = "RLTRAINING_POD_NAME"
ENV_INDEX = "RLTRAINING_INDEX"
"""This member's index within its role, from 0."""
ENV_HTTP_PORT = "RLTRAINING_HTTP_PORT"
ENV_HTTP_HOST = "RLTRAINING_HTTP_HOST"
"""The address that the port, and that for TLS, is bound to. If it is not set, as in a cluster, they are bound to all
addresses of the pod."""
ENV_TLS_PORT = "RLTRAINING_TLS_PORT"
"""The port of all members for TLS. Not set if the job is not encrypted."""
ENV_LEARNERS = "RLTRAINING_LEARNERS"
"""Base URLs of all learners, comma-separated: `http://cartpole-learner-0.cartpole:8080`."""
ENV_REPLAYS = "RLTRAINING_REPLAYS"
"""Base URLs of all replay pods, in the same form; empty if the job has none."""

HEALTH_PATH = "/healthz"
"""Returns 200 as soon as the process serves HTTP."""
READY_PATH = "/readyz"
"""Returns 200 when the member is operational: a learner or replay pod can be dialled, a sampler is attached to a
learner."""
RENDEZVOUS_PATH = "/v1/rendezvous"
"""Returns the address of the RPC endpoint. Served by learners and replay pods, with the bearer token."""
STATUS_PATH = "/v1/status"
"""Returns the LearnerReport. Served by learners, with the bearer token."""
METRICS_PATH = "/metrics"
"""Returns metrics for Prometheus. Served by every member, to every client that reaches the port."""


def port_prefix(port: int) -> bytes:
    """Returns the beginning of a connection to a port of an encrypted member."""
    return port.to_bytes(PORT_BYTES, "big")


class ExitCode(IntEnum):
    """The exit codes of a member. 64 to 78 are permanent: a restart cannot help, and the job fails with the message."""

    DONE = 0
    ERROR = 1
    """Any unexpected error. The member is restarted, which counts against `backoffLimit`."""
    FOREIGN_BYTES = 40
    """Foreign bytes on the RPC port ended the process. The member is restarted, which counts as a disruption."""
    BAD_CONFIGURATION = 64
    """The job cannot run as configured: unknown environment, a network that does not fit the observation."""
    USER_CODE = 65
    """User code could not be imported, or raised an exception."""
    DIVERGED = 66
    """NaN or infinity in the loss."""
    STORAGE_REFUSED = 67
    """The results of a finished run could not be stored."""


PERMANENT_EXIT_CODES = range(64, 79)


REPORT_BYTES_MAX = 64 << 10
"""Bytes of a LearnerReport as JSON. The operator stops reading an answer at this length and rejects a longer one."""
REPORTED_TEXT_MAX = 512
"""Characters of each text in a LearnerReport."""
REPORTED_CONDITIONS_MAX, REPORTED_WARNINGS_MAX = 4, 8
"""Conditions and warnings in a LearnerReport."""
TERMINATION_MESSAGE_BYTES_MAX = 4096
"""Bytes of a termination message that Kubernetes keeps."""
_HEAD = 200
_GAP = " ... "


def shortened(text: str) -> str:
    """Returns `text`, or its beginning and its end if it is longer than REPORTED_TEXT_MAX. An error begins with what
    failed, and a traceback ends with the cause."""
    if len(text) <= REPORTED_TEXT_MAX:
        return text
    return text[:_HEAD] + _GAP + text[-(REPORTED_TEXT_MAX - _HEAD - len(_GAP)) :]


def _first(most: int) -> BeforeValidator:
    """Drops the items after the first `most` before validation, since each of them could add an error."""
    return BeforeValidator(lambda value: value[:most] if isinstance(value, list | tuple) else value)


def _not_too_many_points(value: Any) -> Any:
    """Rejects a long list as a whole, so that not each of its items adds an error."""
    if isinstance(value, list | tuple) and len(value) > CURVE_POINTS_MAX:
        raise refusal(f"at most {CURVE_POINTS_MAX} points are allowed, found {len(value)}")
    return value


ReportedText = Annotated[str, AfterValidator(shortened)]
"""Text that the learner shortens, and the operator again: a long text loses its middle, and the report stays valid."""


class Warning(ApiModel):
    """A problem that does not stop the run. The operator writes one Event for it."""

    reason: ReportedText
    """CamelCase, for machines: `CheckpointSkipped`."""
    message: ReportedText
    """One sentence, for people."""


class ReportedCondition(ApiModel):
    """A condition that only the trainer can observe; the operator copies it into the job's status."""

    type: ReportedText
    status: Literal["True", "False", "Unknown"]
    reason: ReportedText
    message: ReportedText


class LearnerReport(ApiModel):
    """The status of a learner, sent at `GET /v1/status` and finally in its termination message.

    All its parts are bounded, since user code runs in the learner: texts are cut, and excess conditions and warnings
    are dropped. With every part at its bound it is shorter than REPORT_BYTES_MAX.
    """

    state: Literal["Starting", "Waiting", "Training", "Finished"] = "Starting"
    """Waiting: ready, but no sampler has sent anything yet."""
    preset: Preset | None = None
    """The preset that gave the job's defaults."""
    incarnation: ReportedText = ""
    progress: Progress = Field(default_factory=Progress)
    replay: ReplayStatus | None = None
    """Set for an algorithm that learns from a replay memory."""
    evaluation: EvaluationStatus | None = None
    """Set for a job with `spec.evaluation`."""
    checkpoint: CheckpointStatus | None = None
    policy_uri: StoredUri | None = None
    """Where the final policy is stored, once written."""
    stop_reason: ReportedText | None = None
    """One sentence that names the `stop` rule that ended the run."""
    conditions: Annotated[tuple[ReportedCondition, ...], _first(REPORTED_CONDITIONS_MAX)] = ()
    warnings: Annotated[tuple[Warning, ...], _first(REPORTED_WARNINGS_MAX)] = ()
    time: AwareDatetime | None = None
    curve: Annotated[Curve, BeforeValidator(_not_too_many_points)] = ()
    """In a termination message, reduced to the points that fit. The last field, because the kubelet cuts the messages of
    a pod with more than three containers."""


class TerminationMessage(ApiModel):
    """The termination message of a process (at most TERMINATION_MESSAGE_BYTES_MAX as JSON)."""

    reason: str
    """CamelCase: `Completed`, `UserCodeError`, `BadConfiguration`, `Diverged`, `Error`."""
    message: str
    """One sentence, followed by the end of the traceback if user code failed."""
    report: LearnerReport | None = None
