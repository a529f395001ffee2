"""PPO on Pong with EnvPool, with the published settings of CleanRL's ppo_atari_envpool.py and more games.

CleanRL has 8 games and 4 minibatches of 256 steps. Here 32 games share a forward pass, and there are 16 minibatches of
256. Two threads step the games and compute the network in turn. Observations are kept as bytes instead of floats.
Written for this comparison after CleanRL (Huang et al. 2022) and Schulman et al. 2017 (arXiv 1707.06347).
"""

from __future__ import annotations

import math
import sys

from speed import Speed

seed, speed = int(sys.argv[1]), Speed(float(sys.argv[2]))

import envpool  # noqa: E402  (start-up counts imports)
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.distributions import Categorical  # noqa: E402

THREADS, GAMES, LENGTH = 2, 32, 128
EPOCHS, MINIBATCH = 4, 256
LEARNING_RATE, TOTAL_STEPS, EPSILON, GRADIENT_CLIP = 2.5e-4, 10_000_000, 1e-5, 0.5
DISCOUNT, LAMBDA, CLIP, ENTROPY, VALUE = 0.99, 0.95, 0.1, 0.01, 0.5


def initialized(layer: nn.Conv2d | nn.Linear, scale: float = math.sqrt(2)) -> nn.Module:
    nn.init.orthogonal_(layer.weight, scale)
    nn.init.zeros_(layer.bias)
    return layer


class Network(nn.Module):
    """The network of Mnih et al. 2015 with a head for the policy and one for the value."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            initialized(nn.Conv2d(4, 32, 8, 4)),
            nn.ReLU(),
            initialized(nn.Conv2d(32, 64, 4, 2)),
            nn.ReLU(),
            initialized(nn.Conv2d(64, 64, 3)),
            nn.ReLU(),
            nn.Flatten(),
            initialized(nn.Linear(64 * 7 * 7, 512)),
            nn.ReLU(),
        )
        self.policy = initialized(nn.Linear(512, actions), 0.01)
        self.value = initialized(nn.Linear(512, 1), 1)

    def forward(self, observations: Tensor) -> tuple[Categorical, Tensor]:
        hidden = self.body(observations / 255.0)
        return Categorical(logits=self.policy(hidden)), self.value(hidden).squeeze(-1)


def advantages_of(rewards: Tensor, values: Tensor, ended: Tensor) -> Tensor:
    """Returns generalized advantage estimates ``[LENGTH, GAMES]``.

    ``values`` has one more row, the value after the rollout. ``ended[t]`` is 1 where step t ended an episode.
    """
    advantages, last = torch.zeros_like(rewards), torch.zeros(GAMES)
    for t in reversed(range(LENGTH)):
        continues = 1 - ended[t]
        delta = rewards[t] + DISCOUNT * continues * values[t + 1] - values[t]
        advantages[t] = last = delta + DISCOUNT * LAMBDA * continues * last
    return advantages


def loss_of(network: Network, batch: dict[str, Tensor]) -> Tensor:
    """The clipped policy, value and entropy losses of a minibatch."""
    distribution, values = network(batch["observations"])
    ratio = (distribution.log_prob(batch["actions"]) - batch["log_probabilities"]).exp()
    advantages = batch["advantages"]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy = -torch.min(advantages * ratio, advantages * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
    clipped = batch["values"] + (values - batch["values"]).clamp(-CLIP, CLIP)
    errors = torch.max((values - batch["returns"]).square(), (clipped - batch["returns"]).square())
    return policy + VALUE * 0.5 * errors.mean() - ENTROPY * distribution.entropy().mean()


torch.set_num_threads(THREADS)
torch.manual_seed(seed)
games = envpool.make(
    "Pong-v5",
    env_type="gymnasium",
    num_envs=GAMES,
    num_threads=THREADS,
    episodic_life=True,
    reward_clip=True,
    seed=seed,
)
network = Network(games.action_space.n)
optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, eps=EPSILON)
observations = torch.zeros((LENGTH, GAMES, 4, 84, 84), dtype=torch.uint8)
actions = torch.zeros((LENGTH, GAMES), dtype=torch.int64)
log_probabilities, rewards, ended = (torch.zeros((LENGTH, GAMES)) for _ in range(3))
values = torch.zeros((LENGTH + 1, GAMES))
observation = torch.as_tensor(games.reset()[0])
steps = updates = 0
over = False
while not over:
    # Collect a rollout.
    optimizer.param_groups[0]["lr"] = LEARNING_RATE * max(0.0, 1 - steps / TOTAL_STEPS)
    with torch.no_grad():
        for t in range(LENGTH):
            distribution, values[t] = network(observation)
            observations[t], actions[t] = observation, distribution.sample()
            log_probabilities[t] = distribution.log_prob(actions[t])
            after, reward, terminated, truncated, _ = games.step(actions[t].numpy())
            rewards[t], ended[t] = torch.as_tensor(reward), torch.as_tensor(terminated | truncated)
            observation = torch.as_tensor(after)
        values[LENGTH] = network(observation)[1]
    steps += LENGTH * GAMES

    # Update from its minibatches.
    advantages = advantages_of(rewards, values, ended)
    data = {
        "observations": observations,
        "actions": actions,
        "log_probabilities": log_probabilities,
        "advantages": advantages,
        "values": values[:-1],
        "returns": advantages + values[:-1],
    }
    data = {name: column.flatten(0, 1) for name, column in data.items()}
    for _ in range(EPOCHS):
        for chosen in torch.randperm(LENGTH * GAMES).split(MINIBATCH):
            loss = loss_of(network, {name: column[chosen] for name, column in data.items()})
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), GRADIENT_CLIP)
            optimizer.step()
            updates += 1
    over = speed.on_iteration(steps, updates)
speed.report()
