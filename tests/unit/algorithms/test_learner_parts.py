"""Learners with an actor and critics: each optimizer has the parameters of its part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from apex_learners import NETWORK
from gymnasium import spaces
from rltraining_api.algorithms import DdpgApex, Sac, Td3
from rltraining_api.environment import Normalize
from rltraining_api.network import NatureCnn, Network
from rltraining_trainer.algorithms import ddpg, sac, td3
from rltraining_trainer.algorithms.apex_learner import ApexLearner
from rltraining_trainer.networks import build_deterministic

ACTION = spaces.Box(-1, 1, (2,), np.float32)
CNN = Network(nature_cnn=NatureCnn(hidden_size=4))


def ddpg_learner(*built: Any) -> ApexLearner:
    return ddpg.DdpgLearner(
        build_deterministic(*built, normalize=Normalize(observations=True))[0], DdpgApex()
    )


def sac_learner(*built: Any) -> ApexLearner:
    return sac.SacLearner(*sac.build_network(*built, normalize=Normalize(observations=True)), Sac())


def td3_learner(*built: Any) -> ApexLearner:
    return td3.Td3Learner(td3.build_network(*built, normalize=Normalize(observations=True))[0], Td3())


@pytest.mark.parametrize(("network", "shape"), [(NETWORK, (3,)), (CNN, (4, 36, 36))])
@pytest.mark.parametrize("make", [ddpg_learner, sac_learner, td3_learner])
def test_the_last_optimizer_has_the_parameters_of_the_critics(
    make: Callable[..., ApexLearner], network: Network, shape: tuple[int, ...]
) -> None:
    """Statistics of observations precede the actor, which does not use them for images."""
    learner = make(network, spaces.Box(0, 1, shape, np.float32), ACTION)
    critics = [p for name, p in learner.network.named_parameters() if name.startswith("critic")]
    _, parameters, _, _ = learner._parts[-1]
    assert parameters.data_ptr() == critics[0].data_ptr()
    assert len(parameters) == sum(map(torch.numel, critics))
