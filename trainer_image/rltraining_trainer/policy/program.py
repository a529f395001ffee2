"""Policies as programs that run without this project, and without Python."""

from __future__ import annotations

import io
import warnings

import numpy as np
import torch
from torch import Tensor, nn

from rltraining_trainer.policy.description import Program, TensorDescription
from rltraining_trainer.policy.policy import Policy


class ProgramError(Exception):
    """The policy's network cannot be made into a program: one sentence."""


class PolicyProgram(nn.Module):
    """(observation ``[B, ...]``, \\*state) to (most likely action ``[B, ...]``, policy parameters ``[B, P]``, \\*state).

    The action is what the environment takes; the parameters are the network's output, such as logits or Q-values; the
    state, zeros at the beginning of an episode, is empty without an LSTM.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.network = policy.network
        self._actions = policy.actions

    def forward(self, observation: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        parameters, state = self.network.policy(observation, state)
        action = self._actions.environment_action(self._actions.mode(parameters))
        return (action, parameters, *state)


def to_torchscript(policy: Policy) -> bytes:
    """The policy as TorchScript: made in a few hundredths of a second, where torch.export first imports its compiler.

    Raises ProgramError.
    """
    module, example = PolicyProgram(policy).eval(), example_inputs(policy, 2)
    with torch.no_grad(), warnings.catch_warnings():
        # torch announces the end of TorchScript, and its tracer doubts what `_agree` then checks.
        warnings.simplefilter("ignore")
        try:
            traced = torch.jit.trace(module, example, check_trace=False)
            _agree(module, traced, policy)
            buffer = io.BytesIO()
            torch.jit.save(traced, buffer)
        except ProgramError:
            raise
        except Exception as error:
            raise ProgramError(_sentence(policy, "TorchScript", error)) from error
    return buffer.getvalue()


def to_exported_program(policy: Policy) -> bytes:
    """The policy as a torch.export program (``torch.export.load(file).module()``). Raises ProgramError."""
    from torch.export import Dim, export, save  # imports torch's compiler: 5 s that only this format costs

    module, example = PolicyProgram(policy).eval(), example_inputs(policy, 2)
    batch = {0: Dim("batch")}
    shapes = (batch, (batch,) * (len(example) - 1)) if len(example) > 1 else (batch,)
    with torch.no_grad():
        try:
            program = export(module, example, dynamic_shapes=shapes)
            _agree(module, program.module(), policy)
            buffer = io.BytesIO()
            save(program, buffer)
        except ProgramError:
            raise
        except Exception as error:
            raise ProgramError(_sentence(policy, "torch.export", error)) from error
    return buffer.getvalue()


def describe_program(policy: Policy, file: str) -> Program:
    """The program's file, inputs and outputs, for `policy.json`."""
    inputs = example_inputs(policy, 1)
    with torch.no_grad():
        outputs = PolicyProgram(policy)(*inputs)
    states = [f"state_{i}" for i in range(len(inputs) - 1)]
    return Program(
        file=file,
        inputs=_describe_tensors(("observation", *states), inputs),
        outputs=_describe_tensors(("action", "policy", *states), outputs),
    )


def example_inputs(policy: Policy, batch: int) -> tuple[Tensor, ...]:
    """Inputs of the program: ``batch`` random observations, and states at an episode's beginning."""
    observations = np.stack([np.asarray(policy.observation_space.sample()) for _ in range(batch)])
    return (torch.from_numpy(observations), *policy.network.initial_state(batch))


def _agree(module: PolicyProgram, program: nn.Module, policy: Policy) -> None:
    """Raises ProgramError unless both say the same of other observations, of another batch size and a later state."""
    inputs = example_inputs(policy, 3)
    for _ in range(2):
        expected, found = module(*inputs), program(*inputs)
        for ours, theirs in zip(expected, found, strict=True):
            if ours.shape != theirs.shape or not torch.allclose(ours.float(), theirs.float(), 1e-4, 1e-5):
                raise ProgramError(
                    f"spec.network.{policy.description.network.name}: as a program the network gives other results; "
                    "its forward must not branch on values"
                )
        inputs = (example_inputs(policy, 3)[0], *expected[2:])


def _describe_tensors(names: tuple[str, ...], tensors: tuple[Tensor, ...]) -> tuple[TensorDescription, ...]:
    return tuple(
        TensorDescription(
            name=name, shape=("batch", *tensor.shape[1:]), dtype=str(tensor.dtype).removeprefix("torch.")
        )
        for name, tensor in zip(names, tensors, strict=True)
    )


def _sentence(policy: Policy, form: str, error: Exception) -> str:
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"spec.network.{policy.description.network.name}: cannot be made into {form}: {first_line}"
