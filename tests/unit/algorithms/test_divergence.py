"""A loss or gradient that is not finite ends the run: the error names the cause, or what to change in the spec."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from rltraining_api.algorithms import A2c, A3c, Impala, Ppo
from rltraining_trainer.algorithms.impala import ImpalaLearner
from rltraining_trainer.algorithms.unrolls import Unroll
from rltraining_trainer.errors import Diverged
from rollouts import Made, begun, make_network, make_unroll

Learn = Callable[[Made, Unroll], object]
CASES: dict[str, tuple[Learn, str, str]] = {
    "impala": (
        lambda made, unroll: ImpalaLearner(*made, Impala(), None).step([unroll]),
        "impala",
        "update 0",
    ),
    **{
        f"{algorithm}": (
            lambda made, unroll, settings=settings: begun(settings, made, unroll).gradient(0),
            algorithm,
            place,
        )
        for algorithm, settings, place in (
            ("a3c", A3c(), "the update from a rollout"),
            ("a2c", A2c(advantage_normalization=True), "the update from a rollout"),
            ("ppo", Ppo(minibatches=1), "update 0 from a rollout"),
        )
    },
}
"""(what learns from a rollout, the algorithm's key in spec.algorithm, where the error places the fault)."""
every_algorithm = pytest.mark.parametrize(("learn", "algorithm", "place"), CASES.values(), ids=CASES.keys())


@every_algorithm
@pytest.mark.parametrize(
    ("field", "bad", "name"),
    [("observation", math.nan, "an observation"), ("reward", math.inf, "a reward")],
)
def test_an_environment_that_gives_nan_is_named(
    learn: Learn, algorithm: str, place: str, field: str, bad: float, name: str
) -> None:
    made = make_network()
    unroll = make_unroll(*made)
    unroll["valid"][:] = True
    unroll[field][2, 1] = bad  # type: ignore[literal-required]

    with pytest.raises(Diverged) as caught:
        learn(made, unroll)

    assert str(caught.value) == (
        f"NaN in the loss at {place}: the environment gave {name} that is NaN or infinite"
    )


@every_algorithm
def test_a_loss_that_explodes_by_itself_comes_with_a_remedy(learn: Learn, algorithm: str, place: str) -> None:
    made = make_network()
    unroll = make_unroll(*made)
    unroll["reward"] *= 1e30

    remedy = rf"lower spec\.algorithm\.{algorithm}\.learningRate or gradientClip, or clip rewards"
    with pytest.raises(Diverged, match=rf"^NaN in the loss at {place} \(loss .*\): {remedy}"):
        learn(made, unroll)


@every_algorithm
def test_huge_observations_are_named_as_the_cause(learn: Learn, algorithm: str, place: str) -> None:
    made = make_network()
    unroll = make_unroll(*made)
    unroll["valid"][:] = True
    unroll["reward"] *= 1e30
    unroll["observation"] *= 1e8 / unroll["observation"].abs().max()

    cause = r"the environment gave an observation of magnitude 1e\+08; scale it in the environment, or set"
    remedy = r"environment\.normalize: \{observations: true\}"
    with pytest.raises(Diverged, match=rf"^NaN in the loss at {place} \(loss .*\): {cause} {remedy}$"):
        learn(made, unroll)
