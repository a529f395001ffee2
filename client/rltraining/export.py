"""Implements `rltrain export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from rltraining.errors import ClientError, UsageError
from rltraining.printable import say
from rltraining.whole_file import check_stays_in, write_whole


class Format(StrEnum):
    """The file formats of an exported policy."""

    TORCH_EXPORT = "torch-export"
    TORCHSCRIPT = "torchscript"
    ONNX = "onnx"

    @property
    def suffix(self) -> str:
        return {Format.TORCH_EXPORT: ".pt2", Format.TORCHSCRIPT: ".pt", Format.ONNX: ".onnx"}[self]


def export(uri: str, form: Format, output: Path | None, *, trust_code: bool) -> None:
    """Writes the exported policy beside the policy, or to `output`. Raises ClientError."""
    from rltraining_trainer.policy import ProgramError, to_exported_program, to_onnx, to_torchscript

    from rltraining.policies import in_run, open_policy

    if output is None and "://" in uri:
        raise UsageError(f"{uri} is not on this machine: name the file to write with --output")
    path = output or Path(in_run(uri)) / f"policy{form.suffix}"
    if path.is_dir():
        raise UsageError(f"--output {path}: is a folder: name a file in it")
    if output is None:
        check_stays_in(Path(uri), path)
    policy = open_policy(uri, trust_code=trust_code, to_play=False)
    written_as = {
        Format.TORCH_EXPORT: to_exported_program,
        Format.TORCHSCRIPT: to_torchscript,
        Format.ONNX: to_onnx,
    }
    try:
        program = written_as[form](policy)
        write_whole(path, program)
    except ProgramError as error:
        raise ClientError(str(error)) from None
    except OSError as error:
        raise ClientError(f"{path}: cannot be written: {error.strerror}") from None
    say(f"{path}: {len(program):,} bytes")
