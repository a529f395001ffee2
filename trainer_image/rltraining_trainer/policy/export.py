"""Writes the policy of a run to a directory that can be used without the run."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping
from pathlib import Path

import torch
from gymnasium import spaces
from rltraining_api.job import RLTrainingJob
from rltraining_api.status import Progress

from rltraining_trainer.checkpoint import snapshot
from rltraining_trainer.checkpoint.storage import open_storage
from rltraining_trainer.errors import Diverged, storage_problem
from rltraining_trainer.networks import PolicyNetwork
from rltraining_trainer.policy.description import PolicyDescription, describe
from rltraining_trainer.policy.policy import DESCRIPTION_FILE, WEIGHTS_FILE, Policy
from rltraining_trainer.policy.program import ProgramError, describe_program, to_torchscript

PROGRAM_FILE = "policy.ts"
_LOG = logging.getLogger(__name__)


class PolicyError(Exception):
    """The policy could not be written: one sentence."""


def export_policy(
    directory: str | Path,
    network: PolicyNetwork,
    job: RLTrainingJob,
    environment_spaces: tuple[spaces.Space, spaces.Space],
    progress: Progress,
) -> str:
    """Writes a policy atomically to ``directory`` (a path or an fsspec URI), replacing an existing
    one.

    The directory contains ``weights.pt`` (the network's state dict), ``policy.ts`` (TorchScript, if
    the network can be exported) and ``policy.json`` (``PolicyDescription``).

    Args:
        environment_spaces: Spaces of one observation and one action.

    Returns:
        The URI of the directory.

    Raises:
        PolicyError: Storage failed.
        Diverged: A parameter is NaN or infinite.
    """
    check_finite(network, "in the end")
    # Build the policy from the weights, so that a policy that cannot be loaded is detected now.
    weights = snapshot(network.state_dict())
    policy = Policy(describe(job, *environment_spaces, progress), weights, trust_code=True)
    return publish_policy(directory, policy_files(policy))


def policy_files(policy: Policy) -> dict[str, bytes]:
    """Returns the files of a policy's directory by name.

    The program is left out if the network cannot be exported as one.
    """
    description, files = policy.description, {WEIGHTS_FILE: saved_weights(policy.network.state_dict())}
    try:
        files[PROGRAM_FILE] = to_torchscript(policy)
        description = description.model_copy(update={"program": describe_program(policy, PROGRAM_FILE)})
    except ProgramError as error:
        _LOG.warning("the policy is written without %s: %s", PROGRAM_FILE, error)
    return {**files, DESCRIPTION_FILE: saved_description(description)}


def publish_policy(directory: str | Path, files: Mapping[str, bytes]) -> str:
    """Writes the files into ``directory`` atomically. Returns its URI. Raises PolicyError."""
    parent, _, name = _absolute(directory).rpartition("/")
    storage = open_storage(parent)
    try:
        with storage.publish(name) as open_new:
            for file, content in files.items():
                with open_new(file) as out:
                    out.write(content)
    except Exception as error:
        raise PolicyError(
            f"the policy could not be written to {directory}: {storage_problem(error)}"
        ) from error
    return storage.uri(name)


def check_finite(network: PolicyNetwork, when: str) -> None:
    """Raises Diverged if a parameter is NaN or infinite. ``when`` completes its message."""
    for name, parameter in network.named_parameters():
        if not torch.isfinite(parameter).all():
            raise Diverged(
                f"the policy's parameter {name} is NaN or infinite {when}: lower the learning rate, or clip "
                "gradients or rewards, and continue from the newest checkpoint"
            )


def saved_weights(weights: dict[str, torch.Tensor]) -> bytes:
    """Returns the content of WEIGHTS_FILE for a network's state dict."""
    buffer = io.BytesIO()
    torch.save(snapshot(weights), buffer)
    return buffer.getvalue()


def saved_description(description: PolicyDescription) -> bytes:
    """Returns the content of DESCRIPTION_FILE."""
    return description.model_dump_json(by_alias=True, indent=1).encode()


def _absolute(directory: str | Path) -> str:
    text = str(directory).rstrip("/")
    return text if "://" in text else str(Path(text).absolute())
