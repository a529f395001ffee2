"""A trained policy, loaded from its directory and ready to act."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from rltraining_trainer.algorithms.registry import build_policy_network
from rltraining_trainer.checkpoint.storage import Storage, open_storage
from rltraining_trainer.environments.nested_spaces import first_of
from rltraining_trainer.environments.pack_space import pack_space
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.networks import Actions, PolicyNetwork, State
from rltraining_trainer.policy.description import PolicyDescription, SpaceError, make_space
from rltraining_trainer.policy.observations import to_batch
from rltraining_trainer.policy.trust import check_class, check_code
from rltraining_trainer.policy.weights import WeightsError, as_large_as, read_weights

DESCRIPTION_FILE = "policy.json"
WEIGHTS_FILE = "weights.pt"
POLICY_FOLDER = "policy"
"""Folder of the policy inside the folder of its run."""
DESCRIPTION_BYTES_MAX = 16 << 20
"""Maximum size of a description, which is large for images with bounds for each pixel."""


class Policy:
    """Maps one observation or a batch to actions for the environment, like the samplers.

    A recurrent network keeps its state, so use one object per environment or per batch of them.
    """

    def __init__(
        self,
        description: PolicyDescription,
        weights: dict[str, Tensor],
        *,
        trust_code: bool = False,
        origin: str = "the policy",
    ) -> None:
        """Builds the network and loads its weights.

        Args:
            trust_code: Whether to run any code that the policy names.
            origin: Name of the policy in messages.

        Raises:
            SpaceError: A space is invalid.
            BadConfiguration: The weights or spaces do not fit.
            UntrustedCode: The network is untrusted code.
            UserCodeError: The code of the network raised an exception.
        """
        self.description, self._trust_code, self._origin = description, trust_code, origin
        if not trust_code:
            check_class(origin, "network", description.network.entry_point, nn.Module)
        self.observation_space = make_space(description.observation_space)
        self.action_space = make_space(description.action_space)
        self.network_space, _ = pack_space(
            self.observation_space, self.action_space, mask_in_info=description.action_mask_in_info
        )
        # Build the network and load its weights.
        with nullcontext() if trust_code else as_large_as(weights, origin):
            self.network, self.actions = self._build()
        try:
            self.network.load_state_dict(weights)
        except RuntimeError as error:
            raise BadConfiguration(f"the weights do not fit the network of the policy: {error}") from error
        self.network.eval()
        self._state: State | None = None

    @classmethod
    def load(cls, uri: str, *, trust_code: bool = False) -> Policy:
        """Loads a policy from its directory or the directory of its run, a path or an fsspec URI.

        User code that the policy needs must be importable, and runs only with ``trust_code``,
        because an untrusted policy may name modules in its directory. Environments of installed
        packages need no trust, nor do subclasses of ``torch.nn.Module`` and ``gymnasium.Wrapper``
        there. Weights are read without executing code.

        Raises BadConfiguration (including UntrustedCode) or UserCodeError.
        """
        storage = open_storage(uri)
        folder = ""
        # Read the files.
        try:
            if _is_run(storage):
                uri, folder = f"{uri.rstrip('/')}/{POLICY_FOLDER}", POLICY_FOLDER
            if storage.size(folder, DESCRIPTION_FILE) > DESCRIPTION_BYTES_MAX:
                raise BadConfiguration(
                    f"{uri}/{DESCRIPTION_FILE} is larger than {DESCRIPTION_BYTES_MAX >> 20} MiB"
                )
            description = PolicyDescription.model_validate_json(
                storage.read(folder, DESCRIPTION_FILE), extra="ignore"
            )
            content = storage.read(folder, WEIGHTS_FILE)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise BadConfiguration(
                f"there is no policy at {uri} that this machine can read: a policy is a directory with "
                f"{DESCRIPTION_FILE} and {WEIGHTS_FILE}; one in a cluster's volume has to be copied here first"
            ) from error
        except ValidationError as error:
            raise BadConfiguration(f"{uri}/{DESCRIPTION_FILE} is damaged or of another version") from error
        except (OSError, MemoryError) as error:
            reason = getattr(error, "strerror", None) or "it is too large"
            raise BadConfiguration(f"the policy at {uri} cannot be read: {reason}") from error
        try:
            weights = read_weights(content)
        except WeightsError as error:
            raise BadConfiguration(f"{uri}/{WEIGHTS_FILE} {error}") from error
        # Build the policy.
        try:
            return cls(description, weights, trust_code=trust_code, origin=uri)
        except SpaceError as error:
            raise BadConfiguration(
                f"{uri}/{DESCRIPTION_FILE} is damaged or of another version: {error}"
            ) from error

    def check_environment(self) -> None:
        """Raises UntrustedCode if the environment or one of its wrappers is untrusted code."""
        if self._trust_code:
            return
        environment = self.description.environment
        check_code(self._origin, "environment", environment.id)
        for wrapper in environment.wrappers:
            check_class(self._origin, "wrapper", wrapper.entry_point, gym.Wrapper)

    def reset(self) -> None:
        """Resets the state of the network, before a new episode."""
        self._state = None

    def act(
        self,
        observation: Any,
        *,
        deterministic: bool = True,
        first: Any = None,
        action_mask: Any = None,
    ) -> Any:
        """Returns the action for an observation, or actions ``[B, ...]`` for a batch ``[B, ...]``.

        In a batch, each part of a Dict or Tuple is an array ``[B, ...]``.

        Args:
            observation: One observation of the environment, or a batch.
            deterministic: Whether to return the most likely action. Otherwise an action is sampled
                with torch's global generator, unless the algorithm's policy is deterministic.
            first: ``[B]`` bools, whether an observation begins an episode, which resets the state.
            action_mask: ``[n]`` or ``[B, n]``, ``info["action_mask"]`` if the environment returns
                one.

        Raises:
            ValueError: A part or the mask is missing, has another shape or type than in training, or
                no action is valid. The state of the network is that of another batch.
        """
        rows, single = to_batch(self.network_space, observation, action_mask)
        if first is not None:
            first = np.asarray(first, np.bool_).reshape(-1)
            if len(first) != len(rows):
                raise ValueError(f"act was given {len(first)} values of first for {len(rows)} observations")
        if self._state and len(self._state[0]) != len(rows):
            raise ValueError(
                f"act was given {len(rows)} observations, but the policy's state is that of {len(self._state[0])}: "
                "call reset() first, or use one policy for each batch of environments"
            )
        action = self.act_packed(rows, deterministic=deterministic, first=first)
        return first_of(action) if single else action

    @torch.no_grad()
    def act_packed(
        self, rows: np.ndarray, *, deterministic: bool = True, first: np.ndarray | None = None
    ) -> Any:
        """Like ``act``, for batches ``[B, ...]`` of observations from ``make_environments``."""
        if self._state is None:
            self._state = self.network.initial_state(len(rows))
        parameters, self._state = self.network.policy(
            torch.from_numpy(np.ascontiguousarray(rows)),
            self._state,
            None if first is None else torch.from_numpy(first),
        )
        return self.actions.to_environment(self._choose(parameters, deterministic))

    def _build(self) -> tuple[PolicyNetwork, Actions]:
        """Builds the network of the algorithm, and the conversion of its outputs to actions."""
        described = self.description
        return build_policy_network(
            described.algorithm,
            described.network,
            self.network_space,
            self.action_space,
            normalize=described.environment.normalize,
            dueling=described.dueling,
            quantiles=described.quantiles,
            noisy=described.noisy_layers,
        )

    def _choose(self, parameters: Tensor, deterministic: bool) -> Tensor:
        if deterministic:
            return self.actions.mode(parameters)
        return self.actions.sample(parameters, self.actions.noise(len(parameters)))


def _is_run(storage: Storage) -> bool:
    """Returns whether a directory contains no policy itself, but one in ``POLICY_FOLDER``."""
    return not _has_description(storage, "") and _has_description(storage, POLICY_FOLDER)


def _has_description(storage: Storage, directory: str) -> bool:
    try:
        storage.size(directory, DESCRIPTION_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
