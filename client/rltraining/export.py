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
    ONNX = "onnx"

    @property
    def suffix(self) -> str:
        return {Format.TORCH_EXPORT: ".pt2", Format.TORCHSCRIPT: ".pt", Format.ONNX: ".onnx"}[self]


def export(uri: str, form: Format, output: Path | None) -> None:
    """Write the program beside the policy, or to `output`. Raises ClientError."""
    from rltraining_trainer.policy import ProgramError, to_exported_program, to_onnx, to_torchscript

    from rltraining.policies import in_run, open_policy

    if output is None and "://" in uri:
        raise UsageError(f"{uri} is not on this machine: say where to with --output")
    path = output or Path(in_run(uri)) / f"policy{form.suffix}"
    policy = open_policy(uri)
    written_as = {
        Format.TORCH_EXPORT: to_exported_program,
        Format.TORCHSCRIPT: to_torchscript,
        Format.ONNX: to_onnx,
    }
    try:
        program = written_as[form](policy)
        _write(path, program)
    except ProgramError as error:
        raise ClientError(str(error)) from None
    except OSError as error:
        raise ClientError(f"{path}: cannot be written: {error.strerror}") from None
    typer.echo(f"{path}: {len(program):,} bytes")


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: what was there before stays when this fails. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
