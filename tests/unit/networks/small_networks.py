"""Specs of small networks, and observations for them."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from rltraining_api.network import ImpalaCnn, Lstm, Mlp, NatureCnn, Network

MLP = Network(mlp=Mlp(hidden_sizes=(8, 7)))
RECURRENT = MLP.model_copy(update={"lstm": Lstm(hidden_size=5)})
NATURE = Network(nature_cnn=NatureCnn(hidden_size=16))
IMPALA = Network(impala_cnn=ImpalaCnn(channels=(4, 4), hidden_size=16))


def as_stored(space: spaces.Space, batch: int) -> torch.Tensor:
    """Returns observations as the stepper does."""
    space.seed(5)
    array = np.stack([np.asarray(space.sample()) for _ in range(batch)])
    return torch.from_numpy(array.astype(np.float32) if array.dtype.kind == "f" else array)
