"""Prints tests/vectors/sb3_references.json: updates of Stable-Baselines3 and CleanRL from random data.

Needs stable-baselines3 2.9.2, which the project does not, and torch 2.13.0:

    python tests/vectors/make_sb3_references.py > tests/vectors/sb3_references.json

Stable-Baselines3 runs its own ``train``. CleanRL has no function to call: ``cleanrl_update`` has the
lines of its ppo.py (commit fe8d8a03), on a policy of Stable-Baselines3.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

T, B, FEATURES, HIDDEN = 5, 3, 3, 4
ROLLOUTS, EPOCHS, TOTAL_STEPS = 2, 2, 60
BATCH = 6
NO_CLIP = 1e9
RANDOM = np.random.default_rng(24)
DISCRETE = gym.spaces.Discrete(3)
CONTINUOUS = gym.spaces.Box(-1, 1, (2,), np.float32)
SGD = {"optimizer_class": torch.optim.SGD, "optimizer_kwargs": {}}


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).round(3).astype(np.float32)


class Spaces(gym.Env):
    """An environment that is never stepped."""

    def __init__(self, actions: gym.Space) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (FEATURES,), np.float32)
        self.action_space = actions


class SharedTorso(BaseFeaturesExtractor):
    """One shared hidden layer for policy and value."""

    def __init__(self, observation_space: gym.Space) -> None:
        super().__init__(observation_space, HIDDEN)
        self.layer = nn.Linear(FEATURES, HIDDEN)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(observation))


SHARED = {"features_extractor_class": SharedTorso, "net_arch": []}
SEPARATE = {"net_arch": {"pi": [HIDDEN], "vf": [HIDDEN]}}


def randomize(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(0.7 * normal(*parameter.shape)).reshape(parameter.shape))


def parameters_of(module: nn.Module) -> dict[str, Any]:
    """Returns the parameters by name. A shared extractor is included once."""
    twice = ("pi_features_extractor", "vf_features_extractor")
    return {name: value.tolist() for name, value in module.state_dict().items() if not name.startswith(twice)}


def linear(value: float) -> Callable[[float], float]:
    return lambda remaining: value * remaining


def make(algorithm: type[OnPolicyAlgorithm], actions: gym.Space, **settings: Any) -> OnPolicyAlgorithm:
    environments = DummyVecEnv([lambda: Spaces(actions)] * B)
    model = algorithm(
        "MlpPolicy", environments, n_steps=T, gamma=0.97, vf_coef=0.4, ent_coef=0.02, device="cpu", **settings
    )
    model.set_logger(Logger(None, []))
    randomize(model.policy)
    return model


def fill(model: OnPolicyAlgorithm) -> dict[str, Any]:
    """Fills the model's buffer with a random rollout of a slightly different policy."""
    buffer, observations = model.rollout_buffer, normal(T + 1, B, FEATURES)
    starts = RANDOM.random((T + 1, B)) < 0.3
    rewards, drift = 2 * normal(T, B), 0.3 * normal(T, B)
    actions, log_probs = [], []
    buffer.reset()
    for t in range(T):
        with torch.no_grad():
            action, value, log_prob = model.policy(torch.from_numpy(observations[t]))
            if isinstance(model.action_space, gym.spaces.Box):
                action = torch.from_numpy(action.numpy().round(3))
                value, log_prob, _ = model.policy.evaluate_actions(torch.from_numpy(observations[t]), action)
        actions.append(action.numpy())
        log_probs.append((log_prob.numpy() + drift[t]).round(4))
        rows = action.numpy().reshape(B, -1)
        buffer.add(observations[t], rows, rewards[t], starts[t], value, torch.from_numpy(log_probs[t]))
    with torch.no_grad():
        last = model.policy.predict_values(torch.from_numpy(observations[T]))
    buffer.compute_returns_and_advantage(last, starts[T])
    return {
        "observation": observations,
        "first": starts,
        "action": np.stack(actions),
        "log_prob": np.stack(log_probs),
        "reward": rewards,
        "values": np.concatenate((buffer.values, last.numpy().T)),
        "advantages": buffer.advantages,
    }


def on_policy(
    algorithm: str, model: OnPolicyAlgorithm, train: Callable[[OnPolicyAlgorithm], dict[str, float]]
) -> dict[str, Any]:
    """Several rollouts, and the parameters after the updates from each.

    Schedules begin with the first rollout, as in CleanRL. In Stable-Baselines3's ``learn`` they are
    one rollout further.
    """
    begun = parameters_of(model.policy)
    rollouts = []
    for number in range(ROLLOUTS):
        rollout = fill(model)
        model._update_current_progress_remaining(number * T * B, TOTAL_STEPS)
        terms = train(model)
        rollouts.append({**rollout, "terms": terms, "parameters": parameters_of(model.policy)})
    return {"algorithm": algorithm, "parameters": begun, "rollouts": rollouts}


def train(model: OnPolicyAlgorithm) -> dict[str, float]:
    """Calls the model's own update and returns the logged loss terms."""
    model.train()
    terms = logged(model)
    terms["entropy"] = -terms.pop("entropy_loss")
    terms.pop("approx_kl", None)  # of the last epoch only
    return terms


def logged(model: Any) -> dict[str, float]:
    return {name.removeprefix("train/"): float(value) for name, value in model.logger.name_to_value.items()}


def ppo(policy: dict[str, Any], actions: gym.Space, rate: float, clip: float) -> dict[str, Any]:
    model = make(
        PPO, actions, policy_kwargs=policy, learning_rate=linear(rate), clip_range=linear(0.2), gae_lambda=0.9,
        n_epochs=EPOCHS, batch_size=T * B, max_grad_norm=clip,
    )  # fmt: skip
    return on_policy("ppo", model, train)


def a2c(
    policy: dict[str, Any], actions: gym.Space, rate: float, clip: float, lambda_: float, normalizes: bool
) -> dict[str, Any]:
    model = make(
        A2C, actions, policy_kwargs=policy, learning_rate=linear(rate), gae_lambda=lambda_, max_grad_norm=clip,
        normalize_advantage=normalizes, use_rms_prop=False,
    )  # fmt: skip
    return on_policy("a2c", model, train)


def cleanrl_update(model: OnPolicyAlgorithm) -> dict[str, float]:
    """Makes the update of cleanrl/ppo.py. One minibatch per epoch: its order does not matter."""
    buffer: RolloutBuffer = model.rollout_buffer
    (data,) = buffer.get(None)
    optimizer, clip_coef, sums = model.policy.optimizer, 0.2, np.zeros(5)
    for _ in range(EPOCHS):
        newvalue, newlogprob, entropy = model.policy.evaluate_actions(
            data.observations, data.actions.long().flatten()
        )
        logratio = newlogprob - data.old_log_prob
        ratio = logratio.exp()
        with torch.no_grad():
            approx_kl = ((ratio - 1) - logratio).mean()
            clipfrac = ((ratio - 1.0).abs() > clip_coef).float().mean()
        mb_advantages = data.advantages
        mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
        pg_loss1 = -mb_advantages * ratio
        pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
        pg_loss = torch.max(pg_loss1, pg_loss2).mean()
        newvalue = newvalue.view(-1)
        v_loss_unclipped = (newvalue - data.returns) ** 2
        v_clipped = data.old_values + torch.clamp(newvalue - data.old_values, -clip_coef, clip_coef)
        v_loss_clipped = (v_clipped - data.returns) ** 2
        v_loss = 0.5 * torch.max(v_loss_unclipped, v_loss_clipped).mean()
        entropy_loss = entropy.mean()
        loss = pg_loss - model.ent_coef * entropy_loss + v_loss * model.vf_coef
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.policy.parameters(), model.max_grad_norm)
        optimizer.step()
        figures = (pg_loss, v_loss, entropy_loss, approx_kl, clipfrac)
        sums += [figure.item() for figure in figures]
    names = ("policy_gradient_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
    return dict(zip(names, (sums / EPOCHS).tolist(), strict=True))


def cleanrl() -> dict[str, Any]:
    policy = {**SHARED, **SGD}
    model = make(
        PPO, DISCRETE, policy_kwargs=policy, learning_rate=0.5, gae_lambda=0.9, batch_size=T * B, max_grad_norm=NO_CLIP
    )  # fmt: skip
    return on_policy("cleanrl", model, cleanrl_update)


def transitions(actions: gym.Space) -> tuple[dict[str, Any], ReplayBufferSamples]:
    discrete = isinstance(actions, gym.spaces.Discrete)
    action = RANDOM.integers(3, size=BATCH) if discrete else np.tanh(normal(BATCH, 2)).round(3)
    given = {
        "observation": normal(BATCH, FEATURES),
        "action": action,
        "reward": 2 * normal(BATCH),
        "discount": (0.9 * (RANDOM.random(BATCH) > 0.3)).astype(np.float32),
        "next_observation": normal(BATCH, FEATURES),
    }
    column = {name: torch.from_numpy(np.asarray(values)) for name, values in given.items()}
    ended = (column["discount"] == 0).float().unsqueeze(1)
    samples = ReplayBufferSamples(
        column["observation"],
        column["action"].reshape(BATCH, -1),
        column["next_observation"],
        ended,
        column["reward"].unsqueeze(1),
        torch.full((BATCH, 1), 0.9),
    )
    return given, samples


def off_policy(
    algorithm: Any, actions: gym.Space, net_arch: Any, draws: int = 0, **settings: Any
) -> dict[str, Any]:
    """Makes one update with plain gradient descent.

    The step size is 1, so that parameters change by the gradient. ``draws`` is how often the update draws noise.
    """
    policy: dict[str, Any] = {"net_arch": net_arch, **SGD}
    model = algorithm(
        "MlpPolicy", Spaces(actions), policy_kwargs=policy, learning_rate=1.0, buffer_size=1, device="cpu", **settings
    )  # fmt: skip
    model.set_logger(Logger(None, []))
    randomize(model.policy)
    if isinstance(model, SAC):
        # Leave out the ε in log(1 − a² + ε), for which actions must not be too close to the bounds.
        model.actor.action_dist.epsilon = 0.0
        model.actor.log_std.bias.data -= 1.0
    given, samples = transitions(actions)
    model.replay_buffer.sample = lambda *args, **kwargs: samples
    begun = parameters_of(model.policy)
    # Draw the noise that `train` draws again.
    torch.manual_seed(0)
    noise = [torch.randn(BATCH, *actions.shape).tolist() for _ in range(draws)]
    torch.manual_seed(0)
    model.train(1, BATCH)
    return {
        "parameters": begun,
        "transitions": given,
        "noise": noise,
        "terms": logged(model),
        "updated": parameters_of(model.policy),
    }


def main() -> None:
    torch.manual_seed(0)
    actor_critic = {"pi": [HIDDEN], "qf": [HIDDEN]}
    rms = {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"alpha": 0.99, "eps": 1e-5}}
    made = {
        "ppo, separate networks": ppo({**SEPARATE, **SGD}, CONTINUOUS, 0.2, NO_CLIP),
        "ppo, a shared network": ppo({**SHARED}, DISCRETE, 0.01, 0.5),
        "a2c, separate networks": a2c({**SEPARATE, **SGD}, CONTINUOUS, 0.2, NO_CLIP, 0.9, True),
        "a2c, a shared network": a2c({**SHARED, **rms}, DISCRETE, 0.1, 0.5, 1.0, False),
        "cleanrl": cleanrl(),
        "dqn": off_policy(DQN, DISCRETE, [HIDDEN], max_grad_norm=NO_CLIP),
        "ddpg": off_policy(DDPG, CONTINUOUS, actor_critic, tau=0.25),
        "td3": off_policy(
            TD3, CONTINUOUS, actor_critic, 1, tau=0.25, policy_delay=1, target_policy_noise=0.4
        ),
        "sac": off_policy(SAC, CONTINUOUS, actor_critic, 2, tau=0.25, ent_coef="auto_0.5"),
    }
    print(json.dumps(rounded(made)))


def rounded(made: Any) -> Any:
    """Rounds numbers to float32's digits, and converts arrays to lists."""
    if isinstance(made, dict):
        return {name: rounded(value) for name, value in made.items()}
    if isinstance(made, list | np.ndarray):
        return [rounded(value) for value in (made if isinstance(made, list) else made.tolist())]
    return float(f"{made:.8g}") if isinstance(made, float) else made


if __name__ == "__main__":
    main()
