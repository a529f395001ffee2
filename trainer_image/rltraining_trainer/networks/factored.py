"""Distributions of composite actions: MultiDiscrete, MultiBinary, and Dict or Tuple.

The factors are independent, so their log-probabilities and entropies add up. An action is one
tensor ``[K + d]``: the choices of K discrete factors, then the d real numbers of all Boxes. Its
type is int64 without a Box and float32 with one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from rltraining_trainer.environments.nested_spaces import Path, discrete_choices, dotted, items_of
from rltraining_trainer.networks.distributions import DiagonalGaussian
from rltraining_trainer.networks.unpack import MASKED


@dataclass(frozen=True)
class _Leaf:
    """One array of an action: ``[start : stop]`` of the discrete factors or the real numbers."""

    path: Path
    space: spaces.Space
    start: int
    stop: int

    @property
    def is_box(self) -> bool:
        return isinstance(self.space, spaces.Box)


class Factored:
    """The distribution of composite actions.

    Its parameters ``[..., L + 2·d]`` are the logits of all choices, means and log standard
    deviations.

    Args:
        space: Space of one action.
        gaussian: Makes the distribution of all Boxes, concatenated to one.
    """

    def __init__(
        self, space: spaces.Space, gaussian: Callable[[spaces.Box], DiagonalGaussian] = DiagonalGaussian
    ) -> None:
        self._space = space
        self.choices = discrete_choices(space)
        self._leaves = [*_leaves(space)]
        # Concatenate all Boxes to one Gaussian.
        boxes = [leaf.space for leaf in self._leaves if isinstance(leaf.space, spaces.Box)]
        self._gaussian: DiagonalGaussian | None = None
        if boxes:
            low, high = (
                np.concatenate([getattr(box, end).reshape(-1) for box in boxes]) for end in ("low", "high")
            )
            self._gaussian = gaussian(spaces.Box(low.astype(np.float32), high.astype(np.float32)))
        self.logits = sum(self.choices)
        self.gaussians = self._gaussian.gaussians if self._gaussian else 0
        self.parameter_size = self.logits + 2 * self.gaussians
        self.action_shape: tuple[int, ...] = (len(self.choices) + self.gaussians,)
        # Indices that arrange the logits as a table with one row per factor. Short rows are padded
        # with the index of a masked logit.
        widest = max(self.choices, default=1)
        table = np.full((len(self.choices), widest), self.logits)
        first = 0
        for factor, count in enumerate(self.choices):
            table[factor, :count] = np.arange(first, first + count)
            first += count
        self._table = torch.from_numpy(table.reshape(-1))
        self._rows = table.shape

    @property
    def names(self) -> tuple[str, ...]:
        """Names of an action's arrays in exported programs."""
        return tuple(dotted(("action", *leaf.path)) for leaf in self._leaves)

    def noise(self, *batch: int) -> Tensor:
        gumbel = torch.empty(*batch, self._table.numel()).exponential_().log_().neg_()
        return torch.cat((gumbel, torch.randn(*batch, self.gaussians)), -1)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        gumbel, normal = noise.split((self._table.numel(), self.gaussians), -1)
        choice = (self._logits(parameters) + gumbel.unflatten(-1, self._rows)).argmax(-1)
        if self._gaussian is None:
            return choice
        return torch.cat((choice.float(), self._gaussian.sample(parameters[..., self.logits :], normal)), -1)

    def mode(self, parameters: Tensor) -> Tensor:
        choice = self._logits(parameters).argmax(-1)
        if self._gaussian is None:
            return choice
        return torch.cat((choice.float(), self._gaussian.mode(parameters[..., self.logits :])), -1)

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        choice, number = self._split(action)
        log_prob = _chosen(self._logits(parameters).log_softmax(-1), choice)
        if self._gaussian is None:
            return log_prob
        return log_prob + self._gaussian.log_prob(parameters[..., self.logits :], number)

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        choice, number = self._split(action)
        log_probs = self._logits(parameters).log_softmax(-1)
        # A masked choice has probability 0 and a finite log-probability: it adds 0.
        log_prob, entropy = _chosen(log_probs, choice), -(log_probs.exp() * log_probs).sum((-2, -1))
        if self._gaussian is None:
            return log_prob, entropy
        numbers = self._gaussian.log_prob_and_entropy(parameters[..., self.logits :], number)
        return log_prob + numbers[0], entropy + numbers[1]

    def environment_parts(self, action: Tensor) -> tuple[Tensor, ...]:
        """Splits actions ``[..., K + d]`` into arrays ``[..., *shape]``."""
        choice, number = self._split(action)
        if self._gaussian is not None:
            number = self._gaussian.environment_action(number)
        return tuple(
            _shaped(leaf, (number if leaf.is_box else choice)[..., leaf.start : leaf.stop])
            for leaf in self._leaves
        )

    def environment_action(self, action: Tensor) -> Tensor:
        """Returns the array of actions, for a space that is a single array."""
        (part,) = self.environment_parts(action)
        return part

    def to_environment(self, action: Tensor) -> Any:
        """Returns actions in the structure of their space, with arrays ``[B, ...]``."""
        arrays = zip(self._leaves, self.environment_parts(action), strict=True)
        return _build(self._space, {leaf.path: _as_array(leaf.space, part) for leaf, part in arrays}, ())

    def _logits(self, parameters: Tensor) -> Tensor:
        """Returns logits ``[..., K, largest number of choices]``."""
        logits = F.pad(parameters[..., : self.logits], (0, 1), value=MASKED)
        return logits.index_select(-1, self._table.to(logits.device)).unflatten(-1, self._rows)

    def _split(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns choices ``[..., K]`` int64 and real numbers ``[..., d]``."""
        choice, number = action.split((len(self.choices), self.gaussians), -1)
        return choice.long(), number


def _chosen(log_probs: Tensor, choice: Tensor) -> Tensor:
    """Sums the log-probabilities ``[..., K, n]`` of the choices ``[..., K]`` over the factors."""
    return log_probs.gather(-1, choice.unsqueeze(-1)).sum((-2, -1))


def _shaped(leaf: _Leaf, values: Tensor) -> Tensor:
    """Returns the array ``[..., *shape]`` of ``leaf``. Choices count from the space's start."""
    if not leaf.is_box:
        start = np.asarray(getattr(leaf.space, "start", 0), np.int64).reshape(-1)
        values = values + torch.from_numpy(start).to(values.device)
    return values.reshape(*values.shape[:-1], *(leaf.space.shape or ()))


def _as_array(space: spaces.Space, values: Tensor) -> np.ndarray:
    array = values.numpy().astype(space.dtype)
    return array.clip(space.low, space.high) if isinstance(space, spaces.Box) else array


def _leaves(space: spaces.Space) -> Iterator[_Leaf]:
    factor = number = 0
    for path, leaf in _walk(space, ()):
        size = int(np.prod(leaf.shape or ()))
        if isinstance(leaf, spaces.Box):
            yield _Leaf(path, leaf, number, number + size)
            number += size
        else:
            yield _Leaf(path, leaf, factor, factor + size)
            factor += size


def _walk(space: spaces.Space, path: Path) -> Iterator[tuple[Path, spaces.Space]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in items_of(space):
            yield from _walk(part, (*path, key))
    else:
        yield path, space


def _build(space: spaces.Space, parts: dict[Path, np.ndarray], path: Path) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _build(part, parts, (*path, key)) for key, part in items_of(space)}
    if isinstance(space, spaces.Tuple):
        return tuple(_build(part, parts, (*path, key)) for key, part in items_of(space))
    return parts[path]
