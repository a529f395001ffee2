"""A3C as published, in shared memory (Hogwild): three processes update the same parameters without locks.

The settings equal examples/cartpole-a3c-published.yaml: one environment in each process, rollouts of
20 steps, RMSProp with shared statistics. The rule is from the literature: a 0.9 / 0.1 smoothed
return of at least 190 of 200, five times in succession. Written for this comparison after Mnih et
al. 2016 (arXiv 1602.01783) and public implementations with torch.multiprocessing.
"""

from __future__ import annotations

import sys
import time
from typing import Any

START = time.monotonic()

import gymnasium  # noqa: E402  (start-up counts imports)
import torch  # noqa: E402
from score import report  # noqa: E402
from torch import Tensor, nn  # noqa: E402

PROCESSES, ROLLOUT, DISCOUNT = 3, 20, 0.99
LEARNING_RATE, ALPHA, EPSILON, CLIP = 0.006, 0.99, 0.1, 40.0
ENTROPY, VALUE, REWARD_SCALE = 0.01, 0.25, 0.05


class Network(nn.Module):
    """Separate policy and value networks of 64-64 units."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.value = (
            nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))
            for outputs in (2, 1)
        )

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return torch.log_softmax(self.policy(observations), -1), self.value(observations).squeeze(-1)


def loss_of(network: Network, rollout: list[tuple[Tensor, int, float]], last: Tensor, ended: bool) -> Tensor:
    """The sum over a rollout of policy, value and entropy losses, with returns bootstrapped from the last observation."""
    observations, actions, rewards = zip(*rollout, strict=True)
    log_probabilities, values = network(torch.stack(observations))
    with torch.no_grad():
        value = 0.0 if ended else float(network(last)[1])
    targets = []
    for reward in reversed(rewards):
        value = reward * REWARD_SCALE + DISCOUNT * value
        targets.append(value)
    advantages = torch.tensor(targets[::-1]) - values
    chosen = log_probabilities.gather(1, torch.tensor(actions).unsqueeze(1)).squeeze(1)
    entropy = -(log_probabilities.exp() * log_probabilities).sum()
    return -(chosen * advantages.detach()).sum() + VALUE * advantages.square().sum() - ENTROPY * entropy


def work(
    rank: int, seed: int, shared: Network, squares: list[Tensor], steps: Any, over: Any, returns: Any
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1000 * seed + rank)
    environment = gymnasium.make("CartPole-v1", max_episode_steps=200)
    observation = torch.as_tensor(environment.reset(seed=1000 * seed + rank)[0])
    network, episode_return = Network(), 0.0
    while not over.is_set():
        # Collect a rollout with a copy of the shared parameters.
        network.load_state_dict(shared.state_dict())
        rollout: list[tuple[Tensor, int, float]] = []
        ended = done = False
        while len(rollout) < ROLLOUT and not done:
            with torch.no_grad():
                action = int(torch.multinomial(network(observation)[0].exp(), 1))
            after, reward, ended, truncated, _ = environment.step(action)
            rollout.append((observation, action, float(reward)))
            observation, done = torch.as_tensor(after), ended or truncated
            episode_return += float(reward)
        # Apply its gradient to the shared parameters.
        gradients = torch.autograd.grad(
            loss_of(network, rollout, observation, ended), list(network.parameters())
        )
        norm = torch.sqrt(sum((gradient.square().sum() for gradient in gradients), torch.tensor(0.0)))
        scale = torch.clamp(CLIP / (norm + 1e-6), max=1.0)
        with torch.no_grad():
            for parameter, square, gradient in zip(shared.parameters(), squares, gradients, strict=True):
                gradient = gradient * scale
                square.mul_(ALPHA).addcmul_(gradient, gradient, value=1 - ALPHA)
                parameter.addcdiv_(gradient, torch.sqrt(square + EPSILON), value=-LEARNING_RATE)
        with steps.get_lock():
            steps.value += len(rollout)
        if done:
            returns.put(episode_return)
            observation, episode_return = torch.as_tensor(environment.reset()[0]), 0.0
    returns.cancel_join_thread()


if __name__ == "__main__":
    seed, limit = int(sys.argv[1]), float(sys.argv[2])
    processes = torch.multiprocessing.get_context("fork")
    torch.manual_seed(seed)
    shared = Network().share_memory()
    squares = [torch.ones_like(parameter).share_memory_() for parameter in shared.parameters()]
    steps, over, returns = processes.Value("q", 0), processes.Event(), processes.Queue()
    startup = time.monotonic() - START
    begin = time.monotonic()
    workers = [
        processes.Process(target=work, args=(rank, seed, shared, squares, steps, over, returns))
        for rank in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    smoothed = times = 0.0
    while times < 5 and time.monotonic() - begin < limit:
        smoothed = 0.9 * smoothed + 0.1 * returns.get()
        times = times + 1 if smoothed >= 190 else 0
    over.set()
    report(times == 5, time.monotonic() - begin, steps.value, startup)
    for worker in workers:
        worker.join()
