"""Prints tests/vectors/references.json: the results of rlax, optax and dqn_zoo for random inputs.

Needs packages that the project does not need: rlax 0.1.9, optax 0.2.8, jax 0.10.2, dm-env,
python-snappy, dm-haiku, distrax and pillow. Also needs dqn_zoo, which is not a package: a checkout of
github.com/google-deepmind/dqn_zoo at commit 45061f4b.

    PYTHONPATH=dqn_zoo python tests/vectors/make_references.py > tests/vectors/references.json
"""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import dm_env  # noqa: E402
import optax  # noqa: E402
import rlax  # noqa: E402
from dqn_zoo import replay as dqn_zoo  # noqa: E402

T, ACTIONS, SIZE = 7, 3, 5
RANDOM = np.random.default_rng(24)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape)


def rollout() -> dict[str, np.ndarray]:
    discounts = 0.97 * (RANDOM.random(T) > 0.2)
    return {"rewards": normal(T), "discounts": discounts, "values": normal(T + 1)}


def vtrace() -> dict[str, Any]:
    """Returns targets only.

    With lambda below 1, rlax mixes values into the bootstrap of advantages, unlike the paper.
    """
    given = {**rollout(), "log_rhos": normal(T)}
    values = given["values"]

    def of(lambda_: float) -> Any:
        return rlax.vtrace_td_error_and_advantage(
            values[:-1], values[1:], given["rewards"], given["discounts"], np.exp(given["log_rhos"]),
            lambda_=lambda_, clip_rho_threshold=1.2, clip_pg_rho_threshold=1.1,
        )  # fmt: skip

    whole, decayed = of(1.0), of(0.9)
    return {
        **given,
        "targets": whole.errors + values[:-1],
        "advantages": whole.pg_advantage,
        "decayed": decayed.errors + values[:-1],
    }


def gae() -> dict[str, Any]:
    given = rollout()
    found = rlax.truncated_generalized_advantage_estimation(
        given["rewards"], given["discounts"], 0.95, given["values"]
    )
    return {**given, "advantages": found}


def n_step() -> dict[str, Any]:
    given = rollout()
    found = rlax.n_step_bootstrapped_returns(given["rewards"], given["discounts"], given["values"][1:], 3)
    return {**given, "returns": found}


def double_q() -> dict[str, Any]:
    given = {"returns": normal(T), "discounts": RANDOM.random(T), "q": 3 * normal(T, ACTIONS)}
    given |= {"target": 3 * normal(T, ACTIONS), "selector": normal(T, ACTIONS)}
    actions = np.zeros(T, int)
    errors = jax.vmap(rlax.double_q_learning)(
        given["q"], actions, given["returns"], given["discounts"], given["target"], given["selector"]
    )
    huber = rlax.huber_loss(errors)
    return {**given, "errors": errors, "huber": huber, "squared": rlax.l2_loss(errors)}


def rmsprop(*, centered: bool, momentum: float | None, epsilon: float) -> dict[str, Any]:
    optimizer = optax.rmsprop(
        optax.linear_schedule(0.01, 0.0, 10), decay=0.95, eps=epsilon, initial_scale=1.0, centered=centered,
        momentum=momentum,
    )  # fmt: skip
    parameters, gradients = normal(SIZE), np.logspace(-4, 1, SIZE) * normal(8, SIZE)
    found, state, steps = parameters, optimizer.init(parameters), []
    for gradient in gradients:
        updates, state = optimizer.update(gradient, state)
        found = optax.apply_updates(found, updates)
        steps.append(found)
    settings = {"centered": centered, "momentum": momentum or 0.0, "epsilon": epsilon, "alpha": 0.95}
    return {"settings": settings, "parameters": parameters, "gradients": gradients, "steps": steps}


def n_step_transitions() -> dict[str, Any]:
    """Returns two episodes: one terminates, one is truncated."""
    given = {"rewards": normal(9), "terminated": np.arange(9) == 3, "truncated": np.arange(9) == 8}
    accumulator, found = dqn_zoo.NStepTransitionAccumulator(3), []
    episode_begins = True
    for reward, terminated, truncated in zip(*given.values(), strict=True):
        if episode_begins:
            found += accumulator.step(dm_env.restart(0.0), 0)
        kind = dm_env.StepType.LAST if terminated or truncated else dm_env.StepType.MID
        timestep = dm_env.TimeStep(kind, reward, 0.9 * (not terminated), 0.0)
        found += accumulator.step(timestep, 0)
        episode_begins = bool(terminated or truncated)
    return {
        **given,
        "returns": [transition.r_t for transition in found],
        "n_step_discounts": [transition.discount_t for transition in found],
    }


def prioritized() -> dict[str, Any]:
    """Returns probabilities and importance weights of all items, and the gradient of the weighted loss."""
    priorities, errors, items = RANDOM.exponential(size=T), normal(T), range(T)
    distribution = dqn_zoo.PrioritizedDistribution(0.6, 0.0, np.random.RandomState(0))
    distribution.add_priorities(items, np.ones(T))
    distribution.update_priorities(items, priorities)
    powers = np.asarray(distribution.get_exponentiated_priorities(items))
    probabilities = powers / powers.sum()
    weights = dqn_zoo.importance_sampling_weights(probabilities, 1 / T, 0.4, normalize=True)
    slope = jax.grad(lambda values: (rlax.l2_loss(errors - values) * weights).mean())(np.zeros(T))
    return {
        "priorities": priorities,
        "probabilities": probabilities,
        "weights": weights,
        "errors": errors,
        "slope": slope,
    }


def quantiles() -> dict[str, Any]:
    """Returns the loss of each row, and its derivative with respect to the quantiles. Uses a separate generator,
    so that the other references have not changed."""
    random, count = np.random.default_rng(25), 4
    found, target = random.normal(size=(T, count)) * 2, random.normal(size=(T, count)) * 2
    middles = (np.arange(count) + 0.5) / count

    def loss(row: Any, target: Any) -> Any:
        return rlax.quantile_regression_loss(row, middles, target, huber_param=1.0)

    pairs = list(zip(found, target, strict=True))
    return {
        "quantiles": found,
        "target": target,
        "loss": [loss(*pair) for pair in pairs],
        "slope": [jax.grad(loss)(*pair) for pair in pairs],
    }


def rescaling() -> dict[str, Any]:
    """Returns values before and after the rescaling of R2D2. Uses a separate generator like ``quantiles``."""
    values = np.random.default_rng(26).normal(size=T) * np.logspace(-2, 4, T)
    return {"values": values, "scaled": [rlax.signed_hyperbolic(value, 1e-3) for value in values]}


def rescaled_double_q() -> dict[str, Any]:
    """Returns the errors of R2D2 in a sequence, in which an episode terminates. Uses a separate generator, like
    ``quantiles``."""
    random = np.random.default_rng(28)
    given = {"rewards": 3 * random.normal(size=T), "terminated": np.arange(T) == 1}
    given |= {name: 3 * random.normal(size=(T + 1, ACTIONS)) for name in ("q", "target")}
    actions = random.integers(ACTIONS, size=T)
    errors = rlax.transformed_n_step_q_learning(
        given["q"][:-1], actions, given["target"][1:], given["q"][1:].argmax(1), given["rewards"],
        0.9 * ~given["terminated"], 3, tx_pair=rlax.SIGNED_HYPERBOLIC_PAIR,
    )  # fmt: skip
    return {**given, "actions": actions, "errors": errors}


def main() -> None:
    made = {
        "vtrace": vtrace(),
        "gae": gae(),
        "n_step": n_step(),
        "double_q": double_q(),
        "n_step_transitions": n_step_transitions(),
        "prioritized": prioritized(),
        "rmsprop": [
            rmsprop(centered=centered, momentum=momentum, epsilon=epsilon)
            for centered in (False, True)
            for momentum in (None, 0.7)
            for epsilon in (0.1, 1.5e-7)
        ],
        "quantiles": quantiles(),
        "rescaling": rescaling(),
        "rescaled_double_q": rescaled_double_q(),
    }
    print(json.dumps(jax.tree.map(rounded, made)))


def rounded(value: Any) -> Any:
    is_bool = np.asarray(value).dtype == bool
    return np.asarray(value).tolist() if is_bool else np.round(value, 10).tolist()


if __name__ == "__main__":
    main()
