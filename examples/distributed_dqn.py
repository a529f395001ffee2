"""Distributed DQN: samplers insert transitions into a prioritized replay, from which the learner samples.

Double Q-learning (van Hasselt et al. 2016), prioritized replay (Schaul et al. 2016), and a different ε in each environment
(Horgan et al. 2018). Any process may die at any time. User code, found beside the manifest.
"""

from itertools import count

import numpy as np
import torch
from rltraining_trainer.networks import ActorCritic
from rltraining_trainer.world import Replay, World, flatten_parameters
from torch import Tensor
from torch.nn.functional import smooth_l1_loss


def memory(world: World) -> Replay:
    """Both roles describe the same replay: {capacity, batch_size, minimum, samples_per_insert}."""
    return world.replay(**world.parameters["replay"])


def q_values(network: ActorCritic, observation: Tensor) -> Tensor:
    """The outputs of the policy, ``[B, n]``: its most likely action is then the one of the highest value."""
    return network.policy(observation, ())[0]


def learner(world: World) -> None:
    # Build the networks and the optimizer, and continue from the newest checkpoint if there is one.
    settings = world.parameters
    policy, _ = world.actor_critic()
    target, _ = world.actor_critic()
    target.load_state_dict(policy.state_dict())
    parameters, followed = flatten_parameters(policy), flatten_parameters(target)
    optimizer = torch.optim.Adam([parameters], lr=settings["learningRate"])
    replay = memory(world)
    run = world.run(policy, target=target, optimizer=optimizer)
    run.publish(parameters)

    while run.active():
        # Take a batch, unless there is too little data yet.
        batch = replay.sample()
        if batch is None:
            continue

        # The online network chooses the next action, the target network values it.
        with torch.no_grad():
            best = q_values(policy, batch["next_observation"]).argmax(1, keepdim=True)
            value = q_values(target, batch["next_observation"]).gather(1, best).squeeze(1)
            goal = batch["reward"] + batch["discount"] * value
        chosen = batch["action"].unsqueeze(1)
        predicted = q_values(policy, batch["observation"]).gather(1, chosen).squeeze(1)
        loss = (batch.weights * smooth_l1_loss(predicted, goal, reduction="none")).mean()

        # Step, let the target network follow, and return the new priorities.
        parameters.grad.zero_()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            followed.lerp_(parameters, settings["targetRate"])
        replay.update_priorities(batch, (goal - predicted).detach().abs() + 1e-6)

        # Send samplers the new parameters when they ask, and count the update.
        run.publish(parameters)
        run.update(loss=loss)


def sampler(world: World) -> None:
    settings, size = world.parameters, world.spec.environment.num_envs
    policy, actions = world.actor_critic()
    environments, replay = world.environments(), memory(world)
    seed = world.start(flatten_parameters(policy))  # with the learner's parameters

    # Of all environments of the job, the first explores most and the last hardly; the returns of the better half count.
    place = np.arange(world.index * size, (world.index + 1) * size)
    total = len(world.members("sampler")) * size
    epsilon = 0.4 ** (1 + 7 * place / max(1, total - 1))
    greedier = place >= total // 2

    random = np.random.default_rng(seed)
    observation, returns = environments.reset(seed), np.zeros(size)
    for number in count():
        # Ask for newer parameters now and then. They arrive in `extend`.
        if number % settings["refreshSteps"] == 0:
            replay.refresh()

        # Act ε-greedily.
        with torch.no_grad():
            values = q_values(policy, torch.from_numpy(observation))
        exploring = random.random(size) < epsilon
        action = np.where(exploring, random.integers(values.shape[1], size=size), actions.mode(values))
        step = environments.step(actions.to_environment(torch.from_numpy(action)))

        # Insert the transitions. Where an environment only reset itself there is none.
        after = step.observation if step.final is None else step.final
        transitions = {
            "observation": observation,
            "action": action,
            "reward": np.float32(settings["rewardScale"] * step.reward),
            "discount": np.float32(settings["discount"] * ~step.terminated),
            "next_observation": after,
        }
        replay.extend({name: rows[step.valid] for name, rows in transitions.items()})

        # Count steps, and returns of episodes that ended.
        returns += step.reward * step.valid
        world.count(int(step.valid.sum()), returns[step.over & greedier], episodes=int(step.over.sum()))
        returns[step.over] = 0.0
        observation = step.observation
