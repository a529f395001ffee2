"""Whole updates equal Stable-Baselines3 and CleanRL (tests/vectors/make_sb3_references.py)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltraining_api.algorithms import A2c, Adam, DdpgApex, DqnApex, Optimizer, Ppo, RmsProp, Sac, Sgd, Td3
from rltraining_api.network import Mlp, Network
from rltraining_trainer.algorithms import sac, td3
from rltraining_trainer.algorithms.ddpg import DdpgLearner
from rltraining_trainer.algorithms.dqn import DqnLearner
from rltraining_trainer.algorithms.returns import generalized_advantages
from rltraining_trainer.algorithms.rollout_learner import RolloutLearner
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.dataflow import NO_MOMENTS
from rltraining_trainer.networks import build_actor_critic, build_deterministic, build_q_network
from rollouts import kind_of
from torch import Tensor, nn

REFERENCES = json.loads((Path(__file__).parents[2] / "vectors" / "sb3_references.json").read_text())
OBSERVATION = spaces.Box(-1, 1, (3,), np.float32)
DISCRETE, CONTINUOUS = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
TOTAL_STEPS = 60
SGD = Optimizer(sgd=Sgd())

SHARED = {
    "torso.0": "features_extractor.layer",
    "policy_head": "action_net",
    "value_head": "value_net",
}
SEPARATE = {
    "torso.0": "mlp_extractor.policy_net.0",
    "value_torso.0": "mlp_extractor.value_net.0",
    "policy_head": "action_net",
    "value_head": "value_net",
}
Q_NETWORK = {"torso.0": "q_net.0", "head": "q_net.2"}
ACTOR = {"actor.0.0": "actor{}.mu.0", "actor.1": "actor{}.mu.2"}
TWIN_CRITICS = {
    "critics.0.body.0": "critic{}.qf0.0",
    "critics.0.head": "critic{}.qf0.2",
    "critics.1.body.0": "critic{}.qf1.0",
    "critics.1.head": "critic{}.qf1.2",
}
DDPG = {**ACTOR, "critic.0.0": "critic{}.qf0.0", "critic.1": "critic{}.qf0.2"}
TD3 = {**ACTOR, **TWIN_CRITICS}
SAC = {
    "actor.0.0": "actor.latent_pi.0",
    "actor.1": "actor.heads",
    "temperature": "temperature",
    **TWIN_CRITICS,
}
"""Layer names here and in Stable-Baselines3; ``{}`` stands for the network or its target."""
TERMS = {
    "policy_gradient_loss": "policy_loss",
    "policy_loss": "policy_loss",
    "value_loss": "baseline_loss",
    "entropy": "entropy",
    "approx_kl": "kl",
    "clip_fraction": "clip_fraction",
    "explained_variance": "explained_variance",
}
COMMON: dict[str, Any] = {"discount": 0.97, "baseline_cost": 0.4, "entropy_cost": 0.02}
PPO = {
    **COMMON,
    "epochs": 2,
    "minibatches": 1,
    "gae_lambda": 0.9,
    "clip_range": 0.2,
    "advantage_normalization_per": "Minibatch",
}
LINEAR = {"learning_rate_schedule": "Linear"}
RELU = Network(mlp=Mlp(hidden_sizes=(4,), activation="Relu"))
REPLAYED: dict[str, Any] = {
    "optimizer": SGD,
    "gradient_clip": None,
    "target_update_period": 1,
    "target_update_rate": 0.25,
}
RMS = Optimizer(rmsprop=RmsProp(alpha=0.99, epsilon=1e-5))


def flat(network: nn.Module, layers: dict[str, str], theirs: dict[str, Any]) -> Tensor:
    """Returns their parameters as the flat vector of our network."""
    parts = []
    for name, parameter in network.named_parameters():
        layer, _, kind = name.rpartition(".")
        values = torch.tensor(theirs[f"{layers[layer]}.{kind}" if layer else name])
        parts.append(values.reshape(parameter.shape).flatten())
    return torch.cat(parts)


def unroll_of(rollout: dict[str, Any]) -> Unroll:
    first = torch.tensor(rollout["first"])
    valid = torch.ones_like(first[1:])
    return Unroll(
        observation=torch.tensor(rollout["observation"]),
        action=torch.tensor(rollout["action"]),
        log_prob=torch.tensor(rollout["log_prob"]),
        reward=torch.tensor(rollout["reward"]),
        ended=first[1:],
        valid=valid,
        first=first,
        state=(),
        moments=NO_MOMENTS,
        episodes=first[1:].sum(0),
        episode_return=torch.zeros(0),
        episode_length=torch.zeros(0, dtype=torch.int64),
    )


def check(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.detach(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (
            "ppo, separate networks",
            Ppo(**PPO, **LINEAR, clip_range_schedule="Linear", learning_rate=0.2, optimizer=SGD, gradient_clip=None),
        ),
        (
            "ppo, a shared network",
            Ppo(
                **PPO, **LINEAR, clip_range_schedule="Linear", learning_rate=0.01, gradient_clip=0.5,
                optimizer=Optimizer(adam=Adam(epsilon=1e-5)),
            ),
        ),
        (
            "a2c, separate networks",
            A2c(**COMMON, **LINEAR, learning_rate=0.2, optimizer=SGD, gradient_clip=None, gae_lambda=0.9,
                advantage_normalization=True),
        ),
        (
            "a2c, a shared network",
            A2c(**COMMON, **LINEAR, learning_rate=0.1, optimizer=RMS, gradient_clip=0.5),
        ),
        (
            "cleanrl",
            Ppo(**{**PPO, "baseline_cost": 0.2}, learning_rate=0.5, optimizer=SGD, gradient_clip=None, value_clip=0.2),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_updates_from_rollouts(name: str, settings: A2c | Ppo) -> None:
    """CleanRL halves squared errors once more, so its weight of 0.4 is 0.2 here."""
    reference = REFERENCES[name]
    shared = "separate" not in name
    network, distribution = build_actor_critic(
        Network(mlp=Mlp(hidden_sizes=(4,)), value_network="Shared" if shared else "Separate"),
        OBSERVATION,
        DISCRETE if shared else CONTINUOUS,
    )
    layers = SHARED if shared else SEPARATE
    learner = RolloutLearner(network, distribution, settings, kind_of(settings), TOTAL_STEPS)
    learner.parameters.copy_(flat(network, layers, reference["parameters"]))

    for rollout in reference["rollouts"]:
        values, rewards = torch.tensor(rollout["values"]), torch.tensor(rollout["reward"])
        discounts = settings.discount * ~torch.tensor(rollout["first"])[1:]
        advantages = generalized_advantages(rewards, discounts, values, settings.gae_lambda)
        check(advantages, torch.tensor(rollout["advantages"]))

        found = learner.step([unroll_of(rollout)])

        theirs = dict(rollout["terms"])
        if name == "cleanrl":
            theirs["value_loss"] *= 2
        known = {TERMS[term]: value for term, value in theirs.items() if TERMS.get(term) in found}
        assert {term: found[term] for term in known} == pytest.approx(known, rel=1e-5, abs=1e-5)
        check(learner.parameters, flat(network, layers, rollout["parameters"]))


def transitions_of(reference: dict[str, Any]) -> Any:
    return {name: torch.tensor(values) for name, values in reference["transitions"].items()}


def test_an_update_of_q_values() -> None:
    """Compares with the plain DQN of Stable-Baselines3, which is neither double nor dueling."""
    reference = REFERENCES["dqn"]
    network, _ = build_q_network(RELU, OBSERVATION, DISCRETE, dueling=False)
    settings = DqnApex(dueling=False, double_q=False, learning_rate=1.0, optimizer=SGD, gradient_clip=None)
    learner = DqnLearner(network, settings)

    def theirs(parameters: str, prefix: str = "q_net.") -> Tensor:
        layers = {ours: prefix + layer for ours, layer in Q_NETWORK.items()}
        return flat(network, layers, reference[parameters])

    learner.set_state(
        {**learner.get_state(), "parameters": theirs("parameters"), "target": theirs("parameters", "q_net_target.")}
    )  # fmt: skip

    _, terms = learner.step(transitions_of(reference))

    assert terms["loss"].item() == pytest.approx(reference["terms"]["loss"], rel=1e-5)
    check(learner.parameters, theirs("updated"))


def ddpg_learner(rate: float) -> DdpgLearner:
    network, _ = build_deterministic(RELU, OBSERVATION, CONTINUOUS)
    rates = {"actor_learning_rate": rate, "critic_learning_rate": rate}
    return DdpgLearner(network, DdpgApex(**rates, **REPLAYED, action_gradient_clip=None))


def td3_learner(rate: float) -> td3.Td3Learner:
    network, _ = td3.build_network(RELU, OBSERVATION, CONTINUOUS)
    return td3.Td3Learner(network, Td3(learning_rate=rate, **REPLAYED, policy_delay=1, target_noise=0.4))


def sac_learner(rate: float) -> sac.SacLearner:
    network, actions = sac.build_network(RELU, OBSERVATION, CONTINUOUS)
    return sac.SacLearner(network, actions, Sac(learning_rate=rate, **REPLAYED, initial_temperature=0.5))


def check_actor_critic(
    reference: dict[str, Any],
    layers: dict[str, str],
    learner_of: Callable[[float], DdpgLearner | td3.Td3Learner | sac.SacLearner],
    critic_rate: float,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Compares the critics after one update, and the actor after another one.

    Their actor learns from the updated critics.

    Returns:
        The terms of both updates.
    """
    # Their noise is that of the observations, if they sample actions there, and of the next observations.
    noise = cycle([torch.tensor(values) for values in reversed(reference["noise"])])
    monkeypatch.setattr(torch, "randn_like", lambda like: next(noise))
    learner = learner_of(critic_rate)
    network, state = learner.network, learner.get_state()
    actor = sum(parameter.numel() for parameter in network.actor.parameters())
    critics = -sum(p.numel() for name, p in network.named_parameters() if name.startswith("critic"))

    def theirs(parameters: str, target: str = "") -> Tensor:
        named = {ours: layer.format(target) for ours, layer in layers.items()}
        return flat(network, named, reference[parameters])

    begun, updated = theirs("parameters"), theirs("updated")
    state["target"] = theirs("parameters", "_target")
    learner.set_state({**state, "parameters": begun})
    _, critic_terms = learner.step(transitions_of(reference))
    check(learner.parameters[critics:], updated[critics:])
    check(learner.get_state()["target"][critics:], theirs("updated", "_target")[critics:])

    learner = learner_of(1.0)
    learner.set_state({**state, "parameters": torch.cat((begun[:critics], updated[critics:]))})
    _, actor_terms = learner.step(transitions_of(reference))
    check(learner.parameters[:actor], updated[:actor])
    return critic_terms, actor_terms


@pytest.mark.parametrize(
    ("name", "layers", "learner_of"),
    [("ddpg", DDPG, ddpg_learner), ("td3", TD3, td3_learner)],
    ids=["ddpg", "td3"],
)
def test_an_update_of_a_deterministic_policy(
    name: str, layers: dict[str, str], learner_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their critics minimise δ², ours ½ δ² like D4PG."""
    reference = REFERENCES[name]
    critic_terms, actor_terms = check_actor_critic(reference, layers, learner_of, 2.0, monkeypatch)
    assert 2 * critic_terms["critic_loss"].item() == pytest.approx(
        reference["terms"]["critic_loss"], rel=1e-5
    )
    assert actor_terms["policy_value"].item() == pytest.approx(-reference["terms"]["actor_loss"], rel=1e-5)


def test_an_update_of_a_squashed_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their temperature's loss has log α where ours has α (equation 18 of the paper)."""

    def renamed(parameters: dict[str, Any]) -> dict[str, Any]:
        """Joins the layers of mean and log standard deviation, which are one here."""
        mean, log_std = (
            {kind: parameters[f"actor.{head}.{kind}"] for kind in ("weight", "bias")}
            for head in ("mu", "log_std")
        )
        heads = {f"actor.heads.{kind}": mean[kind] + log_std[kind] for kind in mean}
        return {**parameters, **heads, "temperature.log": math.log(0.5)}

    given = REFERENCES["sac"]
    action = torch.tensor(given["transitions"]["action"]).atanh().tolist()  # stored before the tanh
    reference = {
        **given,
        "transitions": {**given["transitions"], "action": action},
        "parameters": renamed(given["parameters"]),
        "updated": renamed(given["updated"]),
    }
    terms = given["terms"]
    critic_terms, actor_terms = check_actor_critic(reference, SAC, sac_learner, 1.0, monkeypatch)
    assert critic_terms["critic_loss"].item() == pytest.approx(terms["critic_loss"], rel=1e-5)
    assert actor_terms["actor_loss"].item() == pytest.approx(terms["actor_loss"], rel=1e-5)
    temperature_loss = terms["ent_coef_loss"] / math.log(0.5) * 0.5
    assert critic_terms["temperature_loss"].item() == pytest.approx(temperature_loss, rel=1e-5)
