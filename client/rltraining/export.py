"""`rltrain export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import typer

from rltraining.errors import ClientError, UsageError


class Format(StrEnum):
    """What a policy can be written as."""

    TORCH_EXPORT = "torch-export"
    TORCHSCRIPT = "torchscript"

    @property
    def suffix(self) -> str:
        return ".pt2" if self is Format.TORCH_EXPORT else ".pt"


def export(uri: str, form: Format, output: Path | None) -> None:
    """Write the program beside the policy, or to `output`. Raises ClientError."""
    from rltraining_trainer.policy import ProgramError, to_exported_program, to_torchscript

    from rltraining.policies import in_run, open_policy

    if output is None and "://" in uri:
        raise UsageError(f"{uri} is not on this machine: say where to with --output")
    path = output or Path(in_run(uri)) / f"policy{form.suffix}"
    policy = open_policy(uri)
    try:
        program = to_exported_program(policy) if form is Format.TORCH_EXPORT else to_torchscript(policy)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(program)
    except ProgramError as error:
        raise ClientError(str(error)) from None
    except OSError as error:
        raise ClientError(f"{path}: cannot be written: {error.strerror}") from None
    typer.echo(f"{path}: {len(program):,} bytes")
