"""The torso for composite observations, which encodes each part and combines their features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rltraining_trainer.environments.nested_spaces import is_vector
from rltraining_trainer.environments.packed_space import PackedSpace
from rltraining_trainer.networks.normalizer import Normalizer
from rltraining_trainer.networks.unpack import Packed, Unpack


class PartsTorso(nn.Module):
    """Maps packed observations to features.

    The encoded features are the vectors of floats, normalised together if there is a normalizer,
    followed by the features of the other parts.

    Args:
        space: Space of the packed observations.
        encoders: One module per part except the mask, in order. Outputs are flattened.
        normalizer: Running statistics of the vectors ``[N, space.vector_size]``, or None.

    Attributes:
        trunk: Maps the features of all parts ``[N, K]`` to the torso's features. At first it changes nothing.
    """

    def __init__(
        self, space: PackedSpace, encoders: Sequence[nn.Module], normalizer: Normalizer | None
    ) -> None:
        super().__init__()
        self._unpack = Unpack(space)
        indices = [i for i, part in enumerate(space.parts) if not part.is_mask]
        vector = [is_vector(space.parts[i].space) for i in indices]
        self._vectors = [i for i, yes in zip(indices, vector, strict=True) if yes]
        self._others = [i for i, yes in zip(indices, vector, strict=True) if not yes]
        self.normalizer = normalizer
        self.encoders = nn.ModuleList(e for e, yes in zip(encoders, vector, strict=True) if not yes)
        self.trunk: nn.Module = nn.Identity()

    def forward(self, observation: Packed) -> Tensor:
        return self.trunk(self.encode(observation))

    def encode(self, observation: Packed) -> Tensor:
        """Returns the features of all parts ``[N, K]``."""
        parts = self._unpack(observation)
        # Take the batch size of each part from this part: torch.export does not know that all are equal.
        features = [parts[i].reshape(parts[i].shape[0], -1) for i in self._vectors]
        if self.normalizer is not None and features:
            features = [self.normalizer(torch.cat(features, 1))]
        for i, encoder in zip(self._others, self.encoders, strict=True):
            features.append(encoder(parts[i]).flatten(1))
        return torch.cat(features, 1)
