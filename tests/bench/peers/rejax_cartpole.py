"""PPO of rejax on CartPole-v1: environment, rollouts and updates in one compiled JAX program, as in PureJaxRL.

The program reports nothing before its end. It is therefore run twice: with an evaluation of 128 episodes in each
iteration, for the number of steps, and without any, for the rate. Both times it is compiled first.
"""

from __future__ import annotations

import sys
import time

from score import ENVIRONMENT, RETURN, report

seed = int(sys.argv[1])
start = time.monotonic()

import jax  # noqa: E402  (start-up counts imports)
import numpy as np  # noqa: E402
from rejax import PPO  # noqa: E402

ENVIRONMENTS, ROLLOUT, TOTAL = 4, 128, 499_712
SETTINGS = {  # the settings of PureJaxRL's ppo.py
    "env": ENVIRONMENT,
    "agent_kwargs": {"activation": "tanh", "hidden_layer_sizes": (64, 64)},
    "num_envs": ENVIRONMENTS,
    "num_steps": ROLLOUT,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_eps": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "total_timesteps": TOTAL,
    "skip_initial_evaluation": True,
}

# Measure the rate: an iteration's evaluation does nothing.
silent = PPO.create(**SETTINGS, eval_freq=TOTAL).replace(eval_callback=lambda algorithm, state, rng: 0)
train = jax.jit(silent.train).lower(jax.random.PRNGKey(seed)).compile()
startup = time.monotonic() - start
begin = time.monotonic()
jax.block_until_ready(train(jax.random.PRNGKey(seed)))
rate = TOTAL / (time.monotonic() - begin)

# Count the steps until the evaluated policy reaches the threshold.
every = ENVIRONMENTS * ROLLOUT * 8
evaluated = PPO.create(**SETTINGS, eval_freq=every)
_, (_, returns) = jax.jit(evaluated.train)(jax.random.PRNGKey(seed))
reached = np.flatnonzero(np.asarray(returns).mean(axis=1) >= RETURN)
steps = int((reached[0] + 1) * every) if len(reached) else TOTAL
report(bool(len(reached)), steps / rate, steps, startup)
