"""Implements `rltrain export`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rltraining.errors import ClientError, UsageError
from rltraining.printable import say
from rltraining.whole_file import check_stays_in, write_whole

Format = Literal["torch-export", "torchscript", "onnx"]
SUFFIXES = {"torch-export": ".pt2", "torchscript": ".pt", "onnx": ".onnx"}


def export(uri: str, form: Format, output: Path | None, *, trust_code: bool) -> None:
    """Writes the exported policy beside the policy, or to `output`. Raises ClientError."""
    from rltraining_trainer.policy import ProgramError, to_exported_program, to_onnx, to_torchscript

    from rltraining.policies import in_run, open_policy

    if output is None and "://" in uri:
        raise UsageError(f"{uri} is not on this machine: name the file to write with --output")
    path = output or Path(in_run(uri)) / f"policy{SUFFIXES[form]}"
    if path.is_dir():
        raise UsageError(f"--output {path}: is a folder: name a file in it")
    if output is None:
        check_stays_in(Path(uri), path)
    policy = open_policy(uri, trust_code=trust_code, to_play=False)
    written_as = {
        "torch-export": to_exported_program,
        "torchscript": to_torchscript,
        "onnx": to_onnx,
    }
    try:
        program = written_as[form](policy)
        write_whole(path, program)
    except ProgramError as error:
        raise ClientError(str(error)) from None
    except OSError as error:
        raise ClientError(f"{path}: cannot be written: {error.strerror}") from None
    say(f"{path}: {len(program):,} bytes")
