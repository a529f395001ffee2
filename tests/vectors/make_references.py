"""Prints tests/vectors/references.json: what rlax and optax make of random inputs.

In an environment with these packages (rlax 0.1.9, optax 0.2.8, jax 0.10.2), which the project does not need:

    python tests/vectors/make_references.py > tests/vectors/references.json
"""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import optax  # noqa: E402
import rlax  # noqa: E402

T, ACTIONS, SIZE = 7, 3, 5
RANDOM = np.random.default_rng(24)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape)


def rollout() -> dict[str, np.ndarray]:
    discounts = 0.97 * (RANDOM.random(T) > 0.2)
    return {"rewards": normal(T), "discounts": discounts, "values": normal(T + 1)}


def vtrace() -> dict[str, Any]:
    """With lambda below 1 rlax mixes values into the advantages' bootstrap, which the paper does not: targets only."""
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


def main() -> None:
    made = {
        "vtrace": vtrace(),
        "gae": gae(),
        "n_step": n_step(),
        "double_q": double_q(),
        "rmsprop": [
            rmsprop(centered=centered, momentum=momentum, epsilon=epsilon)
            for centered in (False, True)
            for momentum in (None, 0.7)
            for epsilon in (0.1, 1.5e-7)
        ],
    }
    print(
        json.dumps(jax.tree.map(lambda x: np.round(x, 10).tolist() if not isinstance(x, bool) else x, made))
    )


if __name__ == "__main__":
    main()
