"""Exports policies as programs that run without this project and without Python."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from rltraining_trainer.environments.nested_spaces import LARGE
from rltraining_trainer.environments.packed_space import PackedSpace, Part
from rltraining_trainer.errors import TrainerError, one_line
from rltraining_trainer.networks.factored import Factored
from rltraining_trainer.policy.description import BATCH, Program, TensorDescription
from rltraining_trainer.policy.policy import Policy

if TYPE_CHECKING:
    from torch.export import ExportedProgram

BATCHES = (1, 3)
"""Batch sizes for checking a program. The example for tracing has another size."""


class ProgramError(Exception):
    """The policy's network cannot be exported: one sentence."""


class PolicyProgram(nn.Module):
    """Maps (\\*observation, \\*state) to (\\*most likely action, policy parameters ``[B, P]``,
    \\*state).

    Each part of a composite observation or action is a tensor ``[B, ...]``, and so is a mask of
    valid actions. The action is in the format of the environment. The parameters are the network's
    output, such as logits or Q-values. The state is 0 at the start of an episode, and empty without
    an LSTM.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        # A copy without gradients, so that users can convert the outputs to numpy.
        self.network = copy.deepcopy(policy.network).requires_grad_(False)
        self._actions = policy.actions
        self._parts = len(_parts(policy))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        observation: Any = (
            inputs[0] if not self._parts else [_as_kept(part) for part in inputs[: self._parts]]
        )
        parameters, state = self.network.policy(observation, inputs[self._parts or 1 :])
        mode = self._actions.mode(parameters)
        if isinstance(self._actions, Factored):
            return (*self._actions.environment_parts(mode), parameters, *state)
        return (self._actions.environment_action(mode), parameters, *state)


def _parts(policy: Policy) -> tuple[Part, ...]:
    """Returns the parts of a composite observation, or none for a single array."""
    space = policy.network_space
    return space.parts if isinstance(space, PackedSpace) else ()


def _as_kept(part: Tensor) -> Tensor:
    """Converts a part to the type that unpacking yields: uint8 or float32."""
    return part if part.dtype == torch.uint8 else part.float()


def to_torchscript(policy: Policy) -> bytes:
    """Exports the policy to TorchScript. Raises ProgramError.

    This takes some hundredths of a second, while torch.export first imports torch's compiler.
    """
    module, example = PolicyProgram(policy).eval(), example_inputs(policy, 2)
    with torch.no_grad(), warnings.catch_warnings():
        # Ignore the deprecation of TorchScript and the tracer's warnings: the result is checked.
        warnings.simplefilter("ignore")
        with program_errors(policy, "TorchScript"):
            traced = torch.jit.trace(module, example, check_trace=False)
            check_agrees(traced, policy, "TorchScript")
            buffer = io.BytesIO()
            torch.jit.save(traced, buffer)
    return buffer.getvalue()


def to_exported_program(policy: Policy) -> bytes:
    """Exports the policy with torch.export. Raises ProgramError."""
    from torch.export import save

    program = exported_program(policy)
    buffer = io.BytesIO()
    save(program, buffer)
    return buffer.getvalue()


def exported_program(policy: Policy) -> ExportedProgram:
    """Returns the torch.export program of the policy. Raises ProgramError."""
    # This imports torch's compiler, which takes 5 s.
    from torch.export import Dim, export

    example = example_inputs(policy, 2)
    batch = {0: Dim(BATCH)}
    # `forward` has one variadic argument.
    shapes = ((batch,) * len(example),)
    with torch.no_grad(), program_errors(policy, "a torch.export program"):
        program = export(PolicyProgram(policy).eval(), example, dynamic_shapes=shapes)
        check_agrees(program.module(), policy, "a torch.export program")
    return program


def describe_program(policy: Policy, file: str) -> Program:
    """Describes the program's file, inputs and outputs for `policy.json`."""
    inputs = example_inputs(policy, 1)
    with torch.no_grad():
        outputs = PolicyProgram(policy)(*inputs)
    input_names, output_names = names(policy)
    return Program(
        file=file,
        inputs=_describe_tensors(input_names, inputs),
        outputs=_describe_tensors(output_names, outputs),
    )


def names(policy: Policy) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names of the program's inputs and of its outputs."""
    states = [f"state_{i}" for i in range(len(policy.network.initial_state(1)))]
    observation = tuple(part.name for part in _parts(policy)) or ("observation",)
    action = policy.actions.names if isinstance(policy.actions, Factored) else ("action",)
    return (*observation, *states), (*action, "policy", *(f"next_{state}" for state in states))


def example_inputs(policy: Policy, batch: int) -> tuple[Tensor, ...]:
    """Returns ``batch`` random observations, and states at the start of an episode."""
    space = policy.network_space
    if isinstance(space, PackedSpace):
        return (*_example_parts(space, batch), *policy.network.initial_state(batch))
    observations = np.stack([np.asarray(space.sample()) for _ in range(batch)])
    # Replace huge values, which occur if the bounds are the limits of the type.
    if np.issubdtype(observations.dtype, np.floating):
        normal = space.np_random.standard_normal(observations.shape).astype(observations.dtype)
        observations = np.where(np.abs(observations) > LARGE, normal, observations)
    return (torch.from_numpy(observations), *policy.network.initial_state(batch))


def _example_parts(space: PackedSpace, batch: int) -> tuple[Tensor, ...]:
    """Returns the parts of ``batch`` random observations in their spaces' types, masks as uint8."""
    rows = np.stack([space.sample() for _ in range(batch)])
    return tuple(
        torch.from_numpy(
            space.part_of(rows, part)
            .reshape(batch, *part.shape)
            .astype(np.uint8 if part.is_mask else _kind(part.space.dtype))
        )
        for part in space.parts
    )


def _kind(dtype: np.dtype | None) -> np.dtype:
    """Returns float32 for floats of any width and other types unchanged."""
    assert dtype is not None
    return np.dtype(np.float32) if dtype.kind == "f" else dtype


def check_agrees(program: Callable[..., tuple[Tensor, ...]], policy: Policy, form: str) -> None:
    """Raises ProgramError unless the program agrees with the policy.

    Compares them for new observations, in batches of other sizes than in the example, at the start
    of an episode and later.
    """
    module = PolicyProgram(policy).eval()
    for batch in BATCHES:
        inputs = example_inputs(policy, batch)
        for _ in range(2):
            expected, found = module(*inputs), program(*inputs)
            for ours, theirs in zip(expected, found, strict=True):
                if ours.shape != theirs.shape or not torch.allclose(ours.float(), theirs.float(), 1e-4, 1e-5):
                    raise ProgramError(
                        f"spec.network.{policy.description.network.name}: as {form} the network gives other results than "
                        "in torch; its forward must not branch on values nor draw random numbers"
                    )
            states = len(policy.network.initial_state(batch))
            fresh = example_inputs(policy, batch)
            inputs = (*fresh[: len(fresh) - states], *expected[len(expected) - states :])


def _describe_tensors(names: tuple[str, ...], tensors: tuple[Tensor, ...]) -> tuple[TensorDescription, ...]:
    return tuple(
        TensorDescription(
            name=name, shape=(BATCH, *tensor.shape[1:]), dtype=str(tensor.dtype).removeprefix("torch.")
        )
        for name, tensor in zip(names, tensors, strict=True)
    )


@contextmanager
def program_errors(policy: Policy, form: str) -> Iterator[None]:
    """Converts exceptions to the ProgramError that the policy cannot be exported as ``form``."""
    try:
        yield
    except ProgramError:
        raise
    except Exception as error:
        cause = error.__cause__ if isinstance(error, TrainerError) and error.__cause__ else error
        raise ProgramError(
            f"spec.network.{policy.description.network.name}: cannot be made into {form}: {_reason(cause)}"
        ) from error


def _reason(error: BaseException) -> str:
    """Returns an error in one line. A message of TorchScript's interpreter names the cause in its last
    line, after a traceback."""
    message = str(error).strip()
    return message.splitlines()[-1] if "Traceback of TorchScript" in message else one_line(error)
