"""The configuration that a process receives at its start: the job, its role and index, and paths."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError
from rltraining_api import contract
from rltraining_api.explain import explain
from rltraining_api.job import RLTrainingJob

from rltraining_trainer.errors import BadConfiguration


@dataclass(frozen=True)
class Context:
    """The resolved job and this process's identity. ``stopping`` is set when the process should end (SIGTERM)."""

    job: RLTrainingJob
    job_file: Path
    token: str
    pod: str
    index: int
    http_port: int
    learners: tuple[str, ...]
    """Base URLs of all learners."""
    replays: tuple[str, ...]
    """Base URLs of the pods that keep the replay. Empty if samplers or the first learner keep it."""
    output: Path
    """Folder of tensorboard/ and progress.jsonl, and of the contents of `storage` unless the job specifies a URI."""
    http_host: str = ""
    """The address to which the HTTP port is bound. Empty: all addresses of this machine."""
    tls_port: int | None = None
    """The port of all members for TLS. None: the job is not encrypted."""
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def storage(self) -> str:
        """Location of checkpoints/ and policy/. Jobs that share a `checkpoint.uri` have separate folders."""
        uri = self.job.spec.checkpoint.uri
        return f"{uri.rstrip('/')}/{self.job.metadata.name}" if uri else str(self.output)


def read_context(environment: Mapping[str, str] | None = None) -> Context:
    """Reads the context from the environment variables of ``rltraining_api.contract``.

    Raises:
        BadConfiguration: a variable is missing or wrong, or a file cannot be read.
    """
    variables = os.environ if environment is None else environment

    def get(name: str) -> str:
        value = variables.get(name)
        if not value:
            raise BadConfiguration(
                f"the environment variable {name} is not set; the operator sets it in every pod"
            )
        return value

    def get_number(name: str) -> int:
        value = get(name)
        if not value.isdecimal():
            raise BadConfiguration(f"the environment variable {name} must be a whole number, got {value!r}")
        return int(value)

    job_file, token_file = Path(get(contract.ENV_JOB_FILE)), Path(get(contract.ENV_TOKEN_FILE))
    token = _read(token_file).strip()
    if not token:  # an empty token would admit every client
        raise BadConfiguration(f"{token_file} is empty: it must hold the job's token")
    return Context(
        job=read_job(job_file),
        job_file=job_file,
        token=token,
        pod=get(contract.ENV_POD_NAME),
        index=get_number(contract.ENV_INDEX),
        http_port=get_number(contract.ENV_HTTP_PORT),
        learners=tuple(get(contract.ENV_LEARNERS).split(",")),
        replays=tuple(filter(None, variables.get(contract.ENV_REPLAYS, "").split(","))),
        output=Path(get(contract.ENV_OUTPUT_DIR)),
        http_host=variables.get(contract.ENV_HTTP_HOST, ""),
        tls_port=get_number(contract.ENV_TLS_PORT) if variables.get(contract.ENV_TLS_PORT) else None,
    )


def read_job(path: Path) -> RLTrainingJob:
    """Returns the resolved job. Ignores unknown fields, which a newer operator may have written."""
    try:
        return RLTrainingJob.model_validate_json(_read(path), extra="ignore")
    except ValidationError as error:
        problems = "; ".join(explain(error, RLTrainingJob))
        raise BadConfiguration(f"{path}: this trainer cannot read the job: {problems}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadConfiguration(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadConfiguration(f"{path} cannot be read: it is not UTF-8 text") from error
