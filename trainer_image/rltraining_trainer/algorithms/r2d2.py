"""R2D2 (Kapturowski et al. 2019, "Recurrent experience replay in distributed reinforcement learning").

Samplers insert overlapping sequences of steps with the recurrent state before them into a distributed
prioritized replay. The learner first replays a part of each sequence to refresh that state (burn-in).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from gymnasium import spaces
from rltraining_api.algorithms import R2d2
from rltraining_api.environment import Normalize
from rltraining_api.network import Network
from torch import Tensor

from rltraining_trainer.algorithms.apex import learn
from rltraining_trainer.algorithms.apex_learner import ApexLearner, Part
from rltraining_trainer.algorithms.epsilon_greedy import EpsilonGreedy
from rltraining_trainer.algorithms.q_learning import rescale, unscale
from rltraining_trainer.algorithms.sequences import SequenceBuilder, Sequences
from rltraining_trainer.algorithms.transitions import PRIORITY_EPSILON, transition_columns
from rltraining_trainer.algorithms.unrolls import UnrollCollector
from rltraining_trainer.dataflow.flat import flatten_parameters
from rltraining_trainer.dataflow.replay import Column
from rltraining_trainer.networks import GreedyActions, State, parameter_count
from rltraining_trainer.networks.build import build_mask, build_normalizer, check_discrete
from rltraining_trainer.networks.build_torso import build_torso
from rltraining_trainer.networks.recurrent_q_network import RecurrentQNetwork
from rltraining_trainer.world import World


def learner(world: World) -> None:
    """Updates the network from batches of the replay."""
    network, _ = _network(world)
    learn(world, R2d2Learner(network, world.settings, world.device), _columns(world))


def sampler(world: World) -> None:
    """Acts with exploration, and inserts sequences into the replay."""
    # Make the environments, and get the learner's parameters.
    settings, size = world.settings, world.spec.environment.num_envs
    network, actions = _network(world)
    replay = world.replay(settings.replay, batch_size=settings.batch_size)
    environments = world.environments()
    seed = world.start(flatten_parameters(network))

    # Act, count the steps, and insert the sequences that are complete.
    exploration = EpsilonGreedy(actions, settings.exploration_epsilon, settings.exploration_alpha)
    period = settings.sequence_length // 2
    collector = UnrollCollector.of(settings, period, network, exploration, environments, seed)
    sequences = SequenceBuilder(settings)
    numbers, samplers, steps = range(world.index * size, (world.index + 1) * size), 0, 0
    while True:
        if samplers != (samplers := len(world.members("sampler"))):
            collector.reported = exploration.place(numbers, samplers * size)
        unroll = collector.collect()
        world.count(
            int(unroll["valid"].sum()),
            unroll["episode_return"],
            episodes=int(unroll["episodes"].sum()),
            moments=[unroll["moments"]],
        )
        if (items := sequences.add(unroll)) is not None:
            with torch.no_grad():
                errors = td_errors(network, network, items, settings)[1]
            replay.extend(items, priorities_of(errors, items["valid"], settings))

        # Request newer parameters now and then.
        steps += period
        if steps >= settings.parameter_refresh_steps:
            steps = 0
            replay.refresh()


def replay(world: World) -> None:
    """The function of a replay pod: keeps a shard of the replay."""
    world.keep_replay(world.settings.replay, _columns(world))


def _network(world: World) -> tuple[RecurrentQNetwork, GreedyActions]:
    spec, epsilon = world.spec, world.settings.value_rescaling
    network, actions = build_network(spec.network, *world.spaces, normalize=spec.environment.normalize)
    if epsilon is not None:
        network.to_return = partial(unscale, epsilon=epsilon)
    return network, actions


def build_network(
    network: Network,
    observation_space: spaces.Space,
    action_space: spaces.Space,
    *,
    normalize: Normalize | None = None,
) -> tuple[RecurrentQNetwork, GreedyActions]:
    """Returns the network for these spaces and the conversion of its values to actions.

    Raises like ``build_actor_critic``.
    """
    discrete = check_discrete("r2d2", action_space, normalize)
    count = int(discrete.n)
    assert network.lstm is not None, "a rule of the job"
    normalizer = build_normalizer(normalize, observation_space)
    torso, features = build_torso(network, observation_space, normalizer)
    mask, size = build_mask(observation_space, count), network.lstm.hidden_size
    q_network = RecurrentQNetwork(torso, features, size, count, normalizer=normalizer, mask=mask)
    return q_network, GreedyActions(discrete)


def _columns(world: World) -> Mapping[str, Column]:
    """Returns the columns of `Sequences`."""
    settings, lstm = world.settings, world.spec.network.lstm
    length = settings.burn_in_steps + settings.sequence_length
    observation = transition_columns(*world.spaces)["observation"]
    assert lstm is not None
    return {
        "observation": Column((length + 1, *observation.shape), observation.dtype),
        "first": Column((length + 1,), torch.bool),
        "action": Column((length,), torch.int64),
        "reward": Column((length,), torch.float32),
        "discount": Column((length,), torch.float32),
        "length": Column((length,), torch.int64),
        "valid": Column((length,), torch.bool),
        "hidden": Column((lstm.hidden_size,), torch.float32),
        "cell": Column((lstm.hidden_size,), torch.float32),
    }


def td_errors(
    network: RecurrentQNetwork, target: RecurrentQNetwork, batch: Sequences, settings: R2d2
) -> tuple[Tensor, Tensor]:
    """Returns Q(s, a) and TD errors δ ``[T, K]`` of the T steps after the burn-in. The errors have no gradient.

    The target is that of double Q-learning, y = h(R + γ^k h⁻¹(Q'(s', argmax Q(s', a)))) (equation 1).
    """
    burn_in, epsilon = settings.burn_in_steps, settings.value_rescaling
    observation, first = batch["observation"].transpose(0, 1), batch["first"].transpose(0, 1)
    action, reward, discount, length = (
        batch[name].transpose(0, 1)[burn_in:] for name in ("action", "reward", "discount", "length")
    )
    # Refresh the stored recurrent state with the current parameters.
    state: State = (batch["hidden"], batch["cell"])
    target_state = state
    with torch.no_grad():
        if burn_in:
            _, state = network.unroll(observation[:burn_in], state, first[:burn_in])
            _, target_state = target.unroll(observation[:burn_in], target_state, first[:burn_in])
    observation, first = observation[burn_in:], first[burn_in:]
    values, _ = network.unroll(observation, state, first)

    # Compute the targets.
    with torch.no_grad():
        target_values, _ = target.unroll(observation, target_state, first)
        best = values.argmax(-1, keepdim=True)
        bootstrap = target_values.gather(-1, best).squeeze(-1)
        if epsilon is not None:
            bootstrap = unscale(bootstrap, epsilon)
        after = torch.arange(len(length), device=length.device).unsqueeze(1) + length
        goal = reward + discount * bootstrap.gather(0, after)
        if epsilon is not None:
            goal = rescale(goal, epsilon)
    value = values[:-1].gather(-1, action.unsqueeze(-1)).squeeze(-1)
    return value, goal - value.detach()


def priorities_of(errors: Tensor, valid: Tensor, settings: R2d2) -> Tensor:
    """Returns η max |δ| + (1 − η) mean |δ| over the valid steps, ``[K]``, from δ ``[T, K]`` and ``valid`` ``[K, S]``."""
    counted = valid.transpose(0, 1)[settings.burn_in_steps :]
    sizes = errors.abs() * counted
    mean = sizes.sum(0) / counted.sum(0).clamp(min=1)
    return settings.priority_mix * sizes.amax(0) + (1.0 - settings.priority_mix) * mean + PRIORITY_EPSILON


class R2d2Learner(ApexLearner[RecurrentQNetwork]):
    """Minimises ½ δ², averaged over the steps of each sequence and weighted by importance."""

    algorithm = "r2d2"
    steps_sizes = "learningRate"

    def __init__(
        self, network: RecurrentQNetwork, settings: R2d2, device: torch.device | str = "cpu"
    ) -> None:
        parts = (Part("gradient_norm", parameter_count(network), settings.learning_rate),)
        super().__init__(network, settings, settings.optimizer, parts, device)
        self._settings = settings

    def _backward(self, batch: Sequences, weights: Tensor) -> tuple[Tensor, dict[str, Tensor]]:  # type: ignore[override]
        value, errors = td_errors(self.network, self._target, batch, self._settings)
        valid = batch["valid"].transpose(0, 1)[self._settings.burn_in_steps :]
        shares = valid / valid.sum(0).clamp(min=1)
        # For why not `value.backward(...)`, see dqn.py.
        (value * -(errors * shares * weights)).sum().backward()
        terms = {
            "loss": (0.5 * errors.square() * shares).sum(0).mul(weights).mean(),
            "value": (value.detach() * shares).sum(0).mean(),
        }
        return priorities_of(errors, batch["valid"], self._settings) - PRIORITY_EPSILON, terms
