"""REINFORCE (Williams 1992): samplers play whole episodes, learners take a step with the mean of their gradients.
There may be several of both, and any of them may die at any time. User code, found beside the manifest."""

from itertools import accumulate

import numpy as np
import torch
from rltraining_trainer.world import GroupChanged, World, flatten_parameters, load_flat


def learner(world: World) -> None:
    policy, _ = world.actor_critic()
    parameters = flatten_parameters(policy)
    optimizer = torch.optim.Adam([parameters], lr=world.parameters["learningRate"])
    run = world.run(policy, optimizer=optimizer)
    while run.active():
        world.share("policy", parameters)
        mine = world.members("sampler").part(world.group.rank, world.group.size)
        played = [answer for answer in mine.call("play", timeout=5.0) if answer is not None]
        gradient = sum((answer["gradient"] for answer in played), torch.zeros_like(parameters))
        try:
            count = world.group.sum(gradient, len(played))
        except GroupChanged:  # a learner died or joined: discard the gradient
            continue
        if count:
            parameters.grad = gradient / count
            optimizer.step()
            returns = torch.cat([torch.zeros(0), *(answer["returns"] for answer in played)])
            run.update(sum(answer["steps"] for answer in played), returns)


def sampler(world: World) -> None:
    policy, distribution = world.actor_critic()
    parameters, discount = flatten_parameters(policy), world.parameters["discount"]
    environments = world.environments()
    environments.reset(world.seed)

    def play(caller: str, _: None) -> dict:
        load_flat(parameters, world.member(caller).shared("policy").value)
        observation, alive = environments.reset(None), np.ones(world.spec.environment.num_envs, bool)
        log_probs, rewards, lived = [], [], []
        while alive.any():  # one episode in each environment
            output, _ = policy.policy(torch.from_numpy(observation), ())
            action = distribution.sample(output.detach(), distribution.noise(len(output)))
            step = environments.step(distribution.to_environment(action))
            log_probs.append(distribution.log_prob(output, action))
            rewards.append(torch.from_numpy(step.reward * alive))
            lived.append(torch.from_numpy(alive))
            observation, alive = step.observation, alive & ~step.over
        to_go = [*accumulate(reversed(rewards), lambda later, reward: reward + discount * later)]
        value, mask = torch.stack(to_go).flip(0), torch.stack(lived)  # [T, B]
        advantage = (value - value[mask].mean()) / (value[mask].std() + 1e-6)
        parameters.grad.zero_()
        (-torch.stack(log_probs) * advantage)[mask].mean().backward()
        return {"gradient": parameters.grad.clone(), "returns": sum(rewards), "steps": int(mask.sum())}

    world.register("play", play)
    world.start()
