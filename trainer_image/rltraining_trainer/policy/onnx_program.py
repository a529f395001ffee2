"""Exports policies to ONNX, for runtimes without torch in any language."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from rltraining_api.extras import install_command
from torch import Tensor

from rltraining_trainer.policy.description import BATCH
from rltraining_trainer.policy.policy import Policy
from rltraining_trainer.policy.program import (
    ProgramError,
    check_agrees,
    exported_program,
    names,
    program_errors,
)


def to_onnx(policy: Policy) -> bytes:
    """Converts the torch.export program of the policy to an ONNX model with the same inputs and
    outputs.

    Raises ProgramError, also if the required packages are not installed.
    """
    _check_installed()
    program = exported_program(policy)
    input_names, output_names = names(policy)
    with torch.no_grad(), _quiet(), program_errors(policy, "ONNX"):
        made = torch.onnx.export(
            program, dynamo=True, input_names=input_names, output_names=output_names, verbose=False
        )
        assert made is not None
        observation: Any = made.model.graph.inputs[0]
        # torch gives the axis a number as its name.
        made.rename_axes({observation.shape[0]: BATCH})
        model = made.model_proto.SerializeToString()
        check_agrees(_Session(model), policy, "ONNX")
    return model


class _Session:
    """Runs an ONNX model with tensors, on one thread."""

    def __init__(self, model: bytes) -> None:
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._inputs = [tensor.name for tensor in self._session.get_inputs()]

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        given = {name: tensor.numpy() for name, tensor in zip(self._inputs, inputs, strict=True)}
        return tuple(torch.from_numpy(np.asarray(output)) for output in self._session.run(None, given))


def _check_installed() -> None:
    for package in ("onnxruntime", "onnxscript"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ProgramError(
                f"ONNX needs the package {package}, which is not installed: {install_command('onnx')}"
            ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses torch's warnings about deprecations and missing packages."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
