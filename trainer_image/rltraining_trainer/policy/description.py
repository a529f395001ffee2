"""`policy.json`: everything except the weights that is needed to use a policy without its job."""

from __future__ import annotations

import math
import platform
from collections import OrderedDict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from pydantic import ConfigDict, Field
from rltraining_api.base import ApiModel
from rltraining_api.environment import Environment
from rltraining_api.evaluation import EvaluationResult
from rltraining_api.job import RLTrainingJob
from rltraining_api.network import Network
from rltraining_api.status import Progress

from rltraining_trainer.environments.packed_space import PackedSpace
from rltraining_trainer.errors import BadConfiguration


class DiscreteSpace(ApiModel):
    """The integers from `start` to `start` + `n` - 1."""

    type: Literal["Discrete"] = "Discrete"
    n: int
    start: int = 0


_Bound = int | float | tuple[int | float, ...]


class BoxSpace(ApiModel):
    """Arrays within bounds. A bound is one number, or one for each entry (flattened)."""

    model_config = ConfigDict(allow_inf_nan=True, ser_json_inf_nan="strings")

    type: Literal["Box"] = "Box"
    shape: tuple[int, ...]
    dtype: str
    low: _Bound
    high: _Bound


class MultiDiscreteSpace(ApiModel):
    """Arrays of integers from `start` to `start` + `nvec` - 1 of each entry (flattened)."""

    type: Literal["MultiDiscrete"] = "MultiDiscrete"
    shape: tuple[int, ...]
    dtype: str
    nvec: tuple[int, ...]
    start: tuple[int, ...]


class MultiBinarySpace(ApiModel):
    """Arrays of zeros and ones."""

    type: Literal["MultiBinary"] = "MultiBinary"
    shape: tuple[int, ...]


class DictSpace(ApiModel):
    """A dictionary of spaces."""

    type: Literal["Dict"] = "Dict"
    spaces: dict[str, SpaceDescription]


class TupleSpace(ApiModel):
    """A sequence of spaces."""

    type: Literal["Tuple"] = "Tuple"
    spaces: tuple[SpaceDescription, ...]


SpaceDescription = Annotated[
    DiscreteSpace | BoxSpace | MultiDiscreteSpace | MultiBinarySpace | DictSpace | TupleSpace,
    Field(discriminator="type"),
]
DictSpace.model_rebuild()
TupleSpace.model_rebuild()


BATCH = "batch"


class TensorDescription(ApiModel):
    """An input or output of the program. `BATCH` in `shape` is variable."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


class Program(ApiModel):
    """A file that can be used without this project: `torch.jit.load(file)(observation, *state)`."""

    file: str
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]


class PolicyDescription(ApiModel):
    """The content of `policy.json`."""

    # The outermost model determines how infinite bounds are written.
    model_config = ConfigDict(ser_json_inf_nan="strings")

    format: Literal[1] = 1
    job: str
    algorithm: str
    environment: Environment
    network: Network
    dueling: bool = False
    """Whether the Q-network has separate outputs for values and advantages (`dqnApex.dueling`)."""
    quantiles: int = 1
    """Number of quantiles of each action's return (`dqnApex.quantiles`)."""
    noisy_layers: bool = False
    """Whether the Q-network was trained with noise on its parameters (`dqnApex.noisyLayers`)."""
    observation_space: SpaceDescription
    """Space of the environment's observations without text parts of a Dict."""
    action_mask_in_info: bool = False
    """Whether the mask of valid actions is `info["action_mask"]`."""
    action_space: SpaceDescription
    progress: Progress
    """Progress of training when the policy was stored."""
    evaluation: EvaluationResult | None = None
    """The evaluation of the policy, if it was stored as the best of its run."""
    program: Program | None = None
    """None if the network cannot be exported. The weights then need this project."""
    time: datetime
    versions: dict[str, str]


def describe(
    job: RLTrainingJob, observation_space: spaces.Space, action_space: spaces.Space, progress: Progress
) -> PolicyDescription:
    """Describes a policy that was trained by `job`."""
    return PolicyDescription(
        job=job.metadata.name,
        algorithm=job.spec.algorithm.name,
        environment=job.spec.environment,
        network=job.spec.network,
        dueling=getattr(job.spec.algorithm.parameters, "dueling", False),
        quantiles=getattr(job.spec.algorithm.parameters, "quantiles", 1),
        noisy_layers=getattr(job.spec.algorithm.parameters, "noisy_layers", False),
        observation_space=describe_space(observation_space),
        action_mask_in_info=isinstance(observation_space, PackedSpace) and observation_space.mask_from_info,
        action_space=describe_space(action_space),
        progress=progress,
        time=datetime.now(UTC),
        versions={
            "python": platform.python_version(),
            "rltraining-trainer": version("rltraining-trainer"),
            "torch": torch.__version__,
            "gymnasium": gymnasium.__version__,
            "numpy": np.__version__,
        },
    )


def describe_space(space: spaces.Space) -> SpaceDescription:
    """Describes a space. For packed observations that is the space before packing.

    Raises BadConfiguration for a space that no network supports.
    """
    if isinstance(space, PackedSpace):
        return describe_space(space.original)
    if isinstance(space, spaces.Dict):
        return DictSpace(spaces={key: describe_space(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return TupleSpace(spaces=tuple(describe_space(part) for part in space.spaces))
    if isinstance(space, spaces.Discrete):
        return DiscreteSpace(n=int(space.n), start=int(space.start))
    if isinstance(space, spaces.Box):
        return BoxSpace(
            shape=space.shape, dtype=str(space.dtype), low=_bound(space.low), high=_bound(space.high)
        )
    if isinstance(space, spaces.MultiDiscrete):
        nvec, start = (tuple(values.reshape(-1).tolist()) for values in (space.nvec, space.start))
        return MultiDiscreteSpace(shape=space.shape, dtype=str(space.dtype), nvec=nvec, start=start)
    if isinstance(space, spaces.MultiBinary):
        return MultiBinarySpace(shape=space.shape)
    raise BadConfiguration(f"spec.environment: a policy for {space} cannot be written; wrap the environment")


VALUES_MAX, SPACES_MAX = 1 << 26, 4096
"""Maximum number of values and of nested spaces. A 4K image has 25 million values."""


class SpaceError(ValueError):
    """The description does not describe a valid space: one sentence."""


def make_space(description: SpaceDescription) -> spaces.Space:
    """Creates the described space. Raises SpaceError."""
    try:
        _check_size(description)
        return _space(description)
    except (ValueError, TypeError, SyntaxError, OverflowError, MemoryError, AssertionError) as error:
        raise SpaceError(str(error)) from error


def _check_size(description: SpaceDescription) -> None:
    """Raises SpaceError for a space that would take much memory or time to create or to sample."""
    to_do, found, values = [description], 0, 0
    while to_do:
        found += 1
        match to_do.pop():
            case DiscreteSpace(n=n):
                values += abs(n)
            case MultiDiscreteSpace(shape=shape, nvec=nvec):
                values += abs(math.prod(shape)) + sum(map(abs, nvec))
            case BoxSpace(shape=shape) | MultiBinarySpace(shape=shape):
                values += abs(math.prod(shape))
            case DictSpace(spaces=parts):
                to_do += parts.values()
            case TupleSpace(spaces=items):
                to_do += items
        if found > SPACES_MAX or values > VALUES_MAX:
            raise SpaceError(f"it has more than {SPACES_MAX:,} parts or {VALUES_MAX:,} values")


def _space(description: SpaceDescription) -> spaces.Space:
    match description:
        case DiscreteSpace(n=n, start=start):
            return spaces.Discrete(n, start=start)
        case MultiDiscreteSpace(shape=shape, dtype=dtype):
            nvec, first = (
                np.array(values, np.int64).reshape(shape) for values in (description.nvec, description.start)
            )
            return spaces.MultiDiscrete(nvec, _number_type(dtype), start=first)
        case DictSpace(spaces=parts):
            return spaces.Dict(OrderedDict((key, _space(part)) for key, part in parts.items()))
        case TupleSpace(spaces=items):
            return spaces.Tuple([_space(part) for part in items])
        case MultiBinarySpace(shape=shape):
            return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
        case BoxSpace(shape=shape, dtype=dtype):
            kind = _number_type(dtype)
            low, high = (
                np.broadcast_to(np.asarray(bound, kind), shape)
                if isinstance(bound, int | float)
                else np.asarray(bound, kind).reshape(shape)
                for bound in (description.low, description.high)
            )
            box = spaces.Box(low, high, shape, kind.type)
            if kind == np.int64:
                # gymnasium cannot sample between the limits, as which infinite bounds are written.
                box.bounded_below &= box.low > np.iinfo(kind).min
                box.bounded_above &= box.high < np.iinfo(kind).max
            return box


def _number_type(name: str) -> np.dtype:
    kind = np.dtype(name)
    if kind.kind not in "biuf":
        raise ValueError(f"{kind} is no type of numbers")
    return kind


def _bound(values: np.ndarray) -> _Bound:
    flat = values.reshape(-1)
    return flat[0].item() if flat.size and (flat == flat[0]).all() else tuple(flat.tolist())
